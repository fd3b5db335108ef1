#!/bin/bash
# gpu_check.sh [BUILD] [OPTION...] - everything that Weft promises of a GPU, in one go of at most
# eight minutes, as one table: builds into BUILD (default: build) where CUDA's compiler is, then runs
# gpu_check.py, whose options and --help these are. Status 77 where there is no GPU.
set -euo pipefail

cd "$(dirname "$0")/../.."
build=build
case "${1:-}" in
-*) ;;
?*)
    build=$1
    shift
    ;;
esac
for option in "$@"; do
    case $option in
    -h | --help) exec python3 scripts/proofs/gpu_check.py --help ;;
    esac
done
python3 scripts/proofs/gpu_check.py --probe || exit 77
scripts/build.sh "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON
exec python3 scripts/proofs/gpu_check.py --build "$build" "$@"
