/* apps/bench/mpi.h - OpenMPI's all-reduce as a peer, where its mpirun is installed. */
#ifndef WF_APPS_BENCH_MPI_H
#define WF_APPS_BENCH_MPI_H

#include "apps/bench/bench.h"

/*
 * Median seconds of an all-reduce of each size (bytes) over so many processes, started by mpirun
 * as copies of this program; NAN, and a note, where there is none.
 */
void bench_mpi(const bench_options *o, bench_report *report, int ranks, int n_sizes,
               const size_t *sizes, double *seconds);

/* What such a copy does: `bench comm --mpi-child --sizes LIST`. */
wf_status bench_mpi_child(int n_sizes, const size_t *sizes, wf_error *error);

#endif
