#!/bin/bash
# test.sh [--sanitize] - everything a change has to pass: build and tests with gcc, the same sources
# with clang, the format. With --sanitize, as in CI, warnings are errors, and clang's build becomes
# two: one runs the tests under AddressSanitizer with UndefinedBehaviorSanitizer and fuzzes the
# parsers for half a minute, one runs them under ThreadSanitizer. Tests labelled "heavy" or "lint"
# stay out there.
#
# A failing part does not stop the others. The end repeats what each part came to, and the exit
# status is that of the whole.
set -uo pipefail

sanitize=no
werror=OFF # a compiler that CI does not know may warn of new things
case "${1:-}" in
--sanitize)
    sanitize=yes
    werror=ON
    ;;
"") ;;
*)
    echo "usage: $0 [--sanitize]" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.." || exit 1
scripts/install_packages.sh || exit 1

jobs=$(nproc)
summary=()
passed=0
failed=0
skipped=0

# part NAME COMMAND...: one line of the summary; 77 is skipped, as in CTest.
part()
{
    local name=$1 status word begun=$SECONDS
    shift
    echo "== $name"
    "$@"
    status=$?
    case $status in
    0) word=passed passed=$((passed + 1)) ;;
    77) word=SKIPPED skipped=$((skipped + 1)) ;;
    *) word=FAILED failed=$((failed + 1)) ;;
    esac
    summary+=("$name: $word in $((SECONDS - begun)) s")
    return $status
}

# attribute FILE NAME: a count in the first lines of CTest's JUnit file.
attribute()
{
    sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -1
}

# tests NAME DIR [CTEST OPTION...]: runs a built tree's tests and adds up their counts.
tests()
{
    local name=$1 xml=$2/ctest.xml total bad skip status begun=$SECONDS
    shift
    echo "== $name"
    rm -f "$xml"
    "${runner[@]}" ctest --test-dir "$@" --output-on-failure --output-junit "$PWD/$xml" -j "$jobs"
    status=$?
    total=$(attribute "$xml" tests)
    bad=$(attribute "$xml" failures)
    skip=$(($(attribute "$xml" skipped) + $(attribute "$xml" disabled)))
    if [ "${total:-0}" = 0 ] || { [ $status != 0 ] && [ "$bad" = 0 ]; }; then
        summary+=("$name: FAILED, ctest ran no test to its end (status $status)")
        failed=$((failed + 1))
        return 1
    fi
    passed=$((passed + total - bad - skip))
    failed=$((failed + bad))
    skipped=$((skipped + skip))
    summary+=("$name: $((total - bad - skip)) of $total passed, $bad failed, $skip skipped in $((SECONDS - begun)) s")
}

# build_and_test NAME DIR CTEST-OPTIONS CMAKE-OPTION...
build_and_test()
{
    local name=$1 dir=$2 options=$3
    shift 3
    # shellcheck disable=SC2086 # the options are words
    part "$name build" scripts/build.sh "$dir" -DBUILD_TESTING=ON "$@" &&
        tests "$name tests" "$dir" $options
}

# Debian 12's ThreadSanitizer can't map its shadow where the kernel randomises more than 28 bits.
runner=()
bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)

build_and_test gcc build "" -DCMAKE_BUILD_TYPE=Release -DWEFT_WERROR=$werror
part "format" scripts/format.sh --check
if [ $sanitize = no ]; then
    part "clang build" env CC=clang scripts/build.sh build-clang \
        -DCMAKE_BUILD_TYPE=Debug -DBUILD_TESTING=ON -DWEFT_CUDA=OFF
else
    export UBSAN_OPTIONS=print_stacktrace=1
    light="-LE heavy|lint"
    # what a report needs of debug information: files and lines
    debug="-O2 -gline-tables-only -DNDEBUG"
    lines=(-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_C_FLAGS_RELWITHDEBINFO=$debug"
        "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=$debug")
    # left out: sums, counts and formulas over code that other tests run
    counts="test_inexact|test_collectives|test_math|test_rule|test_plan_run|test_placement"
    counts+="|test_reference|test_steady|test_shard_traffic|test_schedules_mutants"
    CC=clang CXX=clang++ build_and_test "clang address,undefined" build-asan "$light -E $counts" \
        "${lines[@]}" -DWEFT_WERROR=$werror -DWEFT_FUZZ=ON \
        -DWEFT_SANITIZE=address,undefined
    part "fuzz" scripts/fuzz.sh 0.5 build-asan
    if [ "$bits" -gt 28 ]; then
        runner=(setarch -R)
    fi
    # left out: what computes on one thread, or on a team that kernels.test_team covers; and other
    # numbers, counts and formulas in the exchanges of test_exact, test_strategies and
    # test_redistribute
    alone="test_ops_|test_math|test_gemm|test_simd_exact|test_placement|test_rank_map"
    alone+="|test_safetensors|test_index|test_random_simd|test_fused|test_attention_cached"
    alone+="|test_schedules_mutants|apps.cli_plans|apps.search"
    alike="test_bf16|test_dtype|test_recompute|test_muon_ranks|test_inexact|test_plan_run"
    alike+="|test_freeze|test_collectives|test_shard_traffic|test_steady|test_reference|test_rule"
    alike+="|test_loss|test_recipe"
    CC=clang CXX=clang++ build_and_test "clang thread" build-tsan "$light -E $alone|$alike" \
        "${lines[@]}" -DWEFT_WERROR=$werror -DWEFT_SANITIZE=thread
fi

echo
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
