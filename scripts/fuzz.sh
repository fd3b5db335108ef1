#!/bin/bash
# fuzz.sh MINUTES [DIR] - feeds every parser of foreign bytes (tests/fuzz) with inputs that
# libFuzzer grows from the seeds in tests/fuzz/corpus, under AddressSanitizer and
# UndefinedBehaviorSanitizer. The minutes, of a processor, are shared out evenly; with 0 each parser has
# five hundred inputs, its seeds first, as in CI. As many fuzzers run at a time as there are processors. DIR is where it is
# built (build-fuzz if nothing is said); what breaks a parser is kept in DIR/found.
# Skipped (77) where clang has no libFuzzer.
set -uo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ] || ! [[ $1 =~ ^[0-9]+(\.[0-9]+)?$ ]]; then
    echo "usage: $0 MINUTES [DIR]" >&2
    exit 2
fi
minutes=$1
dir=${2:-build-fuzz}
cd "$(dirname "$0")/.." || exit 1

probe='#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *d, size_t n) { return (int)(n && d[0] > 30); }'
if ! printf '%s' "$probe" | clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null; then
    echo "fuzz.sh: SKIPPED: this clang has no libFuzzer" >&2
    exit 77
fi
if ! grep -qs '^WEFT_FUZZ:BOOL=ON' "$dir/CMakeCache.txt"; then
    CC=clang CXX=clang++ cmake -S . -B "$dir" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_TESTING=ON \
        -DWEFT_FUZZ=ON -DWEFT_SANITIZE=address,undefined | grep -v '^-- '
fi
cmake --build "$dir" -j "$(nproc)" --target fuzzers || exit 1

mapfile -t fuzzers < <(find "$dir"/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x |
    sort)
if [ ${#fuzzers[@]} = 0 ]; then
    echo "fuzz.sh: no fuzzer was built" >&2
    exit 1
fi
seconds=$(awk -v m="$minutes" -v n=${#fuzzers[@]} 'BEGIN { s = int(60 * m / n); if (s < 1 && m > 0) s = 1; print s }')
budget=-max_total_time=$seconds said="in $seconds s"
[ "$seconds" != 0 ] || budget=-runs=500 said=tried
mkdir -p "$dir/found"

# fuzz FUZZER: one line, and the end of the log where it is broken.
fuzz()
{
    local fuzzer=$1 name corpus log
    name=$(basename "$fuzzer")
    corpus=$dir/corpus/$name
    mkdir -p "$corpus"
    log=$dir/$name.log
    if UBSAN_OPTIONS=print_stacktrace=1 "$fuzzer" "$budget" -timeout=5 \
        -rss_limit_mb=2048 -max_len=16384 -artifact_prefix="$dir"/found/ \
        -print_final_stats=1 "$corpus" "tests/fuzz/corpus/${name#fuzz_}" >"$log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs $said, none broke it"
    else
        printf '%s: FAILED\n%s\n' "$name" "$(tail -30 "$log")"
        return 1
    fi
}
export dir budget said
export -f fuzz
printf '%s\n' "${fuzzers[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
