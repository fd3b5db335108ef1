/*
 * tests/parallel/test_main.c - a program's main: the ranks of a mesh run its function, and how
 * they end is one line on stderr and an exit status.
 *
 * ctest: builds address thread
 */
#include "parallel/main.h"
#include "core/op.h"
#include "mesh/comm/collective.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct program {
    atomic_int ran; /* a bit for each rank */
    int tp, dp;     /* as rank 0 found them */
    wf_status returns, fails;
} program;

static wf_status rank_work(wf_par *par, void *arg)
{
    program *p = arg;
    wf_context *ctx = wf_par_context(par);
    int rank = wf_context_rank(ctx);

    atomic_fetch_or(&p->ran, 1 << rank);
    if (rank == 0) {
        p->tp = wf_mesh_size(wf_par_mesh(par), wf_mesh_axis(wf_par_mesh(par), "tp"));
        p->dp = wf_par_dp(par);
    }
    if (p->fails != WF_OK && rank == wf_mesh_ranks(wf_par_mesh(par)) - 1)
        wf_fail(ctx, p->fails, "the cat sat on the last rank");
    return rank == 0 ? p->returns : WF_OK;
}

static char said[2048];

/* wf_par_main with these arguments, and what it prints on stderr. */
static int run_options(const wf_par_options *options, program *p, int argc, char **argv)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO), status;
    size_t n;

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    status = wf_par_main(argc, argv, options, rank_work, p);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    n = fread(said, 1, sizeof said - 1, file);
    said[n] = '\0';
    fclose(file);
    return status;
}

static int run_main(program *p, int argc, char **argv)
{
    return run_options(&(wf_par_options){.tp = 2, .dp = 2, .seed = 1}, p, argc, argv);
}

static void mesh_of_the_options(void)
{
    program p = {.ran = 0};

    CU_ASSERT_EQUAL(run_main(&p, 1, (char *[]){"cat"}), 0);
    CU_ASSERT_EQUAL(p.ran, 15);
    CU_ASSERT(p.tp == 2 && p.dp == 2);
    CU_ASSERT_STRING_EQUAL(said, "");
}

static void mesh_of_the_arguments(void)
{
    program p = {.ran = 0}, one = {.ran = 0};

    CU_ASSERT_EQUAL(run_main(&p, 5, (char *[]){"cat", "--dp", "1", "--tp", "3"}), 0);
    CU_ASSERT(p.ran == 7 && p.tp == 3 && p.dp == 1);
    CU_ASSERT_EQUAL(run_main(&one, 5, (char *[]){"cat", "--tp", "1", "--dp", "1"}), 0);
    CU_ASSERT(one.ran == 1 && one.tp == 1 && one.dp == 1);
}

/* Axes of the program's own have their sizes by their names, and there are no others. */
static void axes_of_ones_own(void)
{
    const wf_par_options own = {.axes = WF_AXES({"dp", 2}, {"tp", 1}, {"heads", 2})};
    const wf_axis many[] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1},
                            {"f", 1}, {"g", 1}, {"h", 1}, {"i", 1}, {NULL, 0}};
    program p = {.ran = 0};

    CU_ASSERT_EQUAL(run_options(&own, &p, 3, (char *[]){"cat", "--tp", "2"}), 0);
    CU_ASSERT(p.ran == 255 && p.tp == 2 && p.dp == 2);
    CU_ASSERT_EQUAL(own.axes[1].size, 1);
    CU_ASSERT_EQUAL(run_options(&own, &p, 3, (char *[]){"cat", "--pp", "2"}), 2);
    CU_ASSERT_PTR_NOT_NULL(strstr(said, "for each axis of the mesh, dp, tp, heads,"));
    CU_ASSERT_EQUAL(run_options(&(wf_par_options){.axes = many}, &p, 1, (char *[]){"cat"}), 2);
    CU_ASSERT_PTR_NOT_NULL(strstr(said, "a mesh of 9 axes: it has 8 at most"));
}

/* No rank starts. */
static void wrong_arguments(void)
{
    static const struct {
        const char *flag, *value, *says;
    } wrong[] = {
        {"--tp", "0", "cat: --tp 0: give it a number from 1 to 4096\n"},
        {"--dp", "two", "cat: --dp two: give it a number from 1 to 4096\n"},
        {"--tp", "", "cat: --tp : give it a number from 1 to 4096\n"},
        {"--tp", "2x", "cat: --tp 2x: give it a number"},
        {"--pp", "2",
         "cat: unknown argument --pp: there is --AXIS N for each axis of the mesh, tp, dp, and "
         "--stall-timeout SECONDS\n"},
        {"--stall-timeout", "-1", "cat: --stall-timeout -1: give it seconds from 0, which is"},
        {"--stall-timeout", "nan", "cat: --stall-timeout nan: give it seconds"},
        {"--stall-timeout", "", "cat: --stall-timeout : give it seconds"},
        {"--stall-timeout", "1s", "cat: --stall-timeout 1s: give it seconds"}};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program p = {.ran = 0};
        char *argv[] = {"/bin/cat", (char *)wrong[i].flag, (char *)wrong[i].value};

        CU_ASSERT_EQUAL(run_main(&p, 3, argv), 2);
        CU_ASSERT_EQUAL(p.ran, 0);
        CU_ASSERT(strncmp(said, wrong[i].says, strlen(wrong[i].says)) == 0);
    }
    CU_ASSERT_EQUAL(run_main(&(program){.ran = 0}, 2, (char *[]){"cat", "--dp"}), 2);
}

/* One line, with the rank, whatever all the others have seen of it. */
static void failures(void)
{
    static const struct {
        wf_status code;
        int exit;
    } ends[] = {{WF_EINVAL, 2}, {WF_EUNSUPPORTED, 2}, {WF_EIO, 3},      {WF_EDATA, 3},
                {WF_ELOST, 4},  {WF_EMISMATCH, 5},    {WF_ETIMEOUT, 6}, {WF_ENONFINITE, 7},
                {WF_ENOMEM, 1}, {WF_EINTERNAL, 1},    {WF_EDEVICE, 1}};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        program p = {.fails = ends[i].code};

        CU_ASSERT_EQUAL(run_main(&p, 1, (char *[]){"cat"}), ends[i].exit);
        CU_ASSERT_EQUAL(wf_par_exit_status(ends[i].code), ends[i].exit);
        CU_ASSERT(strncmp(said, "cat: rank 3: the cat sat on the last rank", 41) == 0);
        CU_ASSERT_PTR_EQUAL(strchr(said, '\n'), said + strlen(said) - 1);
    }
    CU_ASSERT_EQUAL(run_main(&(program){.returns = WF_EDATA}, 1, (char *[]){"cat"}), 3);
    CU_ASSERT_PTR_NOT_NULL(strstr(said, "rank 0: its function returned status"));
}

/* An op of a user's own, whose kernel writes where nothing is. */
static wf_status write_nowhere(const wf_call *call, void *workspace)
{
    volatile float *nowhere = (volatile float *)(uintptr_t)16;

    (void)workspace;
    if (wf_context_rank(call->ctx) == 2)
        *nowhere = 1;
    return WF_OK;
}

static const wf_kernel boom_kernel = {.run = write_nowhere};
static const wf_op boom = {
    .name = "boom", .signature = "...->...", .kernels = WF_KERNELS({"cpu", &boom_kernel})};

static wf_status crash_in_op(wf_par *par, void *arg)
{
    const wf_dim dims[] = {wf_dim_width(4)};
    wf_context *ctx = wf_par_context(par);
    wf_tensor *x = wf_tensor_new(ctx, WF_F32, 1, dims, NULL, WF_MEMORY_ACTIVATION);

    (void)arg;
    wf_comm_position(wf_mesh_world(wf_par_mesh(par)), 3, NULL);
    wf_context_enter(ctx, "block.1.mlp");
    wf_context_phase(ctx, "forward");
    wf_apply(&boom, NULL, 0, 1, x);
    return wf_context_status(ctx);
}

/* A rank whose code ends the process, though the others have not ended. */
static wf_status leave_with(wf_par *par, void *arg)
{
    wf_comm *world = wf_mesh_world(wf_par_mesh(par));
    wf_error error = {WF_OK, ""};

    if (wf_context_rank(wf_par_context(par)) == 2)
        exit(*(int *)arg);
    return wf_barrier(world, &error);
}

static wf_status leave_well(wf_par *par, void *arg)
{
    (void)arg;
    return leave_with(par, &(int){0});
}

static wf_status leave_badly(wf_par *par, void *arg)
{
    (void)arg;
    return leave_with(par, &(int){9});
}

typedef void ending(int status);

/* A rank whose code ends the process by the function of `arg`, with a status of success. */
static wf_status leave_by(wf_par *par, void *arg)
{
    if (wf_context_rank(wf_par_context(par)) == 2)
        (*(ending **)arg)(0);
    return wf_barrier(wf_mesh_world(wf_par_mesh(par)), &(wf_error){WF_OK, ""});
}

static wf_status leave_at_once(wf_par *par, void *arg)
{
    (void)arg;
    return leave_by(par, &(ending *){_exit});
}

static wf_status leave_by_c99(wf_par *par, void *arg)
{
    (void)arg;
    return leave_by(par, &(ending *){_Exit});
}

static wf_status leave_quickly(wf_par *par, void *arg)
{
    (void)arg;
    return leave_by(par, &(ending *){quick_exit});
}

/* A rank's child process ends as it likes, and so does a rank with a status of its own. */
static wf_status leave_by_child(wf_par *par, void *arg)
{
    int status = 0;
    pid_t child = wf_context_rank(wf_par_context(par)) == 2 ? fork() : 1;

    (void)arg;
    if (child == 0)
        _exit(0);
    if (child > 1 && waitpid(child, &status, 0) == child)
        _exit(WEXITSTATUS(status) + 7);
    return wf_barrier(wf_mesh_world(wf_par_mesh(par)), &(wf_error){WF_OK, ""});
}

/* A rank that neither goes on nor waits for another. */
static wf_status stall(wf_par *par, void *arg)
{
    (void)arg;
    if (wf_context_rank(wf_par_context(par)) == 1)
        for (;;)
            sleep(1);
    return wf_barrier(wf_mesh_world(wf_par_mesh(par)), &(wf_error){WF_OK, ""});
}

/* Runs a program in a process of its own; returns its exit status, below 0 a signal, with its
   output. */
static int run_child(wf_status (*function)(wf_par *, void *), int argc, char **argv)
{
    int out[2], status = 0;
    size_t used = 0;
    ssize_t n;
    pid_t child;

    CU_ASSERT_FATAL(pipe(out) == 0);
    child = fork();
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        _exit(wf_par_main(argc, argv, &(wf_par_options){.tp = 2, .dp = 2, .seed = 1}, function,
                          NULL));
    }
    close(out[1]);
    while ((n = read(out[0], said + used, sizeof said - 1 - used)) > 0)
        used += (size_t)n;
    said[used] = '\0';
    close(out[0]);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void says(const char *words)
{
    CU_ASSERT_PTR_NOT_NULL(strstr(said, words));
    if (!strstr(said, words))
        printf("\n    not said: %s\n    %s\n", words, said);
}

/* A crash in a user's code is reported with rank, step, op and module; a sanitizer reports it
   in its own words. */
static void crashes(void)
{
    if (UNDER_SANITIZER)
        return;
    CU_ASSERT_EQUAL(run_child(crash_in_op, 1, (char *[]){"cat"}), -SIGSEGV);
    says("rank 2: SIGSEGV, an invalid memory reference; it was on ");
    says(", in step 3, ");
    says("; in op boom of module block.1.mlp, forward\n");
}

static void exits(void)
{
    if (UNDER_SANITIZER)
        return;
    CU_ASSERT_EQUAL(run_child(leave_well, 1, (char *[]){"cat"}), 1);
    says("rank 2: exit was called, which ends all ranks: return from the function of the run");
    CU_ASSERT_EQUAL(run_child(leave_badly, 1, (char *[]){"cat"}), 9);
    says("rank 2: exit was called");
    CU_ASSERT_EQUAL(run_child(leave_at_once, 1, (char *[]){"cat"}), 1);
    says("rank 2: _exit was called, which ends all ranks: return from the function of the run");
    CU_ASSERT_EQUAL(run_child(leave_by_c99, 1, (char *[]){"cat"}), 1);
    says("rank 2: _exit was called");
    CU_ASSERT_EQUAL(run_child(leave_quickly, 1, (char *[]){"cat"}), 1);
    says("rank 2: quick_exit was called, which ends all ranks");
    CU_ASSERT_EQUAL(run_child(leave_by_child, 1, (char *[]){"cat"}), 7);
    CU_ASSERT_STRING_EQUAL(said, "");
}

static void stalls(void)
{
    CU_ASSERT_EQUAL(run_child(stall, 3, (char *[]){"cat", "--stall-timeout", "0.2"}), 6);
    says("rank 1: stalled");
    CU_ASSERT_EQUAL(run_child(stall, 3, (char *[]){"cat", "--stall-timeout", "1e-320"}), 2);
    says("would end any run, or none: give 0.1 s or more, up to 1e+06, or 0 for never");
    CU_ASSERT_EQUAL(run_child(stall, 3, (char *[]){"cat", "--stall-timeout", "inf"}), 2);
}

int main(void)
{
    static const wf_test tests[] = {{"the mesh of the options", mesh_of_the_options},
                                    {"the mesh of the arguments", mesh_of_the_arguments},
                                    {"axes of one's own", axes_of_ones_own},
                                    {"wrong arguments", wrong_arguments},
                                    {"failures", failures},
                                    {"crashes", crashes},
                                    {"exits", exits},
                                    {"stalls", stalls},
                                    {NULL, NULL}};

    return wf_test_main("main", tests);
}
