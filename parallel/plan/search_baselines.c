/*
 * parallel/plan/search_baselines.c - the three simple layouts that the search is compared with:
 * a pipeline, data parallelism with a copy on each device, and shards.
 */
#include "parallel/plan/search_internal.h"
#include "parallel/report/layout.h"
#include <inttypes.h>
#include <string.h>

typedef enum way { NAIVE, DDP, FSDP, WAYS } way;

static const char *const names[WAYS] = {"naive model parallelism", "DDP (no_shard)",
                                        "FSDP (full_shard)"};

static int index_of(const char *const *list, const char *word)
{
    int i = 0;

    while (list[i] && strcmp(list[i], word) != 0)
        i++;
    return i;
}

/* False: these ranks cannot do it that way. */
static bool make(const wf_search *s, way w, int64_t micro, wf_search_candidate *c)
{
    const wf_plan_request *o = s->options;
    int64_t dp = w == NAIVE ? 1 : s->ranks, stages = w == NAIVE ? s->ranks : 1;

    *c = (wf_search_candidate){
        .pp = (int32_t)stages,
        .tp = 1,
        .shard = (int32_t)dp,
        .replicate = 1,
        .micro = (int32_t)micro,
        .per_rank = 1,
        .schedule = (int8_t)wf_pipe_schedule_find("naive"),
        .strategy = (int8_t)wf_strategy_index(w == FSDP ? "full_shard" : "no_shard"),
        .dtype = (int8_t)wf_dtype_find(o->dtype)};
    if (s->n_top && !o->given[WF_SETTING_dtype])
        c->dtype = s->top[0].candidate.dtype;
    if (s->machine.rate[c->dtype] <= 0)
        c->dtype = WF_BF16;
    if (o->given[WF_SETTING_recompute])
        c->recompute = (int8_t)index_of(wf_search_recompute, o->recompute);
    c->micros = (int32_t)(o->global_batch_size / (dp * micro));
    if (w == FSDP && c->micros > 1)
        c->accumulate = (int8_t)index_of(wf_search_accumulate, "reduced");
    return stages <= s->model.layers + 1 && o->global_batch_size % (dp * micro) == 0;
}

/* The largest micro-batch whose plan fits, of 1, 2, 4, ..; 0: none. */
static int64_t find_largest(wf_search *s, way w, wf_search_found *found)
{
    int64_t largest = 0;

    for (int64_t micro = 1; micro <= s->options->global_batch_size; micro *= 2) {
        wf_search_candidate c;
        wf_search_found one;

        if (!make(s, w, micro, &c))
            break;
        if (!wf_search_simulate(s, &c, WF_SIM_PATH, &one))
            break;
        if (!wf_search_plan(s, &one)) {
            found->refused = one.refused;
            break;
        }
        *found = one;
        largest = micro;
    }
    return largest;
}

/* Part of the step in which a device computes; of a pipeline of all devices. */
static double busy(const wf_search_found *f)
{
    const wf_sim_cost *p = &f->path;

    if (f->candidate.pp > 1)
        return 1 - f->bubble;
    return (p->of[WF_SIM_PRODUCTS] + p->of[WF_SIM_ATTENTION] + p->of[WF_SIM_ELEMENTS] +
            p->of[WF_SIM_LAUNCH]) /
           f->seconds;
}

static void print_way(wf_search *s, way w, int64_t largest, const wf_search_found *found,
                      FILE *out)
{
    char peak[32];
    wf_search_candidate c;

    if (!make(s, w, 1, &c))
        fprintf(out, "  %-24s not on %" PRId64 " ranks with this batch\n", names[w], s->ranks);
    else if (!largest)
        fprintf(out, "  %-24s %s\n", names[w], found->refused ? "is refused" : "does not fit");
    else
        fprintf(
            out,
            "  %-24s %9.4f s, devices compute %3.0f %% of it, micro-batches of up to %" PRId64
            " fit (%s)\n",
            names[w], found->seconds, 100 * busy(found), largest,
            wf_size_text(peak, (double)found->peak));
}

void wf_search_print_baselines(wf_search *s, FILE *out)
{
    wf_search_found found[WAYS] = {0};
    int64_t largest[WAYS];

    if (s->ranks < 2 || s->options->job.mesh.axes)
        return;
    fputs("simple layouts, with their largest micro-batch:\n", out);
    for (int w = 0; w < WAYS; w++) {
        largest[w] = find_largest(s, (way)w, &found[w]);
        print_way(s, (way)w, largest[w], &found[w], out);
    }
    if (largest[DDP])
        fputs("  the model fits on one device: data parallelism is enough\n\n", out);
    else if (largest[FSDP])
        fputs("  the model does not fit on one device, and its shards do: FSDP is enough\n\n",
              out);
    else if (found[DDP].refused || found[FSDP].refused)
        fputc('\n', out);
    else
        fputs("  neither copies nor shards fit: it takes tensor or pipeline parallelism, or "
              "recomputation\n\n",
              out);
}
