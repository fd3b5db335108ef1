"""The C program of ops.py, around the rows of its table."""
PROGRAM = r"""
#include "core/context.h"
#include "core/tape.h"
#include "kernels/conv.h"
#include "kernels/devices.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "kernels/reshape.h"
#include "kernels/row_ops.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct operand {
    bool integers, wanted;
    int ndim;
    wf_dim dim[WF_MAX_DIMS];
} operand;

static wf_tensor *loss_of(wf_tensor *logits, wf_tensor *targets, float smoothing)
{
    wf_tensor *max = wf_logit_max(logits), *sum, *picked;

    wf_logit_sum(logits, max, targets, smoothing, &sum, &picked);
    return wf_cross_entropy(sum, picked, max);
}

static wf_tensor *a, *b, *c;

FUNCTIONS
static const struct {
    wf_tensor *(*run)(wf_tensor *const *in, wf_tensor **out);
    int n_in, n_out;
    bool backward;
    operand in[4];
} table[] = {ROWS};

static void read_into(wf_tensor *t, FILE *file)
{
    if (fread(t->data, 4, (size_t)wf_tensor_count(t), file) != (size_t)wf_tensor_count(t))
        exit(3);
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), &(wf_context_options){.seed = 7}, &error);
    FILE *from = fopen(argv[1], "rb"), *to = fopen(argv[2], "wb");

    if (argc < 3 || !ctx || !from || !to)
        return 2;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        wf_tensor *in[4] = {NULL}, *out[4] = {NULL}, *seed;
        wf_tape *tape;

        wf_scope_open(ctx);
        tape = wf_tape_open(ctx);
        for (int k = 0; k < table[i].n_in; k++) {
            const operand *o = &table[i].in[k];

            in[k] = wf_tensor_new(ctx, o->integers ? WF_I32 : WF_F32, o->ndim, o->dim, NULL, WF_MEMORY_ACTIVATION);
            read_into(in[k], from);
            if (o->wanted)
                in[k] = wf_leaf(in[k]);
        }
        a = in[0], b = in[1], c = in[2];
        out[0] = table[i].run(in, out);
        for (int k = 0; k < table[i].n_out && wf_context_status(ctx) == WF_OK; k++)
            fwrite(out[k]->data, 4, (size_t)wf_tensor_count(out[k]), to);
        seed = out[0] ? wf_tensor_new(ctx, WF_F32, out[0]->ndim, out[0]->dim, NULL, WF_MEMORY_ACTIVATION) : NULL;
        if (seed)
            read_into(seed, from);
        if (seed && table[i].backward)
            wf_backward(out[0], seed, false);
        for (int k = 0; k < table[i].n_in && table[i].backward; k++)
            if (table[i].in[k].wanted && in[k]->grad) {
                wf_tensor *dx = in[k]->grad->ndim > in[k]->ndim ? wf_batch_sum(in[k]->grad) : in[k]->grad;

                fwrite(dx->data, 4, (size_t)wf_tensor_count(dx), to);
            }
        if (wf_context_status(ctx) != WF_OK) {
            fprintf(stderr, "%s\n", wf_context_error(ctx)->text);
            return 1;
        }
        wf_tape_close(tape);
        wf_scope_close(ctx);
    }
    return fclose(to) ? 3 : 0;
}
"""
