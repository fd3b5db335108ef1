# tests/sanitizers.cmake - which build runs a test. A sanitized one runs those in which there is something for it to see
# that no other of its tests shows. The plain build runs all; where sanitized builds run beside it (WEFT_REST), the other tests alone.
#
# A test says itself which builds run it ("ctest: builds" in its header comment: headers.cmake): address is AddressSanitizer with
# UndefinedBehaviorSanitizer; thread is ThreadSanitizer, for ranks that meet, the transport's and the savers' own threads, thread
# pools, the tokenizer's threads; plain is gcc's, for numbers that an optimiser could change, and for long proofs over code that other
# tests run under a sanitizer. One that says nothing is address's, in the folders of numbers plain's as well.
set(weft_numbers core kernels differential)

# Programs and plugins that no test of a sanitized build runs; and those that none of ThreadSanitizer's runs.
set(weft_idle bench only_local gpt_train_faulty mpi_ranks layouts encode_strings sample_rows quickstart weft_nccl
    nccl_emulator_cuda weft_nccl_emulated_cuda file_call_faults)
set(weft_thread_idle ckpt gpt_data gpt_diff gpt_eval gpt_export gpt_generate mesh_info schedule weft_command chakra_read
    weft_mpi cuda_emulator)

# weft_leave_out_programs(): these are not built by themselves.
function(weft_leave_out_programs)
    if(WEFT_SANITIZE MATCHES "thread")
        list(APPEND weft_idle ${weft_thread_idle})
    elseif(NOT WEFT_SANITIZE)
        return()
    endif()
    foreach(program ${weft_idle})
        if(TARGET ${program})
            set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL TRUE)
        endif()
    endforeach()
endfunction()

# weft_leave_out(TEST SOURCE BUILDS [PROGRAM]): where another build runs it, the test has the label "elsewhere", and its program
# is not built by itself. A source that does less under a sanitizer is run whole by gcc's build, whatever it says.
function(weft_leave_out test source builds)
    if(NOT builds)
        set(builds address)
        string(REGEX REPLACE "[.].*" "" folder ${test})
        if(folder IN_LIST weft_numbers)
            list(APPEND builds plain)
        endif()
    endif()
    if(source)
        file(STRINGS ${source} less REGEX "UNDER_SANITIZER|--sanitized" LIMIT_COUNT 1)
        if(less)
            list(APPEND builds plain)
        endif()
    endif()
    set(here plain)
    if(WEFT_SANITIZE MATCHES "(address|thread)")
        set(here ${CMAKE_MATCH_1})
    endif()
    if(here IN_LIST builds OR (here STREQUAL "plain" AND NOT WEFT_REST))
        return()
    endif()
    set_property(TEST ${test} APPEND PROPERTY LABELS elsewhere)
    if(ARGN)
        set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
endfunction()
