/* parallel/report/profile_report.c - the profiles of all ranks as one, beside what their device
   reaches; see profile.h. */
#include "kernels/ops.h"
#include "parallel/gather.h"
#include "parallel/parallel_internal.h"
#include "parallel/report/profile_internal.h"
#include "parallel/train/train_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 1 << 17, WIDTH = 512, FLOATS = 1 << 21, TIMES = 8, MOST_LINES = 64 };

static const double ENOUGH = 0.1; /* s: longer ones need not be repeated */

/* Returns the seconds that an op takes at best, of a product or a sum of two tensors. */
static double time_of(wf_context *ctx, wf_tensor *(*op)(wf_tensor *, wf_tensor *), wf_tensor *a,
                      wf_tensor *b)
{
    wf_device *device = wf_context_device(ctx);
    wf_error error = {WF_OK, ""};
    double best = 0, all = 0;

    for (int i = 0; i < TIMES && all < ENOUGH && wf_context_status(ctx) == WF_OK; i++) {
        int64_t begun;
        double took;

        wf_scope_open(ctx);
        begun = wf_trace_now();
        op(a, b);
        if (device->memory && device->memory->wait(device, &error) != WF_OK)
            wf_fail(ctx, error.code, "%s", error.text);
        took = 1e-9 * (double)(wf_trace_now() - begun);
        wf_scope_close(ctx);
        best = best == 0 || took < best ? took : best;
        all += took;
    }
    return best;
}

/* Fills in the type that the device computes in: no other is filled on a CPU. */
static wf_tensor *large(wf_context *ctx, wf_dtype dtype, int64_t rows, int64_t columns)
{
    wf_dtype computed = wf_context_device(ctx)->dtype;
    wf_tensor *t =
        wf_tensor_new(ctx, computed, 2, (wf_dim[]){wf_dim_width(rows), wf_dim_width(columns)},
                      NULL, WF_MEMORY_WORKSPACE);

    if (!t || wf_init_fill(t, 1) != WF_OK)
        return NULL;
    return dtype == computed ? t : wf_cast(t, dtype);
}

wf_profile_peak wf_profile_measure(wf_par *par)
{
    wf_context *ctx = par->ctx;
    wf_pool *pool = wf_context_pool(ctx);
    wf_dtype dtype = par->options.dtype, storage = wf_context_storage(ctx, dtype);
    double share = wf_context_model_share(ctx, 0);
    wf_memory_kind kind = wf_context_memory_kind(ctx, WF_MEMORY_WORKSPACE);
    wf_profile_peak peak = {0, 0};
    wf_memory_report before;
    wf_tensor *a, *b, *x;
    double product, sum;

    wf_pool_report(pool, &before);
    wf_scope_open(ctx);
    a = large(ctx, dtype, WIDTH, WIDTH);
    b = large(ctx, dtype, WIDTH, WIDTH);
    x = large(ctx, dtype, FLOATS / WIDTH, WIDTH);
    if (a && b && x) {
        product = time_of(ctx, wf_linear, a, b);
        sum = time_of(ctx, wf_add, x, x);
        if (product > 0 && sum > 0)
            peak = (wf_profile_peak){2.0 * WIDTH * WIDTH * WIDTH / product,
                                     3 * (double)wf_tensor_bytes(x) / sum};
    }
    wf_scope_close(ctx);
    wf_context_memory_kind(ctx, kind);
    wf_context_storage(ctx, storage);
    wf_context_model_share(ctx, share);
    wf_pool_restore_peak(pool, &before);
    return peak;
}

/* The profiles of all ranks, on rank 0. */
typedef struct merged {
    wf_profile *all;
    wf_profile_sums *of; /* [ranks] */
    wf_profile_peak peak;
    int ranks;
} merged;

/* The head of what a rank sends; rows follow. */
typedef struct head {
    wf_profile_sums sums;
    wf_profile_peak peak;
    int64_t rows;
} head;

static void take(void *arg, wf_par *par, int from, const char *data, size_t bytes)
{
    wf_error error = {WF_OK, ""};
    merged *m = arg;
    head h;

    (void)bytes;
    memcpy(&h, data, sizeof h);
    m->of[from] = h.sums;
    m->all->steps += h.sums.steps;
    m->all->count += h.sums.count;
    m->all->device.launches += h.sums.launches;
    m->all->device.syncs += h.sums.syncs;
    m->all->device.waits += h.sums.late_waits;
    m->peak.flops += h.peak.flops / m->ranks;
    m->peak.bytes += h.peak.bytes / m->ranks;
    for (int64_t i = 0; i < h.rows && error.code == WF_OK; i++) {
        wf_profile_row row;

        memcpy(&row, data + sizeof h + (size_t)i * sizeof row, sizeof row);
        row.most_rank = from;
        if (wf_profile_put(m->all, &row, &error) != WF_OK)
            wf_fail(par->ctx, error.code, "%s", error.text);
    }
}

static void print_ranks(FILE *out, const merged *m)
{
    fprintf(out, "  %-6s %10s %8s %8s %8s %8s %8s %10s\n", "rank", "ms", "ops", "waits", "host",
            "launches", "neither", "GFLOP/s");
    for (int r = 0; r < m->ranks && r < MOST_LINES; r++) {
        const wf_profile_sums *s = &m->of[r];
        const int64_t part[] = {s->ops, s->waits, s->host, s->launch,
                                s->steps - s->ops - s->waits - s->host - s->launch};

        fprintf(out, "  %-6d %10.3f", r, (double)s->steps / 1e6);
        for (int k = 0; k < 5; k++)
            fprintf(out, " %6.1f %%",
                    s->steps ? 100 * (double)part[k] / (double)s->steps : 0.0);
        fprintf(out, " %10.2f\n", s->steps ? s->flops / (double)s->steps : 0.0);
    }
    if (m->ranks > MOST_LINES)
        fprintf(out, "  and %d ranks more\n", m->ranks - MOST_LINES);
    fprintf(
        out,
        "  peaks of a rank, measured by all at once: %.2f GFLOP/s of products, %.2f GB/s of "
        "sums (what stays in caches may be above)\n",
        m->peak.flops / 1e9, m->peak.bytes / 1e9);
}

/* Returns what a rank sends; NULL: no memory. */
static char *pack(const wf_profile *p, wf_profile_peak peak, size_t *bytes)
{
    const head h = {wf_profile_sum(p), peak, p->n};
    char *data;

    *bytes = sizeof h + (size_t)p->n * sizeof *p->row;
    data = malloc(*bytes);
    if (!data)
        return NULL;
    memcpy(data, &h, sizeof h);
    if (p->n)
        memcpy(data + sizeof h, p->row, (size_t)p->n * sizeof *p->row);
    return data;
}

wf_status wf_profile_report(const wf_profile *p, wf_par *par, FILE *out, int rows)
{
    wf_rank rank = {.index = wf_context_rank(par->ctx),
                    .size = wf_mesh_ranks(par->mesh),
                    .world = par->world};
    merged m = {.ranks = rank.size};
    wf_error error = {WF_OK, ""};
    size_t bytes = 0;
    char *mine = NULL;

    if (wf_context_status(par->ctx) == WF_OK)
        mine = pack(p, wf_profile_measure(par), &bytes);
    m.all = wf_profile_open(&error);
    m.of = calloc((size_t)m.ranks, sizeof *m.of);
    if (!mine || !m.all || !m.of)
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the profile of %d ranks", m.ranks);
    else
        wf_par_gather(&rank, par, mine, bytes, take, &m);
    if (wf_context_status(par->ctx) == WF_OK && rank.index == 0 && out) {
        m.all->ranks = m.ranks;
        wf_profile_print(out, m.all, &m.peak, rows);
        print_ranks(out, &m);
        fflush(out);
    }
    wf_profile_close(m.all);
    free(m.of);
    free(mine);
    return wf_context_status(par->ctx);
}

wf_status wf_profile_step(wf_par_trainer *t, int64_t step, const wf_par_data *data,
                          wf_par_step *result, FILE *out, int rows)
{
    wf_error error = {WF_OK, ""};
    wf_trace *trace;
    wf_profile *p;
    int64_t begun;

    if (!t)
        return WF_EINVAL; /* the reason is in the context of wf_par_trainer_open */
    trace = wf_trace_open(EVENTS, &error);
    p = trace ? wf_profile_open(&error) : NULL;
    if (p) {
        wf_trace_wait_for_ops(trace);
        wf_mesh_trace(t->par->mesh, trace);
    }
    begun = wf_trace_now();
    wf_par_train_step(t, step, data, result);
    if (p) {
        wf_mesh_trace(t->par->mesh, NULL);
        wf_profile_add(p, trace, 0, wf_trace_now() - begun, &error);
    }
    if (error.code != WF_OK)
        wf_fail(t->par->ctx, error.code, "%s", error.text);
    if (p && wf_context_status(t->par->ctx) == WF_OK)
        wf_profile_report(p, t->par, out, rows);
    wf_profile_close(p);
    wf_trace_close(trace);
    return wf_context_status(t->par->ctx);
}
