#!/bin/bash
# test.sh [--sanitize] - everything a change has to pass: build and tests with gcc, the same sources
# with clang, the format. With --sanitize, as in CI, warnings are errors, and clang's build becomes
# two: one runs tests under AddressSanitizer with UndefinedBehaviorSanitizer and fuzzes the parsers
# for a moment, one runs them under ThreadSanitizer. Each build leaves tests to another one, labelled
# "elsewhere" (tests/sanitizers.cmake), gcc's too; "heavy" and "lint" are gcc's alone. The end says how many
# each has left, and a test that none has run is a failure.
#
# A failing part does not stop the others. The end repeats each part's result, and the exit
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

# The interpreter itself: where python3 is a shim of pyenv, that takes longer than most scripts.
PATH=$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))'):$PATH

jobs=$(nproc)
summary=()
passed=0
failed=0
skipped=0

# begin; took: the seconds since, and how many of a processor all took that was started and has ended.
taken=$(mktemp)
trap 'rm -f "$taken" "$taken.said"' EXIT
begin()
{
    begun=$SECONDS
    times >"$taken"
}
took()
{
    times >>"$taken" # by this shell: a subshell has started nothing
    awk -v seconds=$((SECONDS - begun)) 'NR % 2 == 0 {
            split($1, user, "[ms]")
            split($2, kernel, "[ms]")
            sum = 60 * (user[1] + kernel[1]) + user[2] + kernel[2] - sum
        }
        END { printf "%d s, %d s of a processor", seconds, sum }' "$taken" >"$taken.said"
    said=$(<"$taken.said")
}

# part NAME COMMAND...: one line of the summary; 77 is skipped, as in CTest.
part()
{
    local name=$1 status word
    shift
    echo "== $name"
    begin
    "$@"
    status=$?
    case $status in
    0) word=passed passed=$((passed + 1)) ;;
    77) word=SKIPPED skipped=$((skipped + 1)) ;;
    *) word=FAILED failed=$((failed + 1)) ;;
    esac
    took
    summary+=("$name: $word in $said")
    return $status
}

# attribute FILE NAME: a count in the first lines of CTest's JUnit file.
attribute()
{
    sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -1
}

# listed DIR [CTEST OPTION...]: the names of a tree's tests.
listed()
{
    ctest --test-dir "$@" -N | sed -n 's/^ *Test *#[0-9]*: //p' | sort
}

# tests NAME DIR [CTEST OPTION...]: runs a built tree's tests and adds up their counts.
tests()
{
    local name=$1 xml=$2/ctest.xml total bad skip status left
    left=$(listed "$2" | wc -l)
    shift
    echo "== $name"
    begin
    "${runner[@]}" ctest --test-dir "$@" --output-on-failure --output-junit "$PWD/$xml" \
        -j $((jobs + 2)) # some wait, for others or for a time
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
    left=$((left - total))
    [ $left = 0 ] && left="" || left=", $left left to other builds"
    took
    summary+=("$name: $((total - bad - skip)) of $total passed, $bad failed, $skip skipped$left in $said")
}

# build_and_test NAME DIR CTEST-OPTIONS CMAKE-OPTION...
build_and_test()
{
    local name=$1 dir=$2 options=$3
    shift 3
    rm -f "$dir/ctest.xml"
    # shellcheck disable=SC2086 # the options are words
    part "$name build" scripts/build.sh "$dir" -DBUILD_TESTING=ON "$@" &&
        tests "$name tests" "$dir" $options
}

# all_run: every test of gcc's build has run there or in one with sanitizers.
all_run()
{
    local missed

    missed=$(comm -23 <(listed build) <(sed -n 's/.*<testcase name="\([^"]*\)".*/\1/p' build{,-asan,-tsan}/ctest.xml | sort -u))
    [ -z "$missed" ] || echo "no build has run: ${missed//$'\n'/ }"
    [ -z "$missed" ]
}

# Debian 12's ThreadSanitizer can't map its shadow where the kernel randomises more than 28 bits.
runner=()
bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)

# Machine code for one kind of GPU says that there is some for all: the code that it is made from is the same. What
# is compiled for a GPU does not run here, so nvcc's optimiser, which takes two thirds of its time, does little.
mine=(-DWEFT_REST=OFF -DWEFT_CUDA_ONE_FILE=OFF)
options=""
if [ $sanitize = yes ]; then
    options="-LE elsewhere"
    mine=(-DWEFT_REST=ON -DWEFT_CUDA_ONE_FILE=ON -DCMAKE_CUDA_ARCHITECTURES=80
        "-DCMAKE_CUDA_FLAGS_RELEASE=-O0 -DNDEBUG -Xcicc=-O1 -Xptxas=-O0")
fi
build_and_test gcc build "$options" -DCMAKE_BUILD_TYPE=Release -DWEFT_WERROR=$werror "${mine[@]}"
part "format" scripts/format.sh --check
if [ $sanitize = no ]; then
    part "clang build" env CC=clang scripts/build.sh build-clang \
        -DCMAKE_BUILD_TYPE=Debug -DBUILD_TESTING=ON -DWEFT_CUDA=OFF
else
    export UBSAN_OPTIONS=print_stacktrace=1
    light="-LE heavy|lint|elsewhere"
    # what a report needs of debug information: files and lines
    debug="-O1 -gline-tables-only -DNDEBUG"
    lines=(-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_C_FLAGS_RELWITHDEBINFO=$debug"
        "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=$debug")
    CC=clang CXX=clang++ build_and_test "clang address,undefined" build-asan "$light" \
        "${lines[@]}" -DWEFT_WERROR=$werror -DWEFT_FUZZ=ON \
        -DWEFT_SANITIZE=address,undefined
    part "fuzz" scripts/fuzz.sh 0 build-asan
    if [ "$bits" -gt 28 ]; then
        runner=(setarch -R)
    fi
    CC=clang CXX=clang++ build_and_test "clang thread" build-tsan "$light" \
        "${lines[@]}" -DWEFT_WERROR=$werror -DWEFT_SANITIZE=thread
    part "every test ran" all_run
fi

echo
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
