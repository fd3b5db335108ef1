# Builds for AArch64 Linux with Debian's cross compiler, and runs the tests under qemu's user mode:
#
#     cmake -B build-aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake
#
# scripts/proofs/aarch64.sh installs what is missing, and does it all.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# pkg-config of the build machine, with the files of the other architecture.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
find_program(WEFT_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(WEFT_QEMU)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${WEFT_QEMU} -cpu max)
endif()
