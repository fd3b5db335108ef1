#!/bin/sh
# test_digits.sh DIGITS DIGITS.TXT [STEPS] - digits.c reads over 95 % of unseen digits, with the same digest on three meshes; with
# fewer steps than its own the digests alone are looked at.
set -eu
program=$1 data=$2 steps=${3:+--steps $3}

# shellcheck disable=SC2086 # the flags are words
one=$("$program" --data "$data" $steps | tail -2)
echo "$one"
[ -n "$steps" ] || [ "${one%%.*}" -ge 95 ] || { echo "digits: too few are read right" >&2; exit 1; }
for mesh in "--dp 2 --tp 2" "--tp 4"; do
    # shellcheck disable=SC2086 # the flags are words
    [ "$("$program" --data "$data" $mesh $steps | tail -2)" = "$one" ] || { echo "digits: another digest on $mesh" >&2; exit 1; }
done
