/* parallel/train/parts.c - see parts.h. */
#include "parallel/train/parts.h"
#include "core/host_data.h"
#include "core/numerics/digest.h"
#include "parallel/agree_internal.h"
#include "parallel/train/measure_internal.h"
#include <stdlib.h>
#include <string.h>

/* A box of a tensor of which the rank holds [start, start + local) of each dim. */
typedef struct box {
    int64_t from[WF_MAX_DIMS], to[WF_MAX_DIMS];
} box;

/* Intersects a tensor held here with a part; false: they have nothing in common. */
static bool meet(const wf_tensor *t, const wf_par_held_part *part, box *b)
{
    for (int d = 0; d < t->ndim; d++) {
        int64_t end = t->start[d] + t->local[d], part_end = part->start[d] + part->local[d];

        b->from[d] = part->start[d] > t->start[d] ? part->start[d] : t->start[d];
        b->to[d] = part_end < end ? part_end : end;
        if (b->from[d] >= b->to[d])
            return false;
    }
    return true;
}

/* The digest of a box, run by run of the last dim. */
static uint64_t digest_of(const wf_tensor *t, const box *b, const char *path, int kind,
                          const float *data)
{
    uint64_t hash = wf_digest_path(path), digest = 0;
    int last = t->ndim - 1;
    int64_t at[WF_MAX_DIMS];
    bool more = true;

    memcpy(at, b->from, sizeof at);
    while (more) {
        int64_t here = 0, there = 0;

        for (int d = 0; d < t->ndim; d++) {
            here = here * t->local[d] + at[d] - t->start[d];
            there = there * t->dim[d].size + at[d];
        }
        digest += wf_digest_run(hash, (uint32_t)kind, (uint64_t)there, data + here,
                                t->ndim ? b->to[last] - b->from[last] : 1);
        more = false;
        for (int d = last - 1; d >= 0 && !more; d--) {
            more = ++at[d] < b->to[d];
            if (!more)
                at[d] = b->from[d];
        }
    }
    return digest;
}

static void describe(wf_par_held_part *part, const wf_tensor *t, const char *path, int kind)
{
    *part = (wf_par_held_part){.path = path, .kind = kind, .ndim = t->ndim};
    for (int d = 0; d < t->ndim; d++) {
        part->size[d] = t->dim[d].size;
        part->start[d] = t->start[d];
        part->local[d] = t->local[d];
    }
}

/* The digest of what a part and a tensor here have in common. */
static uint64_t digest_common(const wf_tensor *t, const wf_par_held_part *part)
{
    wf_host_data view;
    const float *data;
    uint64_t digest = 0;
    box b;

    if (!meet(t, part, &b))
        return 0;
    data = wf_data_read_f32(t, &view);
    if (data)
        digest = digest_of(t, &b, part->path, part->kind, data);
    wf_data_close(&view);
    return digest;
}

wf_status wf_par_trainer_parts(wf_par_trainer *trainer, wf_par_held_part **list, int64_t *n)
{
    wf_par_train_state s;
    wf_context *ctx;

    *list = NULL;
    *n = 0;
    if (!trainer)
        return WF_EINVAL;
    s = wf_par_trainer_state(trainer);
    ctx = wf_par_context(s.par);
    *list = calloc((size_t)s.count * WF_PAR_KINDS + 1, sizeof **list);
    if (!*list)
        return wf_fail(ctx, WF_ENOMEM, "no memory for the parts of %lld parameters",
                       (long long)s.count);
    for (int64_t i = 0; i < s.count; i++)
        for (int kind = 0; kind < WF_PAR_KINDS; kind++) {
            const wf_tensor *t = wf_par_kept(s.parameter[i], s.optimizer, i, kind);
            wf_par_held_part *part = *list + *n;

            if (!t || wf_tensor_is_fake(t) || wf_tensor_local_count(t) == 0)
                continue;
            describe(part, t, s.parameter[i]->path, kind);
            part->digest = wf_par_digest_held(t, part->path, (uint32_t)kind);
            ++*n;
        }
    return wf_context_status(ctx);
}

/* Returns true for a part of this tensor that lies within it. */
static bool is_of(const wf_par_held_part *part, const wf_nn_parameter *parameter,
                  const wf_tensor *t, int kind)
{
    bool same =
        part->kind == kind && part->ndim == t->ndim && strcmp(part->path, parameter->path) == 0;

    for (int d = 0; same && d < t->ndim; d++)
        same = part->size[d] == t->dim[d].size && part->local[d] >= 0 && part->start[d] >= 0 &&
               part->start[d] <= part->size[d] - part->local[d];
    return same;
}

wf_status wf_par_trainer_digest_parts(wf_par_trainer *trainer, wf_par_held_part *list,
                                      int64_t n)
{
    wf_par_train_state s;
    wf_error error = {WF_OK, ""};
    wf_context *ctx;
    uint64_t *sum; /* digests, then how many tensors of a rank were of each part */

    if (!trainer)
        return WF_EINVAL;
    s = wf_par_trainer_state(trainer);
    ctx = wf_par_context(s.par);
    sum = calloc(2 * (size_t)n + 1, sizeof *sum);
    if (!sum)
        wf_fail(ctx, WF_ENOMEM, "no memory for the digests of %lld parts", (long long)n);
    for (int64_t i = 0; sum && i < s.count; i++)
        for (int kind = 0; kind < WF_PAR_KINDS; kind++) {
            const wf_tensor *t = wf_par_kept(s.parameter[i], s.optimizer, i, kind);
            bool counts =
                t && !wf_tensor_is_fake(t) && wf_par_counts_here(s.par, s.parameter[i], t);

            for (int64_t k = 0; t && k < n; k++)
                if (is_of(list + k, s.parameter[i], t, kind)) {
                    sum[n + k]++;
                    sum[k] += counts ? digest_common(t, list + k) : 0;
                }
        }
    if (wf_context_status(ctx) == WF_OK && wf_agree(s.par, 2 * n, sum, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    for (int64_t k = 0; k < n && wf_context_status(ctx) == WF_OK; k++) {
        if (sum[n + k] == 0)
            wf_fail(ctx, WF_EINVAL,
                    "%s, tensor %d of it, is not of this model, or has another size, or a part "
                    "of it "
                    "lies outside: repeat a step with the model and optimizer of its first run",
                    list[k].path, list[k].kind);
        list[k].digest = sum[k];
    }
    free(sum);
    return wf_context_status(ctx);
}

wf_status wf_par_trainer_flip_bit(wf_par_trainer *trainer, const char *path, int kind,
                                  int64_t element, int bit)
{
    wf_par_train_state s;
    wf_tensor *t = NULL;
    wf_host_data view;
    uint8_t *data;
    int bits;

    if (!trainer)
        return WF_EINVAL;
    s = wf_par_trainer_state(trainer);
    for (int64_t i = 0; i < s.count && !t; i++)
        if (strcmp(s.parameter[i]->path, path) == 0 && kind >= 0 && kind < WF_PAR_KINDS)
            t = wf_par_kept(s.parameter[i], s.optimizer, i, kind);
    if (!t || wf_tensor_is_fake(t) || (t->dtype != WF_F32 && t->dtype != WF_BF16))
        return wf_fail(wf_par_context(s.par), WF_EINVAL,
                       "no bit of %s, tensor %d of it, can be flipped on this rank: it is not "
                       "here, or no tensor of floats",
                       path, kind);
    bits = t->dtype == WF_BF16 ? 16 : 32;
    if (element < 0 || element >= wf_tensor_local_count(t) || bit < 0 || bit >= bits)
        return wf_fail(
            wf_par_context(s.par), WF_EINVAL,
            "%s has %lld elements of %d bits here: bit %d of element %lld is none of "
            "them",
            path, (long long)wf_tensor_local_count(t), bits, bit, (long long)element);
    data = wf_data_write(t, true, &view);
    if (data) /* the lowest bits come first in memory */
        data[element * (bits / 8) + bit / 8] ^= (uint8_t)(1 << bit % 8);
    wf_data_close(&view);
    return wf_context_status(wf_par_context(s.par));
}
