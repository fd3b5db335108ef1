/*
 * kernels/cuda/cudnn/serve.c - which calls of attention cuDNN serves, and what it is given.
 *
 * It serves bf16 without dropout (its random numbers are not ours), of tokens that see those
 * before them, all or a window of them, with scores capped or not; sinks are added after it
 * (attention_sinks.cu). Documents and chunks
 * are our kernels', whose tiles of keys count from where one begins. A head's dim is a multiple
 * of 8 up to 128.
 *
 * In exact mode every query head has keys and values of its own: a group's are copied to each
 * of its heads, and dk and dv of each are summed in our tree (attention_groups.cu), so that a
 * rank may have any of a group's heads. dq is summed in one order: by scores in memory, or from
 * LONG tokens on, where these are too many, tile after tile by cuDNN 9.25's engine for Hopper,
 * which is the slower of the two.
 */
#include "kernels/cuda/cudnn/serve_internal.h"
#include <math.h>
#include <string.h>

#ifdef WF_CUDA_EMULATED
enum { LONG = 96, HOPPER = 80 }; /* an emulated GPU has no more */
#else
enum { LONG = 8192, HOPPER = 90 };
#endif
enum { MOST_DIM = 128, LINE = 256, BOUND = 256 << 20, ORDERED_TILES = 92500 };

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static bool is_exact(const wf_call *call)
{
    return wf_cuda_host_table->context_exact(call->ctx);
}

/* Returns whether cuDNN may serve attention of these heads of bf16. */
static bool serves(const wf_cuda_heads *h)
{
    return !h->threshold && !h->bidirectional && !h->from && h->window >= 0 &&
           h->dim % 8 == 0 && h->dim <= MOST_DIM;
}

/* Returns true for heads that cuDNN may serve if they are of the right kind. */
static bool has_work(const wf_cuda_heads *h)
{
    return h->type == WF_BF16 && h->query_tokens.count > 1 && h->heads > 0 && h->batch > 0;
}

bool wf_cudnn_may_serve(const wf_cuda_heads *h)
{
    return has_work(h) && serves(h);
}

bool wf_cudnn_is_found(void)
{
    const char *why;

    return wf_cudnn_load(&why) != NULL;
}

/* Returns true where cuDNN cannot have the heads as they lie: in exact mode it sees no groups,
   and else none of which a rank has some heads alone; and dk and dv that are f32. */
static bool is_staged(const wf_call *call, const wf_cuda_heads *h, bool backward)
{
    bool whole =
        h->heads == h->groups * h->per_group && h->first_head == h->first_group * h->per_group;

    return !whole || (is_exact(call) && h->per_group > 1) ||
           (backward && h->dk_type != WF_BF16);
}

static wf_cudnn_order order_of(const wf_call *call, const wf_cuda_heads *h)
{
    const char *why;
    const wf_cudnn_api *api;

    if (!is_exact(call))
        return WF_CUDNN_ANY_ORDER;
    if (h->query_tokens.count < LONG || wf_cuda_of(call)->arch != HOPPER)
        return WF_CUDNN_BY_SCORES;
    api = wf_cudnn_load(&why);
    return api && api->cudnnGetVersion() >= ORDERED_TILES ? WF_CUDNN_BY_TILES
                                                          : WF_CUDNN_BY_SCORES;
}

/* Fills in what cuDNN sees of `batch` sequences. */
static void fill_key(wf_cudnn_heads *key, const wf_call *call, const wf_cuda_heads *h,
                     int64_t batch, bool backward)
{
    memset(key, 0, sizeof *key); /* its padding too: keys are compared as bytes */
    key->batch = batch;
    key->heads = h->heads;
    key->groups = is_staged(call, h, backward) ? h->heads : h->groups;
    key->tokens = h->query_tokens.count;
    key->dim = h->dim;
    key->window = h->window;
    key->capped = h->cap > 0;
    key->backward = backward;
    key->order = backward ? order_of(call, h) : WF_CUDNN_ANY_ORDER;
}

/* Sequences of one run: where scores are in memory, as many as fit a bounded workspace. */
static int64_t at_once(const wf_call *call, const wf_cuda_heads *h, bool backward)
{
    wf_cudnn_heads one;
    int64_t fit;

    fill_key(&one, call, h, 1, backward);
    if (one.order != WF_CUDNN_BY_SCORES)
        return h->batch;
    fit = BOUND / wf_cudnn_attention_engine(&one);
    fit = fit < 1 ? 1 : fit;
    return fit < h->batch ? fit : h->batch;
}

/* The workspace of some sequences: keys, values and their gradients of each head (or nothing),
   y . dy, dq in float, what is left to an engine; `copy` is of one of the first four. */
typedef struct room {
    size_t copy, copies, delta, dq_sum, engine;
} room;

static room room_of(const wf_cudnn_heads *key, bool staged)
{
    size_t rows = (size_t)(key->batch * key->heads * key->tokens);
    room r = {.engine = (size_t)wf_cudnn_attention_engine(key)};

    if (staged) {
        r.copy = lines(rows * (size_t)key->dim * sizeof(uint16_t));
        r.copies = r.copy * (key->backward ? 4 : 2);
    }
    if (key->backward)
        r.delta = lines(rows * sizeof(float));
    if (key->backward && key->order != WF_CUDNN_BY_SCORES)
        r.dq_sum = lines(rows * (size_t)key->dim * sizeof(float));
    return r;
}

size_t wf_cudnn_attention_workspace(const wf_call *call, const wf_cuda_heads *h, bool backward)
{
    wf_cudnn_heads key;
    room r;

    if (!wf_cudnn_may_serve(h))
        return 0;
    fill_key(&key, call, h, at_once(call, h, backward), backward);
    r = room_of(&key, is_staged(call, h, backward));
    return r.copies + r.delta + r.dq_sum + r.engine;
}

/* Bf16 or float data from a sequence on; NULL: none. */
static void *from(const void *data, int64_t sequence, int64_t elements, size_t size)
{
    return data ? (char *)(uintptr_t)data + (size_t)(sequence * elements) * size : NULL;
}

/* Returns some sequences of a call. */
static wf_cuda_heads sequences_of(const wf_cuda_heads *h, int64_t first, int64_t count)
{
    int64_t tokens = h->query_tokens.count, q = tokens * h->heads * h->dim;
    int64_t k = tokens * h->groups * h->dim;
    size_t dk = h->dk_type == WF_BF16 ? 2 : 4;
    wf_cuda_heads some = *h;

    some.batch = count;
    some.q = from(h->q, first, q, 2);
    some.k = from(h->k, first, k, 2);
    some.v = from(h->v, first, k, 2);
    some.y = from(h->y, first, q, 2);
    some.lse = from(h->lse, first, tokens * h->heads, sizeof(float));
    some.dy = from(h->dy, first, q, 2);
    some.dq = from(h->dq, first, q, 2);
    some.dk = from(h->dk, first, k, dk);
    some.dv = from(h->dv, first, k, dk);
    return some;
}

/* Runs a plan on the heads as cuDNN has them: k, v, dk and dv of h are those of each head where
   they are staged. */
static wf_status run_plan(const wf_call *call, struct wf_cudnn *c, const served *s,
                          const wf_cuda_heads *h, char *delta, const room *r)
{
    float scale = h->scale, lowest = -INFINITY, one = 1, cap = h->cap;
    int32_t window = (int32_t)h->window;
    bool backward = s->key.backward;
    const struct {
        int64_t id;
        void *data;
        bool wanted;
    } all[] = {
        {WF_CUDNN_Q, (void *)(uintptr_t)h->q, true},
        {WF_CUDNN_K, (void *)(uintptr_t)h->k, true},
        {WF_CUDNN_V, (void *)(uintptr_t)h->v, true},
        {WF_CUDNN_Y, h->y, true},
        {WF_CUDNN_LSE, h->lse, true},
        {WF_CUDNN_SCALE, &scale, true},
        {WF_CUDNN_LOWEST, &lowest, true},
        {WF_CUDNN_WINDOW, &window, s->key.window > 0},
        {WF_CUDNN_CAP, &cap, s->key.capped},
        {WF_CUDNN_ONE, &one, backward},
        {WF_CUDNN_DY, (void *)(uintptr_t)h->dy, backward},
        {WF_CUDNN_DQ, h->dq, backward},
        {WF_CUDNN_DK, h->dk, backward},
        {WF_CUDNN_DV, h->dv, backward},
        {WF_CUDNN_DELTA, delta, backward},
        {WF_CUDNN_DQ_SUM, delta + r->delta, r->dq_sum > 0},
    };
    enum { MOST = sizeof all / sizeof *all };
    int64_t ids[MOST];
    void *data[MOST];
    int n = 0;

    for (int i = 0; i < MOST; i++) {
        ids[n] = all[i].id;
        data[n] = all[i].data;
        n += all[i].wanted;
    }
    return wf_cudnn_execute(call, c, s, n, ids, data, delta + r->delta + r->dq_sum);
}

/* Runs a plan on some sequences, with keys and values of each head where they are staged. */
static wf_status run(const wf_call *call, struct wf_cudnn *c, const served *s,
                     const wf_cuda_heads *h, bool staged, char *workspace)
{
    cudaStream_t stream = wf_cuda_of(call)->stream;
    room r = room_of(&s->key, staged);
    wf_cuda_heads seen = *h, sums = *h;
    wf_status status = WF_OK;

    if (!staged)
        return run_plan(call, c, s, h, workspace, &r);
    seen.k = workspace;
    seen.v = workspace + r.copy;
    if (s->key.backward) {
        seen.dk = sums.dk_parts = workspace + 2 * r.copy;
        seen.dv = sums.dv_parts = workspace + 3 * r.copy;
        sums.parts_type = WF_BF16;
    }
    status = wf_cuda_check(call->ctx,
                           wf_cuda_launch_spread(stream, h, workspace, workspace + r.copy),
                           call->op->name);
    if (status == WF_OK)
        status = run_plan(call, c, s, &seen, workspace + r.copies, &r);
    if (status != WF_OK || !s->key.backward)
        return status;
    return wf_cuda_check(call->ctx, wf_cuda_launch_group_sums(stream, &sums), call->op->name);
}

/* Adds what cuDNN leaves out: sinks. */
static wf_status complete(const wf_call *call, const wf_cuda_heads *h)
{
    return h->sinks
               ? wf_cuda_check(call->ctx, wf_cuda_launch_add_sinks(wf_cuda_of(call)->stream, h),
                               call->op->name)
               : WF_OK;
}

bool wf_cudnn_attention(const wf_call *call, const wf_cuda_heads *h, bool backward,
                        void *workspace, wf_status *status)
{
    struct wf_cudnn *c = has_work(h) ? wf_cudnn_open(call) : NULL;
    int64_t batch, first = 0;
    bool staged;

    if (!c || !serves(h))
        return false;
    batch = at_once(call, h, backward);
    staged = is_staged(call, h, backward);
    while (first < h->batch) {
        wf_cuda_heads some =
            sequences_of(h, first, h->batch - first < batch ? h->batch - first : batch);
        wf_cudnn_heads key;
        served *s;

        fill_key(&key, call, h, some.batch, backward);
        s = wf_cudnn_served(call, c, &key, status);
        if (s)
            *status = run(call, c, s, &some, staged, workspace);
        else if (*status == WF_OK)
            return false; /* nothing was written that our kernels would not write */
        if (*status != WF_OK)
            return true;
        first += some.batch;
    }
    *status = complete(call, h);
    return true;
}
