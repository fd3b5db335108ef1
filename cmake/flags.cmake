# cmake/flags.cmake - how every file of Weft is compiled. The numbers depend on two of these flags:
# -ffp-contract=off (an fma is one only where the source says so), and no -ffast-math anywhere.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(weft_sanitize INTERFACE)
if(WEFT_SANITIZE)
    set(WEFT_ADDRESS_AND_UB OFF)
    if(WEFT_SANITIZE MATCHES "address" AND WEFT_SANITIZE MATCHES "undefined")
        set(WEFT_ADDRESS_AND_UB ON)
    endif()
    target_compile_options(weft_sanitize INTERFACE -fsanitize=${WEFT_SANITIZE}
        -fno-omit-frame-pointer -fno-sanitize-recover=all
        # AddressSanitizer finds what these would, which take a seventh of the time to compile.
        $<$<BOOL:${WEFT_ADDRESS_AND_UB}>:-fno-sanitize=null,object-size>
        # A target's own options come before these: what it leaves out it says in this property.
        $<$<BOOL:$<TARGET_PROPERTY:WEFT_SANITIZE_WITHOUT>>:-fno-sanitize=$<TARGET_PROPERTY:WEFT_SANITIZE_WITHOUT>>
        # which takes minutes for the portable vectors
        $<$<C_COMPILER_ID:GNU>:-fno-var-tracking>)
    target_link_options(weft_sanitize INTERFACE -fsanitize=${WEFT_SANITIZE})
    # Instrumented programs are large, and there are two hundred tests: the usual linker takes three times as long.
    include(CheckLinkerFlag)
    check_linker_flag(C -fuse-ld=lld WEFT_LLD)
    if(WEFT_LLD)
        target_link_options(weft_sanitize INTERFACE -fuse-ld=lld)
    endif()
endif()

add_library(weft_flags INTERFACE)
target_compile_definitions(weft_flags INTERFACE _GNU_SOURCE)
target_compile_options(weft_flags INTERFACE -ffp-contract=off -fno-math-errno
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    $<$<BOOL:${WEFT_WERROR}>:-Werror>)
# What makes an overwritten stack or buffer an end of the process, and tables of addresses read-only.
# Sanitizers look more closely themselves.
target_compile_options(weft_flags INTERFACE -fstack-protector-strong)
if(NOT WEFT_SANITIZE)
    target_compile_options(weft_flags INTERFACE
        $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
endif()
add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
target_include_directories(weft_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(weft_flags INTERFACE weft_sanitize)

# Files for AVX end with vzeroupper, or what follows in SSE takes forty times as long on some processors (Intel's Emerald Rapids):
# clang always adds it, gcc from -O2 on, and with this; at -Os gcc never does.
set(WEFT_VZEROUPPER $<$<C_COMPILER_ID:GNU>:-fexpensive-optimizations>)

# weft_folder(NAME [GLOB...] [COLD GLOB...]): the object library weft_NAME from the files that match. Those of COLD have no loops
# over data. What builds in CI run lasts moments: a sanitizer's build does not optimise those of COLD, which takes clang more than
# all else that it does for them; the plain one (WEFT_REST) does it a little, and the others less than -O3, which changes no bit
# (scripts/proofs/exactness.py --builds).
function(weft_folder name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" COLD)
    file(GLOB sources CONFIGURE_DEPENDS ${arg_UNPARSED_ARGUMENTS} ${arg_COLD})
    add_library(weft_${name} OBJECT ${sources})
    target_link_libraries(weft_${name} PRIVATE weft_flags)
    target_compile_options(weft_${name} PRIVATE $<$<BOOL:${WEFT_REST}>:-O2>)
    if(arg_COLD AND (WEFT_SANITIZE OR WEFT_REST))
        file(GLOB cold ${arg_COLD})
        set(level -O1)
        if(WEFT_SANITIZE)
            set(level -O0)
        endif()
        set_property(SOURCE ${cold} APPEND PROPERTY COMPILE_OPTIONS ${level})
    endif()
    if(WEFT_SANITIZE)
        # tests of private parts link the shared library: see weft_open
        set_target_properties(weft_${name} PROPERTIES C_VISIBILITY_PRESET default)
    endif()
endfunction()

# weft_fuzzed(FILE...): libFuzzer grows its inputs by the branches that these take.
function(weft_fuzzed)
    if(WEFT_FUZZ)
        set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -fsanitize=fuzzer-no-link)
    endif()
endfunction()

# weft_sanitize_without(TARGET CHECKS): a sanitizer's build of the target leaves these checks out: "thread", or those of
# UndefinedBehaviorSanitizer.
function(weft_sanitize_without target checks)
    if(WEFT_SANITIZE)
        set_target_properties(${target} PROPERTIES WEFT_SANITIZE_WITHOUT ${checks})
    endif()
endfunction()

# weft_wrap(TARGET FUNCTION...): the program has a __wrap_FUNCTION in place of each, in front of the library's own calls too.
function(weft_wrap target)
    set_target_properties(${target} PROPERTIES WEFT_WRAPS ON)
    foreach(function ${ARGN})
        target_link_options(${target} PRIVATE LINKER:--wrap=${function})
    endforeach()
endfunction()

# weft_wrap_allocations(TARGET): the functions of tests/allocations.c stand in front of the C library's.
function(weft_wrap_allocations target)
    weft_wrap(${target} malloc calloc realloc strdup strndup aligned_alloc posix_memalign mmap free)
endfunction()
