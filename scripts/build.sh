#!/bin/bash
# build.sh --all [CMAKE OPTION...]
# build.sh [--only TARGET] DIR [CMAKE OPTION...]
#
# Configures the tree into DIR and builds it, or one target of it, with all cores. --all builds into
# build/ all that this machine can, except for tests: the library, every program and the MPI, CUDA and NCCL
# plugins. It installs OpenMPI where that is missing, and says which plugins it could not build, and why.
# CC chooses the compiler, as always with CMake. A new DIR is built by ninja where that is installed: make
# takes ten seconds of a processor alone to look at all targets.
set -euo pipefail

usage()
{
    echo "usage: $0 --all [CMAKE OPTION...]" >&2
    echo "       $0 [--only TARGET] DIR [CMAKE OPTION...]" >&2
    exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd)
what=()
case "${1:-}" in
--all)
    "$root/scripts/install_packages.sh" --mpi
    dir=$root/build
    shift
    # all GPUs, optimised, also where scripts/test.sh --sanitize has built for one kind, and in a hurry
    set -- -UCMAKE_CUDA_ARCHITECTURES -UCMAKE_CUDA_FLAGS_RELEASE -UWEFT_REST -UWEFT_CUDA_ONE_FILE -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF "$@"
    ;;
--only)
    [ $# -ge 3 ] || usage
    what=(--target "$2")
    dir=$3
    shift 3
    ;;
-* | "") usage ;;
*)
    dir=$1
    shift
    ;;
esac

if [ ! -f "$dir/CMakeCache.txt" ] && [ -z "${CMAKE_GENERATOR:-}" ] && command -v ninja >/dev/null; then
    export CMAKE_GENERATOR=Ninja
fi
# Of CMake's own messages only those about missing plugins are shown. The plugins are on unless an
# option says otherwise, whatever this folder was configured with before.
cmake -S "$root" -B "$dir" -DWEFT_PLUGINS=ON "$@" | awk '!/^-- / || / no libweft_/'
cmake --build "$dir" -j "$(nproc)" "${what[@]}"
