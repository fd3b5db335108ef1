#!/bin/bash
# test_digests.sh BUILD [--sanitized] - the same bits on six layouts of eight ranks: threads, a process
# per rank, and two threads in each of four processes. STEPS=20 for more than the few steps of CI;
# test_hosts.sh is for hosts.
#
# ctest: arguments build sanitized, heavy, lock launchers, cost 100
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"

by_threads
same "8 processes" "${mpirun[@]}" -np 8
same "4 processes x 2 threads" "${mpirun[@]}" -np 4
same "2 processes x 4 threads, transposed" "${mpirun[@]}" -np 2 -- transposed
finish
