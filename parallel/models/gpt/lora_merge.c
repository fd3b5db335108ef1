/*
 * parallel/models/gpt/lora_merge.c - adapters become part of the weights that they adapt: every
 * element of W is one sum in double over the rank's indices in order, so that no layout shows.
 */
#include "core/host_data.h"
#include "core/files/part_internal.h"
#include "parallel/models/gpt/lora.h"
#include "parallel/shard/quantise_internal.h"
#include "parallel/shard/unshard_internal.h"
#include <stdlib.h>
#include <string.h>

/* A matrix, or one for each expert, and its adapter. */
typedef struct adapted {
    wf_nn_parameter *weight, *a, *b;
    float scale;
} adapted;

/* w[i, j] += scale sum_r b[i, r] a[r, j] of this rank's part of the last two dims of w, with a
   and b whole. */
static void add_product(const wf_tensor *w, double scale, const float *a, const float *b,
                        int64_t rank, float *value, double *row)
{
    const int d = w->ndim - 2;
    int64_t columns = w->local[d + 1], all = w->dim[d + 1].size;

    for (int64_t i = 0; i < w->local[d]; i++) {
        const float *of = b + (w->start[d] + i) * rank;

        memset(row, 0, (size_t)columns * sizeof *row);
        for (int64_t r = 0; r < rank; r++)
            for (int64_t j = 0; j < columns; j++)
                row[j] += (double)of[r] * (double)a[r * all + w->start[d + 1] + j];
        for (int64_t j = 0; j < columns; j++)
            value[i * columns + j] = (float)((double)value[i * columns + j] + scale * row[j]);
    }
}

/* Adds the products of all matrices here. */
static void add_products(const wf_tensor *w, double scale, const wf_tensor *a,
                         const wf_tensor *b, const float *first, const float *second,
                         float *value, double *row)
{
    const int d = w->ndim - 2;
    const int64_t rank = a->dim[d].size, matrices = d ? w->local[0] : 1;

    for (int64_t e = 0; e < matrices; e++) {
        const int64_t at = d ? w->start[0] + e : 0;

        add_product(w, scale, first + at * rank * a->dim[d + 1].size,
                    second + at * b->dim[d].size * rank, rank,
                    value + e * w->local[d] * w->local[d + 1], row);
    }
}

/* This rank's part of W as floats, changed and put back. */
static wf_status merge_part(wf_tensor *w, float scale, const wf_tensor *a, const wf_tensor *b)
{
    size_t n = (size_t)wf_tensor_local_count(w);
    float *value = malloc(n * sizeof *value + 1), *to = NULL;
    double *row = malloc((size_t)w->local[w->ndim - 1] * sizeof *row + 1);
    wf_host_data view[3];
    const float *from = wf_data_read_f32(w, &view[0]);
    const float *first = wf_data_read_f32(a, &view[1]), *second = wf_data_read_f32(b, &view[2]);

    if (value && row && from && first && second) {
        memcpy(value, from, n * sizeof *value);
        add_products(w, (double)scale, a, b, first, second, value, row);
    } else {
        wf_fail(w->ctx, WF_ENOMEM, "no memory to merge an adapter");
    }
    for (int i = 0; i < 3; i++)
        wf_data_close(&view[i]);
    if (wf_context_status(w->ctx) == WF_OK && (to = wf_data_write_f32(w, &view[0]))) {
        memcpy(to, value, n * sizeof *value);
        wf_data_close(&view[0]);
    }
    free(row);
    free(value);
    return wf_context_status(w->ctx);
}

static void merge_one(wf_par *par, const adapted *m)
{
    wf_context *ctx = wf_par_context(par);
    wf_tensor *a, *b;

    if (!m->a || wf_context_status(ctx) != WF_OK || wf_tensor_is_fake(m->weight->tensor))
        return;
    wf_scope_open(ctx);
    a = wf_whole(m->a->tensor);
    b = wf_whole(m->b->tensor);
    if (a && b && wf_par_unquantise(par, m->weight) == WF_OK &&
        merge_part(m->weight->tensor, m->scale, a, b) == WF_OK)
        wf_init_fill(m->b->tensor, 0);
    wf_scope_close(ctx);
}

static void merge(void *arg, wf_nn_module *module)
{
    const wf_nn_linear *m = wf_nn_as_linear(module);
    const wf_nn_moe *e = wf_nn_as_moe(module);

    if (m)
        merge_one(arg, &(adapted){m->weight, m->lora.a, m->lora.b, m->lora.scale});
    if (!e)
        return;
    merge_one(arg, &(adapted){e->gate, e->lora_gate_up_a, e->lora_gate_b, e->lora_scale});
    merge_one(arg, &(adapted){e->up, e->lora_gate_up_a, e->lora_up_b, e->lora_scale});
    merge_one(arg, &(adapted){e->down, e->lora_down_a, e->lora_down_b, e->lora_scale});
}

wf_status wf_par_lora_merge(wf_par *par, wf_nn_gpt *model)
{
    wf_context *ctx = wf_par_context(par);

    if (!model || wf_context_status(ctx) != WF_OK || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    wf_par_models_change(par);
    wf_nn_visit(&model->base, merge, NULL, par);
    return wf_context_status(ctx);
}
