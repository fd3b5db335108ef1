#!/bin/bash
# test_schedule.sh SCHEDULE - schedule as a user meets it: tables that are printed, edited and given back, what
# is proved of them, their pictures, and what is refused.
#
# ctest: arguments schedule, timeout 60
set -uo pipefail

program=$1
# shellcheck source=tests/apps/tool_cases.sh
. "$(dirname "$0")/tool_cases.sh"

tool "help" 0 --help
says out '^Usage: schedule ' 'schedule show 1f1b --pp 4'
tool "list" 0 list
says out '^dualpipe-v  ' '^naive  '

tool "a table" 0 gen 1f1b --pp 2 --micro 3
says out '^weft-schedule 1$' '^stages 2  micro 3  place 0 1$' '^0: F0\.0 F0\.1 B0\.0 F0\.2 B0\.1 B0\.2$'
cp out mine.sched
tool "the table given back" 0 check mine.sched
says out '^schedule mine.sched: 2 ranks, 2 stages, 3 micro-batches, 12 actions, 6 messages, at most 1 in flight; no deadlock; peak 2 activations$' \
    '^proved in [0-9.]+ s$' 'at least 1 without a deadlock, 1 without loss of time'
tool "two buffers" 0 check zb-v --pp 8 --micro 32
says out '1536 actions, 896 messages, at most 2 in flight; no deadlock; peak 16 activations'
tool "one is too few" 1 check zb-v --pp 8 --micro 32 --depth 1
says err '^schedule: deadlock: rank [0-9]+ waits in SENT_B9\.1 for RECVD_B8\.1 of rank 7, which waits after'
tool "lowered" 0 lower zb-h1 --pp 2 --micro 4 --group 2 --resident 1 --tied --recompute
says out '^lowered  group 2  resident 1  frozen 0  tied$' 'RECVD_F1\.0' 'REDUCE0\.2-3' 'TIE NORM OPT0$' 'R0\.0'
cp out lowered.sched
tool "a lowered table given back" 0 check lowered.sched
says out '32 actions, 8 messages, at most 1 in flight'
sed -i 's/ REDUCED0\.0-1//' lowered.sched
tool "one action less" 1 check lowered.sched
says err 'rank 0, action [0-9]+ of [0-9]+, REDUCE0\.2-3: the one before has not ended: REDUCED0\.0 is missing'

tool "a picture" 0 show gpipe --pp 2 --micro 2 --svg picture.svg
says out '^   0  F0 F1 \.  \.  \.  B0    B1   ' '^   1  \.  F0 F1 B0    B1    \. *' \
    '^makespan 9; bubble 0\.3333 of the step, 0\.3333 of a rank.s span$'
says picture.svg '^<svg ' '<title>B1\.1</title>' '>rank 1<' 'makespan 9; bubble 0\.3333 of the step' '^</svg>$'
[ "$(grep -c '<title>' picture.svg)" = 8 ] || says picture.svg '8 actions'
tool "with messages and costs" 0 show zb-v --pp 4 --micro 8 --costs 100,115,85,5 --messages
says out '^   3  ' 'of the step'
tool "overlapping" 0 show dualpipe-v --pp 2 --micro 4 --blocks --svg picture.svg
[ "$(grep -c '<title>' picture.svg)" -gt 16 ] || says picture.svg 'more than 16 actions'

tool "no such schedule" 1 check zb-h3
says err 'no schedule is called zb-h3; there are: 1f1b interleaved'
tool "not for this shape" 1 gen dualpipe-v --pp 4 --micro 7
says err 'dualpipe-v needs twice as many micro-batches as ranks: 7 are fewer than 8'
echo 'weft-schedule 1' >bad.sched
echo 'stages 1 micro 1 place 0' >>bad.sched
echo '0: F0.0 B0.7' >>bad.sched
tool "a mistake in a file" 3 check bad.sched
says err '^schedule: bad.sched:3:9: rank 0: B0\.7, but micro-batches go from 0 to 0'
printf '0F0,,0B0\n,1F0,1B0\n' >order.csv
tool "a table of PyTorch" 0 check order.csv
says out '^schedule order.csv: 2 ranks, 2 stages, 1 micro-batches, 4 actions'
printf '0F0,0B0\n1B0,1F0\n' >order.csv
tool "one that is out of order" 1 check order.csv
says err 'rank 1, action 0 of 2, B1\.0: it needs F1\.0 before it'
tool "sizes of a file" 2 check mine.sched --pp 2
says err 'is a file, which says its ranks'
tool "how to lower what is not" 2 gen 1f1b --group 2
says err '^schedule: --group says how a table is lowered: use it with check, lower or show --messages'
tool "the same, drawn" 2 show 1f1b --tied
tool "how to lower what is already" 1 check lowered.sched --tied
says err 'lowered.sched is lowered already: leave --tied out'
tool "times that nothing reads" 2 lower 1f1b --depth 2 --costs 100,100,100,5
says err '^schedule: --costs is for times: use it with show, or with check and lower and --depth auto'
tool "gathers that nothing limits" 2 lower 1f1b --prefetch 2
tool "a cap of another schedule" 2 gen 1f1b --cap 3
tool "a cap" 0 gen list --cap 3
tool "ranks of a list" 2 list --pp 2
tool "a picture of a table" 2 gen 1f1b --svg picture.svg
tool "no command" 2
tool "no such command" 2 draw 1f1b
tool "no such flag" 2 show 1f1b --ranks 2
tool "not a number" 2 show 1f1b --pp two
tool "half the costs" 2 show 1f1b --costs 1,2
tool "a picture nowhere" 3 show 1f1b --svg nowhere/a.svg
tool "a folder" 3 check .
finish
