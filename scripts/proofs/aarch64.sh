#!/bin/bash
# aarch64.sh [--only PART].. [BUILD] - the same bits on AArch64: cross builds with Debian's compiler into BUILD
# (build-aarch64), and runs under qemu's user mode
#
#     kernels        the kernels' tests, which do less of what repeats there, as under a sanitizer
#     digests        the ten fixed digests, which were made on x86-64, with NEON and in portable C
#     instructions   a count of what a step takes with NEON and in portable C
#     wheel          a wheel for AArch64, whose programs have a digest of the build's
#     module         the wheel's Python module in Debian's Python for arm64, which is fetched: a step with a digest of the build's
#     exactness      exactness.py --quick, whose digests are those of this machine's build
#
# or those PARTs alone. qemu takes ten to thirty times a processor's time. Skipped with a line (status 77) where the
# compiler, qemu or a library for arm64 is missing. On Debian they come so:
#
#     dpkg --add-architecture arm64 && apt-get update
#     apt-get install gcc-aarch64-linux-gnu qemu-user libhwloc-dev:arm64 libjansson-dev:arm64 libxxhash-dev:arm64 \
#         libpcre2-dev:arm64 libutf8proc-dev:arm64 libprotobuf-c-dev:arm64 libcunit1-dev:arm64
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
all="kernels digests instructions wheel module exactness"
chosen=
while [ "${1:-}" = --only ]; do
    if [[ " $all " != *" ${2:-} "* ]]; then
        echo "aarch64.sh: --only takes one of: $all" >&2
        exit 2
    fi
    chosen+=" $2"
    shift 2
done
if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
chosen=${chosen:-$all}
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

# part NAME COMMAND..: runs one that was asked for, in a shell of its own, and prints whether it passed and how long it took.
part()
{
    local name=$1 start=$SECONDS status
    shift
    [[ " $chosen " == *" $name "* ]] || return 0
    set +e
    (set -e && "$@")
    status=$?
    set -e
    if [ $status = 0 ]; then
        echo "== $name: passed ($((SECONDS - start)) s)"
    else
        echo "== $name: FAILED ($((SECONDS - start)) s)"
        failures=$((failures + 1))
    fi
}

# build_targets TARGET..: makes them, in a folder that is configured where it is new.
build_targets()
{
    [ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -G Ninja -DWEFT_PLUGINS=OFF \
        -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64.cmake" >/dev/null
    cmake --build "$build" -j "$(nproc)" --target "$@"
}

run_kernels()
{
    local tests
    tests=$(cd "$root/tests/kernels" && echo test_*.c | sed 's/\.c//g')
    # shellcheck disable=SC2086 # names of targets
    build_targets $tests
    ctest --test-dir "$build" -R '^kernels[.]' -j "$(nproc)" --output-on-failure
}

# A program as others call it, which qemu runs.
wrapped=$(mktemp -d)
trap 'rm -rf "$wrapped"' EXIT
mkdir "$wrapped/apps"
cat >"$wrapped/apps/gpt_train" <<END
#!/bin/sh
exec "$qemu" -cpu max "$build/apps/gpt_train" "\$@"
END
chmod +x "$wrapped/apps/gpt_train"

compare_digests()
{
    for isa in neon portable; do
        WEFT_CPU_ISA=$isa bash "$root/tests/apps/test_witness.sh" "$wrapped"
    done
}

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
        portable=$(count_step portable $model --dtype $dtype)
        # shellcheck disable=SC2086 # flags are words
        neon=$(count_step neon $model --dtype $dtype)
        awk -v dtype=$dtype -v portable="$portable" -v neon="$neon" 'BEGIN {
            printf "%s: a step takes %.1f million instructions in portable C, %.1f with NEON: %.2f times as many\n",
                dtype, portable / 1e6, neon / 1e6, portable / neon }'
    done
}

# digests_of COMMAND..: of the two steps that a run makes.
digests_of()
{
    "$@" --data "$wrapped/text" --n-layer 1 --n-head 2 --n-embd 16 --seq-len 32 --steps 2 --eval-interval 0 --digest |
        sed -n 's/^step .*digest //p'
}

# Makes the wheel, and trains with what is in it.
try_wheel()
{
    local wheel site=$wrapped/site wanted found
    build_targets apps/all weft_python
    "$root/scripts/wheel.sh" --no-build "$build" "$wrapped"
    wheel=$(echo "$wrapped"/weft-*_aarch64.whl)
    python3 -m zipfile -e "$wheel" "$site"
    chmod +x "$site"/weft/bin/*
    ! readelf -h "$site"/weft/bin/* "$site"/weft/lib/* | grep Machine: | grep -v AArch64 || return 1
    seq 4000 >"$wrapped/text"
    wanted=$(digests_of "$wrapped/apps/gpt_train")
    found=$(digests_of "$qemu" -cpu max "$site/weft/bin/gpt_train" --dp 2)
    echo "digests of the build and of the wheel: ${wanted//$'\n'/ }, ${found//$'\n'/ }"
    [ -n "$wanted" ] && [ "$wanted" = "$found" ]
    cp "$wheel" "$build/"
}

# The packages of a Python for arm64, and of what numpy needs.
packages="python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libexpat1 libssl3 zlib1g libffi8 libbz2-1.0 liblzma5 libstdc++6
    libgcc-s1"

# Installs the wheel, and numpy's, beside a Python for arm64; makes a step with it and with this machine's module.
try_module()
{
    local wheel package python=$wrapped/python lib wanted found
    wheel=$(echo "$build"/weft-*_aarch64.whl)
    [ -f "$wheel" ] || { echo "there is no wheel in $build: --only wheel makes it" && return 1; }
    ${WEFT_PYTHON:-python3} -c "import numpy" || { echo "numpy is missing here: WEFT_PYTHON names a Python that has it" && return 1; }
    mkdir -p "$python/packages"
    for package in $packages; do
        (cd "$python/packages" && apt-get -qq download "$package:arm64") || return 1
    done
    for package in "$python"/packages/*.deb; do
        dpkg -x "$package" "$python"
    done
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$wrapped/module" --python-version 3.11 \
        --only-binary :all: --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_34_aarch64 "$wheel"
    cat >"$wrapped/step.py" <<'END'
import platform, sys, numpy, weft
ids = numpy.random.default_rng(1).integers(0, 256, (4, 17))
with weft.Run(n_layer=1, n_head=2, n_embd=16, seq_len=16, global_batch_size=4, tp=2, lr=1e-3, threads_per_rank=1) as run:
    print(platform.machine(), file=sys.stderr)
    print(run.step(ids).digest)
END
    lib=$python/usr/lib/aarch64-linux-gnu:$python/lib/aarch64-linux-gnu
    found=$(PYTHONHOME=$python/usr PYTHONPATH=$wrapped/module "$qemu" -cpu max -E LD_LIBRARY_PATH="$lib" "$python/usr/bin/python3.11" -S \
        "$wrapped/step.py")
    "$root/scripts/build.sh" --only weft_python "$root/build" >/dev/null
    wanted=$(PYTHONPATH=$root/apps/python WEFT_LIBRARY=$root/build/apps/libweft_python.so ${WEFT_PYTHON:-python3} "$wrapped/step.py")
    echo "digests of a step in Python: $wanted here, $found on AArch64"
    [ -n "$wanted" ] && [ "$wanted" = "$found" ]
}

# exact_runs PROGRAM FILE: the quick runs of a program, with their output and their digests in FILE.
exact_runs()
{
    python3 "$root/scripts/proofs/exactness.py" --quick --jobs "$(nproc)" --gpt-train "$1" | tee "$wrapped/runs"
    grep ': digest ' "$wrapped/runs" >"$2"
}

compare_layouts()
{
    "$root/scripts/build.sh" --only gpt_train "$root/build" >/dev/null
    exact_runs "$root/build/apps/gpt_train" "$wrapped/native"
    exact_runs "$wrapped/apps/gpt_train" "$wrapped/emulated"
    diff "$wrapped/native" "$wrapped/emulated"
    echo "$(wc -l <"$wrapped/native") models have the digests of $(uname -m)"
}

[ "$chosen" = " module" ] || build_targets gpt_train
part kernels run_kernels
part digests compare_digests
part instructions count_instructions
part wheel try_wheel
part module try_module
part exactness compare_layouts
[ $failures = 0 ]
