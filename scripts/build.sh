#!/bin/bash
# build.sh DIR [CMAKE OPTION...] - configures the tree into DIR and builds it with all cores.
# CC chooses the compiler, as always with CMake.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# = 0 ]; then
    echo "usage: $0 DIR [CMAKE OPTION...]" >&2
    exit 2
fi
dir=$1
shift
cmake -S "$root" -B "$dir" "$@" | grep -v '^-- ' || [ "${PIPESTATUS[0]}" = 0 ]
cmake --build "$dir" -j "$(nproc)" -- --no-print-directory
