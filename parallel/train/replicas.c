/*
 * parallel/train/replicas.c - whether ranks that hold the same part of a parameter or moment
 * hold the same bits. Each adds the digest of its part times a factor of its own, and the
 * factors of the ranks that hold a part add up to 0; of a tensor whose sum is not 0 digests are
 * gathered, and ranks named.
 */
#include "core/numerics/bits.h"
#include "parallel/agree_internal.h"
#include "parallel/train/measure_internal.h"
#include "parallel/train/engine_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct check {
    const wf_par_trainer *t;
    uint64_t *sum; /* [count * WF_PAR_KINDS] */
} check;

static uint64_t factor_of(int rank)
{
    return wf_mix64((uint64_t)rank) | 1;
}

static bool has(const check *c, int64_t i, int rank)
{
    return !c->t->engine->has || c->t->engine->has(c->t, i, rank);
}

/* Returns true where a rank holds the part of a tensor of parameter i that this one holds,
   which is split over some axes. */
static bool holds(const check *c, int64_t i, unsigned split, int rank)
{
    const wf_mesh *mesh = c->t->par->mesh;

    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if ((split >> axis & 1) &&
            wf_mesh_coordinate_of(mesh, rank, axis) != wf_mesh_coordinate(mesh, axis))
            return false;
    return has(c, i, rank);
}

/* The factor of this rank among those that hold the same: of the first one what brings the sum
   to 0. */
static uint64_t factor_here(const check *c, int64_t i, unsigned split)
{
    int mine = wf_context_rank(c->t->par->ctx), ranks = wf_mesh_ranks(c->t->par->mesh);
    uint64_t sum = 0;

    for (int r = 0; r < mine; r++)
        if (holds(c, i, split, r))
            return factor_of(mine);
    for (int r = mine + 1; r < ranks; r++)
        if (holds(c, i, split, r))
            sum -= factor_of(r);
    return sum;
}

static wf_tensor *tensor_of(const check *c, int64_t i, int kind)
{
    const wf_par_trainer *t = c->t;
    wf_tensor *x = wf_par_kept(t->parameter[i], t->optimizer, i, kind);

    return x && has(c, i, wf_context_rank(t->par->ctx)) && !wf_tensor_is_fake(x) ? x : NULL;
}

static uint64_t digest_of(const check *c, int64_t i, int kind)
{
    wf_tensor *x = tensor_of(c, i, kind);

    return x ? wf_par_digest_held(x, c->t->parameter[i]->path, (uint32_t)kind) : 0;
}

/* Name the first two ranks that hold part of a tensor alike, and other bits. */
static wf_status name_ranks(const check *c, int64_t i, int kind)
{
    typedef struct part {
        uint64_t digest, split_at; /* the first rank that has this part, plus 1; 0: none */
        wf_par_party party;
    } part;
    wf_context *ctx = c->t->par->ctx;
    wf_tensor *x = tensor_of(c, i, kind);
    unsigned split = x ? wf_layout_split_axes(x->layout) : 0;
    int rank = wf_context_rank(ctx), ranks = wf_mesh_ranks(c->t->par->mesh), others = 0;
    part mine = {.digest = digest_of(c, i, kind), .party = wf_par_party_of(rank)};
    const part *all, *a = NULL, *b = NULL;
    char message[WF_ERROR_TEXT];

    for (int r = 0; x && r <= rank && !mine.split_at; r++)
        if (holds(c, i, split, r))
            mine.split_at = (uint64_t)r + 1;
    all = wf_mesh_gather(c->t->par->mesh, &mine, sizeof mine);
    for (int r = 0; all && r < ranks; r++) {
        const part *first = all[r].split_at ? &all[all[r].split_at - 1] : &all[r];

        if (all[r].digest == first->digest)
            continue;
        if (!b) {
            a = first;
            b = &all[r];
        } else {
            others++;
        }
    }
    if (!b)
        return wf_context_status(ctx);
    snprintf(message, sizeof message,
             "%s and %s hold %s%s%s alike, and not the same bits after step %" PRId64
             ": digests %016" PRIx64 " and %016" PRIx64 "%s; replicas have parted: memory or "
             "arithmetic of one of them is wrong, or a program has changed one alone",
             a->party.text, b->party.text, kind ? wf_nn_kept_words(kind) : "",
             kind ? " of " : "", c->t->parameter[i]->path, c->t->committed.step, a->digest,
             b->digest, others ? "; other ranks differ too" : "");
    return wf_par_fail_as(c->t->par, (int)(b - all), WF_EMISMATCH, message);
}

static wf_status compare(check *c)
{
    const wf_par_trainer *t = c->t;
    wf_context *ctx = t->par->ctx;
    int64_t n = t->count * WF_PAR_KINDS;
    wf_error error = {WF_OK, ""};
    unsigned known = 0;
    uint64_t factor = 0;

    for (int64_t i = 0; i < t->count; i++)
        for (int kind = 0; kind < WF_PAR_KINDS; kind++) {
            wf_tensor *x = tensor_of(c, i, kind);
            unsigned split = x ? wf_layout_split_axes(x->layout) : 0;

            if (!x)
                continue;
            if (t->engine->has || known != split + 1) /* the same for most */
                factor = factor_here(c, i, split);
            known = split + 1;
            if (factor)
                c->sum[i * WF_PAR_KINDS + kind] = factor * digest_of(c, i, kind);
        }
    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    if (wf_agree(t->par, n, c->sum, &error) != WF_OK)
        return wf_context_status(ctx) != WF_OK ? wf_context_status(ctx)
                                               : wf_fail(ctx, error.code, "%s", error.text);
    for (int64_t k = 0; k < n && wf_context_status(ctx) == WF_OK; k++)
        if (c->sum[k])
            name_ranks(c, k / WF_PAR_KINDS, (int)(k % WF_PAR_KINDS));
    return wf_context_status(ctx);
}

wf_status wf_par_trainer_check_replicas(wf_par_trainer *t)
{
    check c = {.t = t};

    if (!t)
        return WF_EINVAL;
    if (wf_context_status(t->par->ctx) != WF_OK || wf_mesh_ranks(t->par->mesh) == 1 ||
        wf_context_dry_run(t->par->ctx))
        return wf_context_status(t->par->ctx);
    c.sum = calloc((size_t)t->count * WF_PAR_KINDS + 1, sizeof *c.sum);
    if (!c.sum)
        wf_fail(t->par->ctx, WF_ENOMEM, "no memory for digests of %" PRId64 " parameters",
                t->count);
    if (wf_context_status(t->par->ctx) == WF_OK)
        compare(&c);
    free(c.sum);
    return wf_context_status(t->par->ctx);
}
