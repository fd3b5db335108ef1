/*
 * tests/bench/mpi.c - OpenMPI's all-reduce as a peer. Its processes are started anew for each
 * number of ranks, and are gone while Weft is measured: waiting ones would keep the cores busy.
 *
 * The library is loaded at run time and called by its binary interface, in which communicators,
 * types and operations are the addresses of objects.
 */
#include "tests/bench/mpi.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 9, ARGUMENTS = 24 };

static bench_mpi_library mpi;

bool bench_mpi_load(bench_mpi_library *l)
{
    static const char *const names[] = {"MPI_Init_thread",
                                        "MPI_Finalize",
                                        "MPI_Comm_rank",
                                        "MPI_Comm_size",
                                        "MPI_Barrier",
                                        "MPI_Allreduce",
                                        "MPI_Reduce_scatter_block",
                                        "MPI_Allgather"};
    void *functions[] = {&l->init,    &l->finalize,   &l->rank,           &l->size,
                         &l->barrier, &l->all_reduce, &l->reduce_scatter, &l->all_gather};
    void *library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);

    if (!library)
        return false;
    for (int i = 0; i < 8; i++) {
        void *found = dlsym(library, names[i]);

        if (!found)
            return false;
        memcpy(functions[i], &found, sizeof found);
    }
    l->world = dlsym(library, "ompi_mpi_comm_world");
    l->type = dlsym(library, "ompi_mpi_float");
    l->sum = dlsym(library, "ompi_mpi_op_sum");
    return l->world && l->type && l->sum;
}

/* Seconds of one all-reduce: the median of samples that are long enough to be timed. */
static double time_size(const float *in, float *out, size_t bytes)
{
    size_t enough = (size_t)8 << 20;
    int repeat = bytes < enough ? (int)(enough / bytes < 500 ? enough / bytes : 500) : 1;
    int count = (int)(bytes / sizeof *in);
    double times[ROUNDS];

    for (int round = -1; round < ROUNDS; round++) {
        double start;

        mpi.barrier(mpi.world);
        start = bench_now(0);
        for (int i = 0; i < repeat; i++)
            mpi.all_reduce(in, out, count, mpi.type, mpi.sum, mpi.world);
        times[round < 0 ? 0 : round] = (bench_now(0) - start) / repeat;
    }
    return bench_median(times, ROUNDS);
}

wf_status bench_mpi_child(int n_sizes, const size_t *sizes, wf_error *error)
{
    size_t most = 0;
    float *in, *out;
    int rank = 0, level;

    for (int i = 0; i < n_sizes; i++)
        most = sizes[i] > most ? sizes[i] : most;
    if (!bench_mpi_load(&mpi) || mpi.init(NULL, NULL, 0, &level) != 0)
        return wf_error_set(error, WF_EUNSUPPORTED, "libmpi.so.40 is not here: %s", dlerror());
    mpi.rank(mpi.world, &rank);
    in = bench_memory_new(most, error);
    out = in ? bench_memory_new(most, error) : NULL;
    for (int i = 0; out && i < n_sizes; i++) {
        double seconds = time_size(in, out, sizes[i]);

        if (rank == 0)
            printf("all_reduce %zu %.9f\n", sizes[i], seconds);
        fflush(stdout);
    }
    free(in);
    free(out);
    mpi.finalize();
    return error->code;
}

static void exec_child(const bench_options *o, int ranks, const char *sizes)
{
    char self[4096] = "", count[16];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *arguments[ARGUMENTS] = {"mpirun",
                                        "--oversubscribe",
                                        "--bind-to",
                                        "none",
                                        "--mca",
                                        "mpi_yield_when_idle",
                                        "1",
                                        "-np",
                                        count,
                                        length > 0 ? self : o->self,
                                        "comm",
                                        "--mpi-child",
                                        "--sizes",
                                        sizes,
                                        o->processes ? "--processes" : NULL,
                                        NULL};

    snprintf(count, sizeof count, "%d", ranks);
    if (geteuid() == 0) { /* OpenMPI refuses root otherwise */
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

FILE *bench_mpi_start(const bench_options *o, int ranks, const char *sizes, pid_t *child)
{
    int ends[2];

    fflush(stdout);
    if (pipe(ends) != 0)
        return NULL;
    *child = fork();
    if (*child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(STDIN_FILENO); /* mpirun is not to read it */
        open("/dev/null", O_RDONLY);
        close(ends[0]);
        close(ends[1]);
        exec_child(o, ranks, sizes);
    }
    close(ends[1]);
    if (*child < 0) {
        close(ends[0]);
        return NULL;
    }
    return fdopen(ends[0], "r");
}

void bench_mpi_end(bench_report *report, FILE *output, pid_t child, int ranks, bool complete)
{
    int status = 0;

    if (output)
        fclose(output);
    if (child > 0)
        waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        bench_note(report, "OpenMPI is not here (mpirun)");
    else if (!complete)
        bench_note(report, "mpirun failed with %d ranks, status %d", ranks,
                   WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

void bench_mpi(const bench_options *o, bench_report *report, int ranks, int n_sizes,
               const size_t *sizes, double *seconds)
{
    char list[1024] = "", line[256];
    int found = 0;
    pid_t child = -1;
    FILE *output;

    for (int i = 0; i < n_sizes; i++) {
        size_t used = strlen(list);

        seconds[i] = NAN;
        snprintf(list + used, sizeof list - used, "%s%zu", i ? "," : "", sizes[i]);
    }
    output = bench_mpi_start(o, ranks, list, &child);
    while (output && fgets(line, sizeof line, output)) {
        double time;
        size_t bytes;

        if (sscanf(line, "all_reduce %zu %lf", &bytes, &time) != 2)
            continue;
        for (int i = 0; i < n_sizes; i++) {
            if (sizes[i] == bytes) {
                seconds[i] = time;
                found++;
            }
        }
    }
    bench_mpi_end(report, output, child, ranks, found == n_sizes);
}
