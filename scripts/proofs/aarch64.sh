#!/bin/bash
# aarch64.sh [--quick] [BUILD] - the same bits on AArch64: cross builds with Debian's compiler into BUILD
# (build-aarch64), and runs under qemu's user mode the kernels' tests, the ten fixed digests, which were made on
# x86-64, and exactness.py --quick. Then it counts the instructions of a step with NEON and in portable C.
#
# qemu takes thirty times a processor's time and more: some hours on two cores. --quick takes the tests of products
# and vectors, the digests and the counts. Skipped with a line (status 77) where the compiler, qemu or a library for
# arm64 is missing. On Debian they come so:
#
#     dpkg --add-architecture arm64 && apt-get update
#     apt-get install gcc-aarch64-linux-gnu qemu-user libhwloc-dev:arm64 libjansson-dev:arm64 libxxhash-dev:arm64 \
#         libpcre2-dev:arm64 libutf8proc-dev:arm64 libprotobuf-c-dev:arm64 libcunit1-dev:arm64
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
quick=
if [ "${1:-}" = --quick ]; then
    quick=yes
    shift
fi
build=$(realpath -m "${1:-$root/build-aarch64}")
failures=0

missing()
{
    echo "skipped: $1 is missing; the head of scripts/proofs/aarch64.sh says how to get it"
    exit 77
}

command -v aarch64-linux-gnu-gcc >/dev/null || missing aarch64-linux-gnu-gcc
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || missing qemu-aarch64
for module in hwloc jansson libxxhash libpcre2-8 libutf8proc libprotobuf-c cunit; do
    PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig pkg-config --exists $module ||
        missing "$module for arm64"
done

# part NAME COMMAND..: runs one, and prints whether it passed and how long it took.
part()
{
    local name=$1 start=$SECONDS
    shift
    if "$@"; then
        echo "== $name: passed ($((SECONDS - start)) s)"
    else
        echo "== $name: FAILED ($((SECONDS - start)) s)"
        failures=$((failures + 1))
    fi
}

jobs=$(nproc)
[ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -G Ninja -DWEFT_PLUGINS=OFF \
    -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64.cmake" >/dev/null
tests=$(cd "$root/tests/kernels" && echo test_*.c | sed 's/\.c//g')
[ -z "$quick" ] ||
    tests="test_gemm test_gemm_bf16 test_gemv test_simd test_simd_exact test_simd_sums test_attention_simd"
# shellcheck disable=SC2086 # names of targets
cmake --build "$build" -j "$jobs" --target gpt_train $tests

# A program as others call it, which qemu runs.
wrapped=$(mktemp -d)
trap 'rm -rf "$wrapped"' EXIT
mkdir "$wrapped/apps"
cat >"$wrapped/apps/gpt_train" <<END
#!/bin/sh
exec "$qemu" -cpu max "$build/apps/gpt_train" "\$@"
END
chmod +x "$wrapped/apps/gpt_train"

# Tests that run under qemu take longer than their time limits, which are those of a processor.
part "kernels' tests" ctest --test-dir "$build" -R "^kernels\.(${tests// /|})\$" -j "$jobs" --timeout 7200 \
    --output-on-failure
part "fixed digests" bash "$root/tests/apps/test_witness.sh" "$wrapped"

# Counts the instructions of COMMAND..
instructions()
{
    "$qemu" -cpu max -d plugin -D "$wrapped/count" -plugin "$wrapped/instructions.so" "$@" >/dev/null
    sed -n 's/^instructions: //p' "$wrapped/count"
}

# Counts the instructions of a step: of four less those of two, by two.
count_step()
{
    local isa=$1 few many
    shift
    few=$(WEFT_CPU_ISA=$isa instructions "$build/apps/gpt_train" "$@" --steps 2)
    many=$(WEFT_CPU_ISA=$isa instructions "$build/apps/gpt_train" "$@" --steps 4)
    echo $(((many - few) / 2))
}

count_instructions()
{
    local model="--data $wrapped/text --n-layer 1 --n-head 4 --n-embd 64 --seq-len 32 --vocab-size 256 \
        --global-batch-size 2 --eval-interval 0 --threads-per-rank 1 --device cpu"
    seq 4000 >"$wrapped/text"
    cc -shared -fPIC -O2 -o "$wrapped/instructions.so" "$root/scripts/proofs/qemu_instructions.c"
    for dtype in fp32 bf16; do
        # shellcheck disable=SC2086 # flags are words
        portable=$(count_step portable $model --dtype $dtype) neon=$(count_step neon $model --dtype $dtype)
        awk -v dtype=$dtype -v portable="$portable" -v neon="$neon" 'BEGIN {
            printf "%s: a step takes %.1f million instructions in portable C, %.1f with NEON: %.2f times as many\n",
                dtype, portable / 1e6, neon / 1e6, portable / neon }'
    done
}
part "instructions" count_instructions

[ -n "$quick" ] || part "exactness" python3 "$root/scripts/proofs/exactness.py" --quick --jobs 2 \
    --gpt-train "$wrapped/apps/gpt_train"
[ $failures = 0 ]
