#!/bin/bash
# test_campaign.sh BUILD kill|campaign - a few trials of scripts/proofs/campaign.py: 100 kills of runs that save, or faults by
# chance and a short soak; a campaign that is given more trials goes on with what is left.
#
# ctest: arguments build campaign, heavy
# ctest: test kill, arguments build kill, heavy, cost 50
set -uo pipefail

build=$(cd "$1" && pwd)
campaign=$(cd "$(dirname "$0")/../../scripts/proofs" && pwd)/campaign.py
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

# campaign WORD FLAG..: ends well, and its last line has the word.
campaign()
{
    local word=$1 problem=''
    shift
    python3 "$campaign" "$@" --jobs 2 --state state "$build" >out 2>err || problem="exit status $?;"
    tail -n 1 out | grep -q "$word" || problem+=" the last line lacks that"
    result "$1: $word" "$problem"
}

if [ "$2" = kill ]; then
    campaign "1 trials, 0 failed; 20 kills" kills --trials 1
    campaign "5 trials, 0 failed; 100 kills" kills --trials 5
else
    campaign "8 trials, 0 failed" faults --on threads --trials 8
    campaign "1000 steps, 0 ranks lost" soak --only 1 --steps 1000
fi
finish
