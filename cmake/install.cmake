# cmake/install.cmake - what an installed Weft is: the shared library, its public headers under
# <weft/...>, the umbrella <weft/weft.h>, a CMake package (weft::weft), a pkg-config file, the apps,
# and what documents.cmake adds.
#
# A header is public unless it is called *_internal.h, and so is what a public one includes (*.def).
# The umbrella is generated from that list, so it can't fall behind.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME weft) # but for plugins: see package.cmake

# weft_public_files(OUT): public headers and .def files, as paths from the top of the tree.
function(weft_public_files out)
    set(public "")
    foreach(folder core kernels mesh nn parallel)
        file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
            ${PROJECT_SOURCE_DIR}/${folder}/*.h)
        list(FILTER headers EXCLUDE REGEX "_internal\\.h$")
        list(APPEND public ${headers})
    endforeach()
    set(open ${public})
    while(open)
        list(POP_FRONT open file)
        # An edit may change what is public: configure again then.
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(STRINGS ${PROJECT_SOURCE_DIR}/${file} includes REGEX "^ *# *include *\"")
        foreach(include ${includes})
            string(REGEX REPLACE ".*\"(.*)\".*" "\\1" include "${include}")
            if(NOT include IN_LIST public)
                list(APPEND public ${include})
                list(APPEND open ${include})
            endif()
        endforeach()
    endwhile()
    list(SORT public)
    set(${out} ${public} PARENT_SCOPE)
endfunction()

weft_public_files(weft_public)
include(cmake/public_headers.cmake)
weft_public_headers(${weft_public})
# <weft/...> for the tree's own apps; INCLUDES DESTINATION below says it for the installed one.
target_include_directories(weft INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)

install(TARGETS weft weft_text EXPORT weft-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(plugin weft_mpi weft_cuda weft_nccl) # found beside libweft
    if(TARGET ${plugin})
        string(REPLACE "weft_" "" component ${plugin})
        install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
        set_target_properties(${plugin} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    endif()
endforeach()
set(weft_package ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${weft_package})
configure_package_config_file(cmake/weft-config.cmake.in weft-config.cmake
    INSTALL_DESTINATION ${weft_package})
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weft-config.cmake
        ${PROJECT_BINARY_DIR}/weft-config-version.cmake DESTINATION ${weft_package})

# Relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH WEFT_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/weft.pc.in weft.pc @ONLY)
configure_file(cmake/weft-text.pc.in weft-text.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc ${PROJECT_BINARY_DIR}/weft-text.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET gpt_train)
    file(RELATIVE_PATH weft_from_bin /prefix/${CMAKE_INSTALL_BINDIR}
        /prefix/${CMAKE_INSTALL_LIBDIR})
    set(weft_apps ckpt gpt_check gpt_data gpt_diff gpt_eval gpt_export gpt_generate gpt_train mesh_info recorder_diff schedule
        weft_command)
    set_target_properties(${weft_apps} PROPERTIES
        INSTALL_RPATH "$ORIGIN/${weft_from_bin};$ORIGIN/..")
    install(TARGETS ${weft_apps} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
include(cmake/documents.cmake)

# What is installed has one path to its libraries in both trees: with two, CMake keeps room for the
# other one, and that room is an empty element, which the loader takes for the working directory.
foreach(installed weft weft_text weft_mpi weft_cuda weft_nccl ${weft_apps})
    if(TARGET ${installed})
        set_target_properties(${installed} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
    endif()
endforeach()
include(cmake/package.cmake)
