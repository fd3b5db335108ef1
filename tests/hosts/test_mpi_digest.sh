#!/bin/bash
# test_mpi_digest.sh BUILD [--sanitized] - the same digests over 20 steps, on six layouts of eight
# ranks: threads, a process per rank, and two threads in each of four processes; and what becomes of
# a run when one of its processes is killed.
set -uo pipefail
# shellcheck source=tests/hosts/common.sh
. "$(dirname "$0")/common.sh"
trap 'rm -rf "$work"' EXIT

train_alone
same "threads"
same "8 processes" "${mpirun[@]}" -np 8
same "4 processes x 2 threads" "${mpirun[@]}" -np 4
killed "8 processes" 5 mpirun --oversubscribe --bind-to none -np 8
finish
