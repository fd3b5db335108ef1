/*
 * tests/differential/trial.c - cases in children of their own.
 *
 * A child draws some programs, runs them on one rank, and then on a world of threads that runs
 * all of them. It ends with the first case that fails; its parent, which reads the board that
 * they share, kills it where a case takes too long, tries to make the case smaller, and
 * continues after it.
 */
#include "tests/differential/trial.h"
#include "tests/clock.h"
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PER_WORLD = 8, LIMIT = UNDER_SANITIZER ? 60 : 10 /* seconds between two steps */ };

static void say(board *b, const char *format, va_list args)
{
    if (b->n_notes < NOTES)
        b->n_notes +=
            (size_t)vsnprintf(b->notes + b->n_notes, NOTES - b->n_notes, format, args);
}

void note(board *b, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(b, format, args);
    va_end(args);
}

void fail_case(board *b, const char *format, ...)
{
    va_list args;
    int none = 0;

    if (!atomic_compare_exchange_strong(&b->failed, &none, 1))
        return;
    va_start(args, format);
    vsnprintf(b->why, sizeof b->why, format, args);
    va_end(args);
}

static void note_world(board *b, const world *w, const program *p)
{
    b->n_notes = 0;
    note(b, "  mesh");
    for (int a = 0; a < w->n_axes; a++)
        note(b, " %s=%d%s", mesh_axis_names[a], w->size[a],
             a == w->fine ? " (cut finely)" : "");
    note(b, "%s, %d threads a rank, results stored as %s, %s, gradients %s\n",
         w->exact_off ? ", exact off" : "", w->threads, wf_dtype_name(p->storage),
         p->strict ? "a border before every operand" : "some borders",
         p->deferred ? "deferred" : "at once");
}

/* The programs of one world. */
typedef struct batch {
    const selection *what;
    const world *w;
    board *b;
    int n;
    program *p[PER_WORLD];
} batch;

static wf_status run_batch(wf_rank *rank, void *arg)
{
    const batch *all = arg;
    wf_context_options options = {
        .rank = rank->index, .exact_off = all->w->exact_off, .seed = 11};
    wf_device *device = wf_cpu_device(all->w->threads, &rank->error);
    wf_context *ctx = device ? wf_context_open(device, &options, &rank->error) : NULL;
    wf_axis axes[AXES];
    wf_mesh *mesh = NULL;
    wf_status status;

    for (int i = 0; i < all->w->n_axes; i++)
        axes[i] = (wf_axis){mesh_axis_names[i], all->w->size[i]};
    if (ctx)
        mesh = wf_mesh_open(ctx, rank->world, all->w->n_axes, axes, &rank->error);
    status = mesh ? WF_OK : rank->error.code;
    if (mesh && all->w->fine >= 0)
        wf_mesh_cut_finely(mesh, all->w->fine);
    for (int i = 0; i < all->n && status == WF_OK; i++) {
        if (rank->index == 0) {
            atomic_store(&all->b->number, all->p[i]->number);
            note_world(all->b, all->w, all->p[i]);
        }
        status = run_program(rank, mesh, all->p[i], all->b);
    }
    if (ctx)
        status = came_to(rank, ctx, status);
    wf_mesh_close(mesh);
    wf_context_close(ctx);
    return status;
}

static bool draw_batch(batch *all, int64_t first, int64_t end)
{
    wf_context_options options = {.exact_off = all->w->exact_off, .seed = 11};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), &options, &error);
    bool good = ctx != NULL;

    for (int64_t i = first; i < end && good; i++) {
        program *p = malloc(sizeof *p);

        all->b->n_notes = 0;
        atomic_store(&all->b->number, i);
        good = p && generate(ctx, all->what, all->w, i, p, all->b);
        all->p[all->n++] = p;
    }
    if (!good)
        fail_case(all->b, "one rank: %s", ctx ? wf_context_error(ctx)->text : error.text);
    wf_context_close(ctx);
    return good;
}

/* The cases [first, end), which share a mesh. */
static void run_world(const selection *what, board *b, int64_t first, int64_t end)
{
    world w;
    batch all = {.what = what, .w = &w, .b = b};
    wf_error error = {WF_OK, ""};

    draw_world(what, first / PER_WORLD, &w);
    if (draw_batch(&all, first, end)) {
        wf_launch_options options = {.ranks = w.ranks, .launcher = "threads"};

        atomic_store(&b->on_mesh, 1);
        if (wf_launch(&options, run_batch, &all, &error) != WF_OK)
            fail_case(b, "%s", error.text);
        atomic_store(&b->on_mesh, 0);
    }
    for (int i = 0; i < all.n; i++) {
        forget_program(all.p[i]);
        free(all.p[i]);
    }
}

static void run_child(const selection *what, board *b)
{
    int64_t end = what->first + what->count;

    for (int64_t i = what->first, next; i < end && !b->failed; i = next) {
        next = (i / PER_WORLD + 1) * PER_WORLD;
        next = next < end ? next : end;
        run_world(what, b, i, next);
    }
}

/* Waits for a child; one that does not go on is ended. */
static int watch_child(pid_t child, board *b)
{
    int status, beat = -1;
    double since = wf_test_clock(CLOCK_MONOTONIC);

    while (waitpid(child, &status, WNOHANG) == 0) {
        if (atomic_load(&b->beat) != beat) {
            beat = atomic_load(&b->beat);
            since = wf_test_clock(CLOCK_MONOTONIC);
        } else if (wf_test_clock(CLOCK_MONOTONIC) - since > LIMIT) {
            fail_case(b, "hangs: no step for %d s", LIMIT);
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return status;
}

/* True where all these cases are well; else the board says what is wrong with which. */
static bool cases_are_well(const selection *what, board *b)
{
    int status;
    pid_t child;

    atomic_store(&b->failed, 0);
    b->why[0] = '\0';
    atomic_store(&b->number, what->first);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        run_child(what, b);
        exit(b->failed ? 1 : 0);
    }
    if (child < 0) {
        fail_case(b, "no child could be started");
        return false;
    }
    status = watch_child(child, b);
    if (WIFSIGNALED(status))
        fail_case(b, "ends by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) > 1)
        fail_case(b, "ends with status %d", WEXITSTATUS(status));
    return !b->failed;
}

/* Makes the case smaller where it still fails; returns true then. */
static bool smaller(campaign *c, selection *now_is, selection next)
{
    if (cases_are_well(&next, c->b))
        return false;
    *now_is = next;
    return true;
}

/* Rounds are left out from the end on, then sizes are cut down. */
static selection shrink(campaign *c, selection s)
{
    static const int sizes[] = {2, 3, 5, 8};
    selection next;

    for (int round = ROUNDS - 1; round >= 0; round--) {
        next = s;
        next.drop |= 1u << round;
        smaller(c, &s, next);
    }
    for (int i = 0; i < 4; i++) {
        next = s;
        next.largest = sizes[i];
        if (smaller(c, &s, next))
            break;
    }
    for (int i = 0; i < 3; i++) {
        next = s;
        next.largest_axis = sizes[i];
        if (smaller(c, &s, next))
            break;
    }
    return s;
}

static void print_case(const campaign *c, const selection *s)
{
    printf("case %" PRId64 " of seed %" PRIu64 ": %s\n%s", s->first, s->seed, c->b->why,
           c->b->notes);
    printf("  again: test_differential --seed %" PRIu64 " --case %" PRId64, s->seed, s->first);
    if (s->drop)
        printf(" --drop %" PRIx64, s->drop);
    if (s->largest)
        printf(" --largest %d", s->largest);
    if (s->largest_axis)
        printf(" --largest-axis %d", s->largest_axis);
    printf("\n\n");
    fflush(stdout);
}

/* The case at which a campaign ended. Where it is well alone, it fails behind others only. */
static void look_at(campaign *c, int64_t number)
{
    selection alone = c->what;
    char why[sizeof c->b->why];

    memcpy(why, c->b->why, sizeof why);
    alone.first = number;
    alone.count = 1;
    c->failures++;
    if (!c->shrink) {
        print_case(c, &alone);
        return;
    }
    if (cases_are_well(&alone, c->b)) {
        printf("case %" PRId64 " of seed %" PRIu64 " fails behind others, not alone: %s\n\n",
               number, alone.seed, why);
        return;
    }
    alone = shrink(c, alone);
    if (!cases_are_well(&alone, c->b))
        print_case(c, &alone);
    else
        printf("case %" PRId64 " of seed %" PRIu64 " fails at times: %s\n\n", number,
               alone.seed, why);
}

bool run_campaign(campaign *c)
{
    int64_t end = c->what.first + c->what.count;
    selection rest = c->what;

    c->b = mmap(NULL, sizeof *c->b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c->b == MAP_FAILED)
        return false;
    while (rest.first < end) {
        int64_t number;

        rest.count = end - rest.first;
        if (cases_are_well(&rest, c->b)) {
            if (c->show)
                printf("%s", c->b->notes);
            break;
        }
        number = atomic_load(&c->b->number);
        number = number < rest.first ? rest.first : number;
        look_at(c, number);
        rest.first = number + 1;
    }
    return true;
}
