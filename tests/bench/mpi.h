/* tests/bench/mpi.h - OpenMPI's all-reduce as a peer, where its mpirun is installed. */
#ifndef WF_TESTS_BENCH_MPI_H
#define WF_TESTS_BENCH_MPI_H

#include "tests/bench/bench.h"
#include <stdio.h>
#include <sys/types.h>

/* OpenMPI by its binary interface: no program of Weft is linked to it. */
typedef struct bench_mpi_library {
    int (*init)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*rank)(void *comm, int *rank);
    int (*size)(void *comm, int *size);
    int (*barrier)(void *comm);
    int (*all_reduce)(const void *in, void *out, int count, void *type, void *op, void *comm);
    int (*reduce_scatter)(const void *in, void *out, int count, void *type, void *op,
                          void *comm);
    int (*all_gather)(const void *in, int count, void *type, void *out, int out_count,
                      void *out_type, void *comm);
    void *world, *type, *sum;
} bench_mpi_library;

bool bench_mpi_load(bench_mpi_library *library);

/* Start this program anew under mpirun, with --mpi-child; its output goes to the file returned,
   NULL where it can't be started. And wait for its end, which is noted where it is not well. */
FILE *bench_mpi_start(const bench_options *o, int ranks, const char *sizes, pid_t *child);
void bench_mpi_end(bench_report *report, FILE *output, pid_t child, int ranks, bool complete);

/* bench comm --processes: a row per collective and size. And what its children do. */
void bench_mpi_race(const bench_options *o, bench_report *report, int ranks, int n_sizes,
                    const size_t *sizes);
wf_status bench_mpi_race_child(int n_sizes, const size_t *sizes, const wf_reduce_ops *reduce,
                               wf_error *error);

/*
 * Measures median seconds of an all-reduce of each size (bytes) over a number of processes,
 * started by mpirun as copies of this program; NAN, and a note, where there is none.
 */
void bench_mpi(const bench_options *o, bench_report *report, int ranks, int n_sizes,
               const size_t *sizes, double *seconds);

/* Runs such a copy: `bench comm --mpi-child --sizes LIST`. */
wf_status bench_mpi_child(int n_sizes, const size_t *sizes, wf_error *error);

#endif
