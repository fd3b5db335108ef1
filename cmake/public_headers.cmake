# cmake/public_headers.cmake - the headers as a user includes them: <weft/core/tensor.h>.
#
# In this tree headers include each other by their path from its top ("core/tensor.h"). Where they are
# installed that would need a second include path, whose names (core, mesh) anybody may use. So a user's
# copy of each, made here, includes <weft/core/tensor.h>. The copies lie in the build tree, where apps
# use the same ones, and are installed from there.

# weft_public_copy(FILE): a public header's copy, written only when it changes.
function(weft_public_copy file)
    set(copy ${PROJECT_BINARY_DIR}/include/weft/${file})
    file(READ ${PROJECT_SOURCE_DIR}/${file} text)
    string(REGEX REPLACE "(\n *# *include +)\"([^\"\n]+)\"" "\\1<weft/\\2>" text "${text}")
    set(before "")
    if(EXISTS ${copy})
        file(READ ${copy} before)
    endif()
    if(NOT text STREQUAL before)
        file(WRITE ${copy} "${text}")
    endif()
endfunction()

# Headers that stay out of the umbrella, since they bring the compiler's vectors, and what they are made of.
set(weft_apart kernels/elementwise.h kernels/elementwise_cuda.h kernels/lanes.h
    kernels/lanes_double.h kernels/lanes_far.h kernels/lanes_functions.def kernels/lanes_of.def)

# weft_public_headers(FILE...): copies these, makes the umbrella <weft/weft.h> of them, installs all.
function(weft_public_headers)
    set(WEFT_INCLUDES "")
    foreach(file ${ARGN})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
        weft_public_copy(${file})
        if(file MATCHES "\\.h$" AND NOT file IN_LIST weft_apart)
            string(APPEND WEFT_INCLUDES "#include <weft/${file}>\n")
        endif()
        cmake_path(GET file PARENT_PATH folder)
        install(FILES ${PROJECT_BINARY_DIR}/include/weft/${file}
                DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft/${folder})
    endforeach()
    configure_file(cmake/weft.h.in include/weft/weft.h @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/include/weft/weft.h
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
endfunction()
