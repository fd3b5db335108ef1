#!/bin/bash
# install_packages.sh [--no-tests | --mpi] - the Debian and Ubuntu packages that Weft needs.
# Asks for nothing that is there already, so it works offline and without root on a ready machine.
# With --no-tests: only what building the library and the apps takes. With --mpi: that, and OpenMPI.
set -euo pipefail

tests=yes
mpi=yes
case "${1:-}" in
--no-tests) tests=no mpi=no ;;
--mpi) tests=no ;;
"") ;;
*)
    echo "usage: $0 [--no-tests | --mpi]" >&2
    exit 2
    ;;
esac

missing=()

# need PACKAGE COMMAND...: the package is missing where the command fails.
need()
{
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

# A module that pkg-config knows; while pkg-config itself is missing, every module is.
has_module()
{
    command -v pkg-config && pkg-config --exists "$1"
}

need build-essential sh -c 'command -v gcc && command -v g++ && command -v make'
need cmake command -v cmake
need pkg-config command -v pkg-config
need python3 command -v python3
need libhwloc-dev has_module hwloc
need libjansson-dev has_module jansson
need libxxhash-dev has_module libxxhash
need libpcre2-dev has_module libpcre2-8
need libutf8proc-dev has_module libutf8proc
need libprotobuf-c-dev has_module libprotobuf-c
need protobuf-c-compiler command -v protoc-c
if [ $mpi = yes ]; then
    need libopenmpi-dev has_module ompi-c
    need openmpi-bin command -v mpirun
fi
if [ $tests = yes ]; then
    need libcunit1-dev has_module cunit
    need clang command -v clang
    need mandoc command -v mandoc
    need lld command -v ld.lld
    need ninja-build command -v ninja
    need python3-numpy sh -c 'python3 -c "import numpy" || /usr/bin/python3 -c "import numpy"'
    need patchelf command -v patchelf
    need file command -v file # CPack asks it what is a program
    need python3-pip sh -c 'python3 -m pip --version || /usr/bin/python3 -m pip --version'
    need python3-pytest sh -c 'python3 -c "import pytest" || /usr/bin/python3 -c "import pytest"'
fi

if [ "$(id -u)" = 0 ]; then
    as_root=()
else
    as_root=(sudo)
fi

apt_install()
{
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "install_packages: missing: ${missing[*]}" >&2
        echo "install_packages: no apt-get here; install these (Debian's names) and retry" >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "install_packages: missing: ${missing[*]}" >&2
        echo "install_packages: neither root nor sudo; run as root:" \
            "apt-get install ${missing[*]}" >&2
        exit 1
    fi
    echo "install_packages: installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq ||
        echo "install_packages: apt-get update failed; trying with the lists at hand" >&2
    if ! apt_install "${missing[@]}"; then
        echo "install_packages: apt-get could not install: ${missing[*]}" >&2
        exit 1
    fi
fi

# The formatter is pinned, and not every release has it: without it the check is skipped, in sight.
if [ $tests = yes ] && [ ${#missing[@]} -gt 0 ] && ! command -v clang-format-14 >/dev/null &&
    apt-cache show clang-format-14 >/dev/null 2>&1; then
    apt_install clang-format-14 || echo "install_packages: clang-format-14 not installed" >&2
fi
# So are the compiler and the emulator of the vectors of AArch64: without them that test is skipped.
if [ $tests = yes ] && [ ${#missing[@]} -gt 0 ] && [ "$(uname -m)" = x86_64 ] && ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    apt_install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user || echo "install_packages: no compiler for AArch64" >&2
fi

version=$(cmake --version | sed -n 's/^cmake version //p')
if [ "$(printf '%s\n' 3.22 "$version" | sort -V | head -1)" != 3.22 ]; then
    echo "install_packages: cmake $version is too old, 3.22 is needed" >&2
    exit 1
fi
