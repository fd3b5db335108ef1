/*
 * kernels/cuda/attention.c - attention on the GPU: a call as its kernels take it, and who
 * serves it: cuDNN (cudnn.h) what it can and exact mode allows, our kernels everything else.
 */
#include "kernels/attention_internal.h"
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/cudnn_internal.h"
#include "kernels/cuda/wgmma_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 256 };

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static void set_dropout(wf_cuda_heads *h, const wf_attention_attr *attr, const wf_tensor *q,
                        const wf_now *now)
{
    const wf_sequences *s = &attr->sequences;

    h->key = attr->key;
    h->site = (uint32_t)attr->site;
    h->step = (uint32_t)attr->step;
    h->first_row = (uint32_t)q->start[0];
    h->first = (uint32_t)s->first;
    h->run = s->run > 0 ? (uint32_t)s->run : 1;
    h->stride = s->run > 0 ? (uint32_t)s->stride : 1;
    h->now = now;
    h->kept = 1.0f;
    if (attr->dropout > 0) {
        h->threshold = (uint32_t)((double)attr->dropout * 0x1p32);
        h->kept = 1.0f / (1.0f - attr->dropout);
    }
}

static const void *data_of(const wf_tensor *t)
{
    return t ? t->data : NULL;
}

static wf_cuda_tokens tokens_of(const wf_tensor *t)
{
    return (wf_cuda_tokens){0, t->local[1]};
}

/* Sets the tokens of the arrays: those of attention_part's queries, or of its gradients, are
   some of all. */
static void set_tokens(wf_cuda_heads *h, const wf_call *call)
{
    const wf_tensor *own = wf_attention_own(call);
    wf_cuda_tokens part =
        own ? (wf_cuda_tokens){own->start[1], own->local[1]} : (wf_cuda_tokens){0, 0};

    h->query_tokens = h->dq_tokens = tokens_of(call->in[0]);
    h->key_tokens = h->dk_tokens = tokens_of(call->in[1]);
    if (own && call->n_out > 2)
        h->dq_tokens = h->dk_tokens = part;
    else if (own)
        h->query_tokens = part;
}

/* Returns the arguments that both directions share. */
static wf_cuda_heads heads_of(const wf_call *call)
{
    const wf_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
    const wf_attention_attr *attr = call->attr;
    const wf_tensor *bias = wf_attention_bias(call), *dbias = wf_attention_dbias(call);
    wf_cuda_heads h = {.q = q->data,
                       .k = k->data,
                       .v = v->data,
                       .type = q->dtype,
                       .dk_type = call->n_out > 2 ? call->out[1]->dtype : q->dtype,
                       .batch = q->local[0],
                       .heads = q->local[2],
                       .groups = k->local[2],
                       .dim = q->local[3],
                       .first_head = q->start[2],
                       .first_group = k->start[2],
                       .per_group = q->dim[2].size / k->dim[2].size,
                       .scale = 1.0f / sqrtf((float)q->local[3]),
                       .cap = attr->cap,
                       .bidirectional = attr->bidirectional,
                       .mask = data_of(wf_attention_mask(call)),
                       .bias = data_of(bias),
                       .sinks = data_of(wf_attention_sinks(call)),
                       .bias_of_each = bias && bias->ndim == 4,
                       .dbias = dbias ? dbias->data : NULL};

    set_tokens(&h, call);
    if (wf_attention_first(call))
        h.from = wf_attention_first(call)->data;
    /* a longer one, and a longer chunk, hold all of the sequence */
    if (attr->window < h.key_tokens.count && -attr->window < h.key_tokens.count)
        h.window = attr->window;
    set_dropout(&h, call->attr, q, wf_cuda_now(call));
    return h;
}

/* Returns true for what stays f32: logarithms of sums, sinks, masks, biases and their
   gradients. */
static bool is_float(const wf_call *call, const wf_tensor *t)
{
    return t->ndim == 3 || t == wf_attention_sinks(call) || t == wf_attention_mask(call) ||
           t == wf_attention_bias(call) || t == wf_attention_dbias(call);
}

/* Returns true where the environment leaves attention to cuDNN: WEFT_CUDNN is not set, or
   on. */
static bool is_left_to_cudnn(void)
{
    const char *asked = getenv("WEFT_CUDNN");

    return !asked || strcmp(asked, "on") == 0;
}

/* Refuses what WEFT_CUDNN may not say. */
static wf_status check_choice(const wf_call *call)
{
    const char *asked = getenv("WEFT_CUDNN");

    if (is_left_to_cudnn() || strcmp(asked, "off") == 0)
        return WF_OK;
    return wf_cuda_host_table->fail(
        call->ctx, WF_EINVAL,
        "%s: WEFT_CUDNN=%s is neither on nor off: unset it to have cuDNN serve attention of "
        "bf16 where it can, or set it to off to have Weft's kernels serve all of it",
        call->op->name, asked);
}

/* Returns true for attention of all of a sequence's tokens to these, which cuDNN may serve. */
static bool is_for_cudnn(const wf_call *call)
{
    if (!is_left_to_cudnn())
        return false;
    return call->op->id == WF_ID_attention || call->op->id == WF_ID_attention_grad ||
           call->op->id == WF_ID_attention_sinks;
}

/* Returns true for some of the tokens where cuDNN may serve all of them, with other bits. */
static bool has_other_bits(const wf_call *call, wf_cuda_heads all)
{
    all.query_tokens = all.key_tokens;
    return is_left_to_cudnn() && wf_attention_own(call) &&
           wf_cuda_host_table->context_exact(call->ctx) && wf_cudnn_may_serve(&all) &&
           wf_cudnn_is_found();
}

/* Returns true for outputs that are dk or dv, which may be of either type. */
static bool is_sum_of_heads(const wf_call *call, int output)
{
    return call->n_out > 2 && (output == 1 || output == 2);
}

/* Refuses a result or an operand that is not stored like q, or one that does not fit a grid:
   looked for when workspace is asked for, since a plan does that too. */
static wf_status check(const wf_call *call, const wf_cuda_heads *h)
{
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const wf_tensor *t = i < call->n_in ? call->in[i] : call->out[i - call->n_in];

        if (t == wf_attention_first(call) || is_sum_of_heads(call, i - call->n_in) ||
            (i < call->n_in && call->op->shapes >> i & 1))
            continue;
        if (t->dtype != (is_float(call, t) ? WF_F32 : h->type))
            return wf_cuda_host_table->fail(
                call->ctx, WF_EDTYPE,
                "%s: operand or output %d: all must be f32 or all bf16, and the logarithms of "
                "sums, sinks, masks and biases f32",
                call->op->name, i);
    }
    if (check_choice(call) != WF_OK)
        return WF_EINVAL;
    if (has_other_bits(call, *h))
        return wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "%s: bf16 of some tokens, where cuDNN serves attention of all of them with other "
            "bits: split heads instead (.cp_form), set WEFT_CUDNN=off, or take exact off",
            call->op->name);
    if (h->dim > WF_CUDA_HEAD_DIM || h->heads > 65535 || h->batch > 65535)
        return wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "%s: heads of %" PRId64 " dims, %" PRId64 " heads, %" PRId64
            " sequences; a GPU computes up to %d dims, and 65535 of the others at once: use "
            "more heads or smaller micro-batches",
            call->op->name, h->dim, h->heads, h->batch, WF_CUDA_HEAD_DIM);
    return WF_OK;
}

static bool is_empty(const wf_cuda_heads *h)
{
    return h->batch == 0 || h->query_tokens.count == 0 || h->heads == 0;
}

/* Reports once that our kernels of floats serve heads of bf16. */
static void report_floats(const wf_call *call, const wf_cuda_heads *h)
{
    static const char of;

    if (h->type == WF_BF16 && !wf_cuda_on_tensor_cores(h))
        wf_cuda_host_table->context_warn(
            call->ctx, &of,
            "attention in bf16 is on multiply-adds instead of tensor cores, since its heads "
            "have %" PRId64 " dims, no multiple of 8",
            h->dim);
}

static size_t forward_workspace(const wf_call *call)
{
    wf_cuda_heads h = heads_of(call);

    return check(call, &h) == WF_OK && is_for_cudnn(call)
               ? wf_cudnn_attention_workspace(call, &h, false)
               : 0;
}

static wf_status forward(const wf_call *call, void *workspace)
{
    wf_cuda_heads h = heads_of(call);
    wf_status status;

    h.y = call->out[0]->data;
    h.lse = call->out[1]->data;
    if (is_empty(&h))
        return WF_OK;
    if (is_for_cudnn(call) && wf_cudnn_attention(call, &h, false, workspace, &status))
        return status;
    report_floats(call, &h);
    h.by_wgmma = wf_cuda_multiplies_by_wgmma(wf_cuda_of(call));
    return wf_cuda_check(call->ctx, wf_cuda_launch_attention(wf_cuda_of(call)->stream, &h),
                         call->op->name);
}

/* Returns whether dk and dv are sums: each head has its own, and where there is one for every
   group here, they are the results. */
static bool has_sums(const wf_cuda_heads *h)
{
    return h->per_group > 1 || h->heads != h->groups;
}

static size_t delta_bytes(const wf_cuda_heads *h)
{
    return lines((size_t)(h->batch * h->query_tokens.count * h->heads) * sizeof(float));
}

static size_t parts_bytes(const wf_cuda_heads *h)
{
    const int64_t rows = h->batch * h->dk_tokens.count * h->heads;

    return has_sums(h) ? lines((size_t)(rows * h->dim) * sizeof(float)) : 0;
}

static size_t grad_workspace(const wf_call *call)
{
    wf_cuda_heads h = heads_of(call);
    size_t cudnn, ours;

    if (check(call, &h) != WF_OK)
        return 0;
    cudnn = is_for_cudnn(call) ? wf_cudnn_attention_workspace(call, &h, true) : 0;
    ours = delta_bytes(&h) + 2 * parts_bytes(&h);
    return cudnn > ours ? cudnn : ours;
}

static wf_status clear(const wf_call *call, const wf_tensor *t)
{
    size_t bytes = (size_t)wf_cuda_host_table->tensor_local_count(t) *
                   wf_cuda_host_table->dtype_size(t->dtype);

    if (bytes == 0)
        return WF_OK;
    return wf_cuda_check(call->ctx,
                         cudaMemsetAsync(t->data, 0, bytes, wf_cuda_of(call)->stream),
                         call->op->name);
}

/* Clears the gradients on a rank without heads, queries or sequences, which adds nothing to a
   group's gradient. */
static wf_status clear_gradients(const wf_call *call)
{
    wf_status status = WF_OK;

    for (int o = 0; o < call->n_out && status == WF_OK; o++)
        status = clear(call, call->out[o]);
    return status;
}

/* Sets the chunks of the query heads here. */
static void set_chunks(wf_cuda_heads *h, const wf_call *call)
{
    h->chunks = wf_cuda_host_table->chunk_cuts(call->in[0], 2, h->chunk);
    for (int l = h->chunks + 1; l <= WF_MAX_CHUNKS; l++)
        h->chunk[l] = h->chunk[h->chunks]; /* empty: +0 */
}

static wf_status grad(const wf_call *call, void *workspace)
{
    wf_cuda_heads h = heads_of(call);
    wf_status status;

    h.y = call->in[3]->data;
    h.lse = call->in[4]->data;
    h.dy = call->in[5]->data;
    h.dq = call->out[0]->data;
    h.dk = call->out[1]->data;
    h.dv = call->out[2]->data;
    if (is_empty(&h))
        return clear_gradients(call);
    set_chunks(&h, call);
    if (is_for_cudnn(call) && wf_cudnn_attention(call, &h, true, workspace, &status))
        return status;
    if (h.dbias) { /* pairs that no tile of a causal head has */
        status = clear(call, call->out[3]);
        if (status != WF_OK)
            return status;
    }
    h.by_wgmma = wf_cuda_multiplies_by_wgmma(wf_cuda_of(call));
    h.delta = workspace;
    if (has_sums(&h)) {
        h.parts_type = WF_F32;
        h.dk_parts = (char *)workspace + delta_bytes(&h);
        h.dv_parts = (char *)h.dk_parts + parts_bytes(&h);
    }
    return wf_cuda_check(call->ctx, wf_cuda_launch_attention_grad(wf_cuda_of(call)->stream, &h),
                         call->op->name);
}

/* Logarithms of sums, operand 4 of a gradient and output 1, are always f32, and so are masks,
   biases and their gradients. */
enum {
    FORWARD = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_OUT(0),
    GRAD = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_IN(3) | WF_IN(5) | WF_OUT(0),
    SUMS = WF_OUT(1) | WF_OUT(2) /* dk, dv: partial sums are f32 beside a dq of bf16 */
};

const wf_kernel wf_cuda_attention = {forward, forward_workspace, .all_bf16 = FORWARD};
const wf_kernel wf_cuda_attention_grad = {grad, grad_workspace, .mixed_ok = SUMS,
                                          .all_bf16 = GRAD};
const wf_kernel wf_cuda_attention_from = {forward, forward_workspace, .all_bf16 = FORWARD};
const wf_kernel wf_cuda_attention_from_grad = {grad, grad_workspace, .mixed_ok = SUMS,
                                               .all_bf16 = GRAD};
const wf_kernel wf_cuda_attention_sinks = {forward, forward_workspace, .all_bf16 = FORWARD};
const wf_kernel wf_cuda_attention_general = {forward, forward_workspace, .all_bf16 = FORWARD};
const wf_kernel wf_cuda_attention_general_grad = {grad, grad_workspace, .mixed_ok = SUMS,
                                                  .all_bf16 = GRAD};
const wf_kernel wf_cuda_attention_part = {forward, forward_workspace, .all_bf16 = FORWARD};
const wf_kernel wf_cuda_attention_part_sinks = {forward, forward_workspace,
                                                .all_bf16 = FORWARD};
const wf_kernel wf_cuda_attention_part_grad = {grad, grad_workspace, .mixed_ok = SUMS,
                                               .all_bf16 = GRAD};
