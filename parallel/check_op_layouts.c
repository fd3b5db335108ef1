/*
 * parallel/check_op_layouts.c - what layouts make of an op, on a small mesh of two axes, ranks
 * as threads: the bits of one rank, or a text that says why not.
 *
 * Every way to lay the operands out on the first axis alone is tried. What is refused there is
 * refused with a second axis too, so of those that are left all pairs are tried on both.
 */
#include "kernels/devices.h"
#include "mesh/array/mesh.h"
#include "mesh/cluster/launch.h"
#include "parallel/check_op_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Workers of each rank here; the one rank that all are compared with has one. */
enum { THREADS = 2, ROOM_FOR_MORE = 40 };

/* The effect of an axis on each operand: 0 none, d + 1 splits dim d, ndim + 1 leaves it
   partial. */
typedef struct combination {
    unsigned char choice[WF_MAX_INPUTS];
} combination;

/* The check on one rank. */
typedef struct layouts {
    const wf_op_check *check;
    const wf_op_results *one;
    wf_rank *rank;
    wf_context *ctx;
    wf_mesh *mesh;
    combination *accepted; /* on the first axis */
    int64_t n_accepted;
    wf_op_check_report found;
    size_t listed;    /* bytes of found.refusals that are lines */
    int64_t unlisted; /* refusals that there was no room for */
} layouts;

/* The argument of all ranks. */
typedef struct job {
    const wf_op_check *check;
    const wf_op_results *one;
    wf_op_check_report *report;
} job;

static int choices(const wf_op_check *c, int i)
{
    bool partial = (c->op->flags & WF_OP_LINEAR) && i == c->n_in - 1;

    return 1 + c->in[i].ndim + partial;
}

/* The combination that comes next; false after the last. */
static bool next(const wf_op_check *c, combination *at)
{
    for (int i = 0; i < c->n_in; i++) {
        if (++at->choice[i] < choices(c, i))
            return true;
        at->choice[i] = 0;
    }
    return false;
}

static const wf_layout *laid_out(const layouts *l, int i, const wf_layout *from, int choice,
                                 int axis)
{
    if (choice == 0)
        return from;
    if (choice <= l->check->in[i].ndim)
        return wf_layout_split(l->mesh, from, choice - 1, axis);
    return wf_layout_partial(l->mesh, from, axis, WF_REDUCE_SUM);
}

/* The layouts of a run's operands, in words. */
static const char *print_layouts(const layouts *l, const wf_op_run *run, char *text,
                                 size_t size)
{
    size_t n = 0;

    *text = 0;
    for (int i = 0; i < l->check->n_in && n < size; i++) {
        char layout[96];

        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "",
                              wf_layout_print(run->layout[i], layout, sizeof layout));
    }
    return text;
}

/* Reports a wrong run, with its layouts. */
static wf_status blame(const layouts *l, const wf_op_run *run, const char *what)
{
    char text[384];

    print_layouts(l, run, text, sizeof text);
    return wf_error_set(&l->rank->error, WF_EINVAL, "%s with operands laid out as %s: %s",
                        l->check->op->name, text, what);
}

static bool equal(double a, double b, bool exact)
{
    return exact ? memcmp(&a, &b, sizeof a) == 0 : fabs(a - b) <= 2e-5 * (1 + fabs(b));
}

/* The first `results` of a run, outputs and then gradients, against those of one rank. */
static wf_status compare(layouts *l, const wf_op_run *run, const wf_op_results *r, int results)
{
    bool exact = !wf_context_inexact(l->ctx);
    char name[48], text[320];

    for (int k = 0; k < results; k++)
        for (int64_t i = 0; l->one->x[k] && i < l->one->n[k]; i++) {
            if (r->x[k] && r->n[k] == l->one->n[k] && equal(r->x[k][i], l->one->x[k][i], exact))
                continue;
            snprintf(
                text, sizeof text,
                "element %lld of %s is %.9g, but %.9g on one rank: does a kernel take "
                "what other ranks hold (a dim that the signature should mark by !), or sum "
                "in another order than that of the chunks (wf_chunk_cuts)?",
                (long long)i, wf_op_result_name(k, name),
                r->x[k] && i < r->n[k] ? r->x[k][i] : (double)NAN, l->one->x[k][i]);
            return blame(l, run, text);
        }
    return WF_OK;
}

static wf_status check_accepted(layouts *l, const wf_op_run *run, const wf_op_results *r)
{
    wf_status status = compare(l, run, r, WF_CHECK_RESULTS);

    if (status == WF_OK && wf_context_inexact(l->ctx))
        l->found.inexact++;
    else if (status == WF_OK)
        l->found.exact++;
    return status;
}

/* Add a line to the list of what was refused on one axis, or count what there is no room
   for. */
static void list(layouts *l, const wf_op_run *run, bool gradient, const char *why)
{
    char layout[256], line[640];
    size_t used = strlen(l->found.refusals), n;
    const char *said = strstr(why, ": "); /* after rank and module */

    print_layouts(l, run, layout, sizeof layout);
    n = (size_t)snprintf(line, sizeof line, "%s%s: %s\n", layout,
                         gradient ? ", its gradient" : "", said ? said + 2 : why);
    n = n < sizeof line ? n : sizeof line - 1;
    if (l->unlisted == 0 && used + n + ROOM_FOR_MORE < sizeof l->found.refusals) {
        memcpy(l->found.refusals + used, line, n + 1);
        l->listed = used + n;
    } else {
        l->unlisted++;
        snprintf(l->found.refusals + l->listed, sizeof l->found.refusals - l->listed,
                 "and %lld more\n", (long long)l->unlisted);
    }
}

/* Layouts may be refused; any other failure is one of the op. What the op accepts and its
   gradient does not has the outputs of one rank all the same. */
static wf_status check_refused(layouts *l, const wf_op_run *run, const wf_op_results *r,
                               bool one_axis)
{
    const wf_error *error = wf_context_error(l->ctx);
    bool gradient = r->n_outputs == l->check->n_out;
    wf_status status;

    if (error->code != WF_ELAYOUT)
        return blame(l, run, error->text);
    status = gradient ? compare(l, run, r, WF_MAX_OUTPUTS) : WF_OK;
    if (status != WF_OK)
        return status;
    if (one_axis)
        list(l, run, gradient, error->text);
    l->found.refused++;
    l->found.refused_gradients += gradient;
    wf_context_clear(l->ctx);
    return WF_OK;
}

/* Run the op with its operands laid out by both axes; whether that is legal goes into
   `accepted`. */
static wf_status try(layouts *l, const combination *first, const combination *second,
                     bool *accepted)
{
    static const combination none = {{0}};
    bool one_axis = memcmp(second, &none, sizeof none) == 0;
    wf_op_run run = {.check = l->check, .ctx = l->ctx, .gradients = true};
    wf_op_results r;
    wf_status status;

    for (int i = 0; i < l->check->n_in; i++)
        run.layout[i] =
            laid_out(l, i, laid_out(l, i, NULL, first->choice[i], 0), second->choice[i], 1);
    wf_context_inexact_clear(l->ctx);
    *accepted = wf_op_run_once(&run, &r) == WF_OK;
    status = *accepted ? check_accepted(l, &run, &r) : check_refused(l, &run, &r, one_axis);
    wf_op_results_forget(&r);
    return status;
}

static wf_status accept(layouts *l, const combination *c)
{
    combination *more = realloc(l->accepted, ((size_t)l->n_accepted + 1) * sizeof *l->accepted);

    if (!more)
        return wf_error_set(&l->rank->error, WF_ENOMEM, "no memory for the layouts of an op");
    l->accepted = more;
    l->accepted[l->n_accepted++] = *c;
    return WF_OK;
}

static wf_status try_all(layouts *l)
{
    const combination none = {{0}};
    combination c = none;
    wf_status status;
    bool accepted;

    do {
        status = try(l, &c, &none, &accepted);
        if (status == WF_OK && accepted)
            status = accept(l, &c);
    } while (status == WF_OK && next(l->check, &c));
    /* the first accepted one splits nothing; with it first, a pair is of the second axis
       alone */
    for (int64_t p = 0; p < l->n_accepted; p++)
        for (int64_t q = 1; q < l->n_accepted && status == WF_OK; q++)
            status = try(l, &l->accepted[p], &l->accepted[q], &accepted);
    return status;
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    const job *j = arg;
    const int *size = j->check->mesh;
    const wf_axis axes[] = {{"a", size[0] ? size[0] : 2}, {"b", size[1] ? size[1] : 2}};
    wf_device *device = wf_cpu_device(THREADS, &rank->error);
    wf_context_options options = {.rank = rank->index, .debug_handles = true};
    layouts l = {.check = j->check, .one = j->one, .rank = rank};
    wf_status status;

    l.ctx = device ? wf_context_open(device, &options, &rank->error) : NULL;
    l.mesh = l.ctx ? wf_mesh_open(l.ctx, rank->world, 2, axes, &rank->error) : NULL;
    status = l.mesh ? try_all(&l) : rank->error.code;
    if (rank->index == 0)
        *j->report = l.found;
    free(l.accepted);
    wf_mesh_close(l.mesh);
    wf_context_close(l.ctx);
    return status;
}

wf_status wf_check_op_layouts(const wf_op_check *check, const wf_op_results *one,
                              wf_op_check_report *report, wf_error *error)
{
    const int *size = check->mesh;
    wf_launch_options options = {.ranks = (size[0] ? size[0] : 2) * (size[1] ? size[1] : 2),
                                 .launcher = "threads"};
    wf_op_check_report found = {0};
    job j = {check, one, &found};
    wf_status status = wf_launch(&options, rank_main, &j, error);

    report->exact = found.exact;
    report->inexact = found.inexact;
    report->refused = found.refused;
    report->refused_gradients = found.refused_gradients;
    memcpy(report->refusals, found.refusals, sizeof report->refusals);
    return status;
}
