/* parallel/pipeline/lower.c - the passes one after the other; those that add no message. */
#include "core/numerics/tree.h"
#include "parallel/pipeline/lower_internal.h"
#include <stdlib.h>
#include <string.h>

wf_status wf_pipe_pass_recompute(const wf_pipe_table *in, const wf_pipe_lowering *how,
                                 wf_pipe_table *out)
{
    for (int r = 0; r < in->shape.ranks; r++)
        for (int64_t i = 0, n; i < in->row[r].n; i += n) {
            const wf_pipe_action *a = &in->row[r].action[i];

            n = wf_pipe_together(&in->row[r], i);
            for (int64_t k = 0; how->recompute && k < n; k++)
                if (a[k].kind == WF_PIPE_I || a[k].kind == WF_PIPE_B)
                    wf_pipe_table_add(out, r, WF_PIPE_R, a[k].stage, a[k].micro);
            for (int64_t k = 0; k < n; k++)
                wf_pipe_table_append(out, r, &a[k]);
        }
    return out->error.code;
}

/* Returns true where an action is W of the micro-batches after `last` of the same stage. */
static bool goes_on(const wf_pipe_action *last, const wf_pipe_action *a)
{
    return a->kind == WF_PIPE_W && !a->with_next && a->stage == last->stage &&
           a->micro == last->last + 1;
}

/* W of neighbours are one where their sum is a node of the tree of micro-batches: one product,
   over more rows. */
wf_status wf_pipe_pass_join(const wf_pipe_table *in, const wf_pipe_lowering *how,
                            wf_pipe_table *out)
{
    int most =
        how->group && how->group < WF_PIPE_MOST_JOINED ? how->group : WF_PIPE_MOST_JOINED;

    for (int r = 0; r < in->shape.ranks; r++)
        for (int64_t i = 0, n; i < in->row[r].n; i += n) {
            const wf_pipe_action *a = &in->row[r].action[i];
            wf_pipe_action part = *a;
            int last;

            n = wf_pipe_together(&in->row[r], i);
            for (int64_t k = 0; n == 2 && k < n; k++)
                wf_pipe_table_append(out, r, &a[k]);
            if (n == 2)
                continue;
            while (a->kind == WF_PIPE_W && i + n < in->row[r].n && goes_on(&a[n - 1], &a[n]))
                n++;
            last = a[n - 1].last;
            for (int m = a->micro; m <= last; m = part.last + 1) {
                part.micro = m;
                part.last = a->kind == WF_PIPE_W
                                ? m - 1 + (int)wf_tree_node(in->shape.micro, m, last + 1, most)
                                : last;
                wf_pipe_table_append(out, r, &part);
            }
        }
    return out->error.code;
}

/* A row's reductions as they become complete. */
typedef struct reduction {
    const wf_pipe_table *in;
    wf_pipe_table *out;
    int group, groups;
    int *left; /* [stages * groups] micro-batches without W */
    int *open; /* [stages] the group whose REDUCE has not ended; -1 */
} reduction;

static void add_range(const reduction *d, int rank, wf_pipe_kind kind, int stage, int group)
{
    int64_t first = (int64_t)group * d->group, last = first + d->group - 1;
    int most = d->in->shape.micro - 1;

    wf_pipe_table_append(d->out, rank,
                         &(wf_pipe_action){(uint8_t)kind, false, (int16_t)stage, (int)first,
                                           last < most ? (int)last : most});
}

static void close_group(reduction *d, int rank, int stage)
{
    if (d->open[stage] >= 0)
        add_range(d, rank, WF_PIPE_REDUCED, stage, d->open[stage]);
    d->open[stage] = -1;
}

static void reduce_after(reduction *d, int rank, const wf_pipe_action *a)
{
    if (a->kind != WF_PIPE_W && a->kind != WF_PIPE_B)
        return;
    for (int m = a->micro; m <= a->last; m++) {
        int g = m / d->group;

        if (--d->left[(int64_t)a->stage * d->groups + g] == 0) {
            close_group(d, rank, a->stage);
            add_range(d, rank, WF_PIPE_REDUCE, a->stage, g);
            d->open[a->stage] = g;
        }
    }
}

static void reduce_rows(reduction *d)
{
    const wf_pipe_table *in = d->in;

    for (int s = 0; s < in->shape.stages; s++) {
        d->open[s] = -1;
        for (int m = 0; m < in->shape.micro; m++)
            d->left[(int64_t)s * d->groups + m / d->group]++;
    }
    for (int r = 0; r < in->shape.ranks; r++) {
        for (int64_t i = 0, n; i < in->row[r].n; i += n) {
            const wf_pipe_action *a = &in->row[r].action[i];

            n = wf_pipe_together(&in->row[r], i);
            for (int64_t k = 0; k < n; k++)
                wf_pipe_table_append(d->out, r, &a[k]);
            for (int64_t k = 0; d->out->facts.group && k < n; k++)
                reduce_after(d, r, &a[k]);
        }
        for (int s = 0; s < in->shape.stages; s++)
            if (in->stage_rank[s] == r)
                close_group(d, r, s);
    }
}

wf_status wf_pipe_pass_reduce(const wf_pipe_table *in, const wf_pipe_lowering *how,
                              wf_pipe_table *out)
{
    size_t stages = (size_t)in->shape.stages;
    reduction d = {.in = in, .out = out};

    d.group = how->group > 0 ? how->group : in->shape.micro;
    d.groups = (in->shape.micro - 1) / d.group + 1;
    out->facts.group = how->group;
    d.left = calloc(stages * (size_t)d.groups, sizeof *d.left);
    d.open = malloc(stages * sizeof *d.open);
    if (!d.left || !d.open) {
        wf_error_set(&out->error, WF_ENOMEM, "no memory to lower %zu stages", stages);
    } else {
        reduce_rows(&d);
    }
    free(d.left);
    free(d.open);
    return out->error.code;
}

wf_status wf_pipe_pass_finish(const wf_pipe_table *in, const wf_pipe_lowering *how,
                              wf_pipe_table *out)
{
    int first = in->stage_rank[0], last = in->stage_rank[in->shape.stages - 1];

    out->facts.lowered = true;
    out->facts.tied = how->tied;
    for (int r = 0; r < in->shape.ranks; r++) {
        for (int64_t i = 0; i < in->row[r].n; i++)
            wf_pipe_table_append(out, r, &in->row[r].action[i]);
        if (how->tied && first != last && (r == first || r == last))
            wf_pipe_table_add(out, r, WF_PIPE_TIE, 0, 0);
        wf_pipe_table_add(out, r, WF_PIPE_NORM, 0, 0);
        for (int s = 0; s < in->shape.stages; s++)
            if (in->stage_rank[s] == r)
                wf_pipe_table_add(out, r, WF_PIPE_OPT, s, 0);
    }
    return out->error.code;
}

static wf_status check(const wf_pipe_table *t, const wf_pipe_lowering *how, wf_error *error)
{
    const struct {
        const char *what;
        int n;
    } number[] = {{"depth", how->depth},
                  {"number of receives ahead", how->ahead},
                  {"group", how->group},
                  {"number of resident stages", how->resident},
                  {"number of frozen stages", how->frozen},
                  {"prefetch", how->prefetch}};

    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (number[i].n < 0)
            return wf_error_set(error, WF_EINVAL, "a %s of %d: give 0 or more", number[i].what,
                                number[i].n);
    if (how->group & (how->group - 1))
        return wf_error_set(error, WF_EINVAL,
                            "gradients are reduced in groups of a power of two micro-batches, "
                            "not %d: the sum would not be that of other layouts",
                            how->group);
    if (how->frozen >= t->shape.stages)
        return wf_error_set(error, WF_EINVAL,
                            "of %d stages %d have nothing to train: one at least has to",
                            t->shape.stages, how->frozen);
    if (t->facts.lowered)
        return wf_error_set(error, WF_EINVAL,
                            "the schedule has its messages already: it is lowered");
    return wf_pipe_prove(t, NULL, error);
}

/* Makes an empty table of the shape, ranks of stages and facts of another. */
static wf_status like(const wf_pipe_table *in, wf_pipe_table **out, wf_error *error)
{
    wf_status status = wf_pipe_table_new(&in->shape, out, error);

    if (status == WF_OK) {
        memcpy((*out)->stage_rank, in->stage_rank,
               (size_t)in->shape.stages * sizeof *in->stage_rank);
        (*out)->facts = in->facts;
    }
    return status;
}

wf_status wf_pipe_lower(const wf_pipe_table *table, const wf_pipe_lowering *how,
                        wf_pipe_table **lowered, wf_error *error)
{
    static wf_pipe_pass *const passes[] = {wf_pipe_pass_recompute, wf_pipe_pass_join,
                                           wf_pipe_pass_unshard,   wf_pipe_pass_reduce,
                                           wf_pipe_pass_messages,  wf_pipe_pass_finish};
    wf_status status = check(table, how, error);
    wf_pipe_table *done = NULL;

    *lowered = NULL;
    for (size_t p = 0; status == WF_OK && p < sizeof passes / sizeof *passes; p++) {
        wf_pipe_table *out;

        status = like(done ? done : table, &out, error);
        if (status != WF_OK)
            break;
        out->facts.frozen = how->frozen;
        status = passes[p](done ? done : table, how, out);
        if (status != WF_OK)
            wf_error_set(error, status, "%s", out->error.text);
        wf_pipe_table_free(done);
        done = out;
    }
    if (status == WF_OK)
        *lowered = done;
    else
        wf_pipe_table_free(done);
    return status;
}
