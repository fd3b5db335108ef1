# cmake/package.cmake - Debian packages: `cmake --build build --target package`, or cpack in the build folder.
#
# weft is the library, its headers, what finds them (CMake, pkg-config), programs, manual pages, completion and
# documents; each plugin that was built is a package of its own, so that weft alone needs neither MPI nor CUDA.
# What they depend on is what dpkg-shlibdeps finds: libraries that came in no package (CUDA's own installer) it leaves out.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weft)
# Nobody's by RFC 2606; who hands out packages says where to write to.
set(WEFT_MAINTAINER "The Weft authors <weft@weft.invalid>" CACHE STRING
    "The maintainer that Debian packages name: Name <address>")
set(CPACK_PACKAGE_CONTACT "${WEFT_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL weft)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}) # where plugins find libweft
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_WEFT_PACKAGE_NAME weft)
set(CPACK_DEBIAN_WEFT_DESCRIPTION
    "The library, its headers, and programs that train, run and evaluate models
whose tensors are spread over ranks: their layout never changes a bit.")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_WEFT_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/triggers)
foreach(plugin mpi cuda nccl)
    if(TARGET weft_${plugin})
        string(TOUPPER ${plugin} name)
        list(APPEND CPACK_COMPONENTS_ALL ${plugin})
        set(CPACK_DEBIAN_${name}_PACKAGE_NAME weft-${plugin})
        set(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS "weft (= ${PROJECT_VERSION})")
        set(CPACK_DEBIAN_${name}_DESCRIPTION
            "Weft's plugin for ${name}, which the library finds beside itself.")
        if(plugin STREQUAL cuda)
            # The names that NVIDIA's own repository for Debian gives to libcudart and libcublasLt.
            get_property(version GLOBAL PROPERTY weft_cuda_version)
            set(CPACK_DEBIAN_CUDA_PACKAGE_SUGGESTS "cuda-cudart-${version}, libcublas-${version}")
        endif()
        install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright COMPONENT ${plugin}
                DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/weft-${plugin})
    endif()
endforeach()
include(CPack)
