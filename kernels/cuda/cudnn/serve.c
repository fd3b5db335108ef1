/*
 * kernels/cuda/cudnn/serve.c - which calls of attention cuDNN serves, with which plan.
 *
 * It serves bf16 without dropout (its random numbers are not ours), of tokens that see all
 * before them (documents and windows are our kernels'), of heads whose dim is a multiple of 8
 * up to 128 and whose groups are all here. Exact mode asks for more: no sum over the
 * heads of a group (that is our tree), dq summed in one order, and one engine with its knobs
 * for all layouts, found for a single head of a single sequence. Where there is no such plan
 * for a call though there is one for the single head, the call is an error: our kernels have
 * other bits.
 *
 * The workspace is ours to promise before there is a plan: plans that need more are passed
 * over.
 */
#include "kernels/cuda/cudnn_internal.h"
#include "kernels/cuda/cudnn/graph_internal.h"
#include "kernels/cuda/matmul_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIM = 128, ENGINES = 8, LINE = 256, BOUND = 256 << 20 };

/* A plan, or the knowledge that there is none. */
typedef struct served {
    wf_cudnn_heads key;
    bool exact;
    wf_cudnn_graph graph;
    wf_cudnn_descriptor plan; /* the graph's; NULL: there is none */
    wf_cudnn_engine engine;
} served;

struct wf_cudnn {
    const wf_cudnn_api *api;
    cudnnHandle_t handle;
    served **all;
    int count, room;
};

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static bool is_exact(const wf_call *call)
{
    return wf_cuda_host_table->context_exact(call->ctx);
}

bool wf_cudnn_may_serve(const wf_call *call, const wf_cuda_heads *h)
{
    bool groups =
        h->heads == h->groups * h->per_group && h->first_head == h->first_group * h->per_group;

    return h->type == WF_BF16 && !h->threshold && !h->bidirectional && !h->from && !h->window &&
           !(h->cap > 0) && h->dim % 8 == 0 && h->dim <= MOST_DIM &&
           h->query_tokens.count > 1 && h->heads > 0 && h->batch > 0 && groups &&
           (h->per_group == 1 || !is_exact(call));
}

static void fill_key(wf_cudnn_heads *key, const wf_cuda_heads *h, int64_t batch, bool backward,
                     bool exact)
{
    memset(key, 0, sizeof *key); /* its padding too: keys are compared as bytes */
    key->batch = batch;
    key->heads = h->heads;
    key->groups = h->groups;
    key->tokens = h->query_tokens.count;
    key->dim = h->dim;
    key->backward = backward;
    key->ordered = backward && exact;
}

/* Sequences of one run: where dq is ordered, as many as fit a bounded workspace. */
static int64_t at_once(const wf_call *call, const wf_cuda_heads *h, bool backward)
{
    wf_cudnn_heads one;
    int64_t fit;

    fill_key(&one, h, 1, backward, is_exact(call));
    if (!one.ordered)
        return h->batch;
    fit = BOUND / wf_cudnn_attention_engine(&one);
    fit = fit < 1 ? 1 : fit;
    return fit < h->batch ? fit : h->batch;
}

/* The workspace of some sequences: y . dy, dq in float, what is left to an engine. */
typedef struct room {
    size_t delta, dq_sum, engine;
} room;

static room room_of(const wf_cudnn_heads *key)
{
    size_t rows = (size_t)(key->batch * key->heads * key->tokens);
    room r = {.engine = (size_t)wf_cudnn_attention_engine(key)};

    if (key->backward)
        r.delta = lines(rows * sizeof(float));
    if (key->backward && !key->ordered)
        r.dq_sum = lines(rows * (size_t)key->dim * sizeof(float));
    return r;
}

size_t wf_cudnn_attention_workspace(const wf_call *call, const wf_cuda_heads *h, bool backward)
{
    wf_cudnn_heads key;
    room r;

    if (!wf_cudnn_may_serve(call, h))
        return 0;
    fill_key(&key, h, at_once(call, h, backward), backward, is_exact(call));
    r = room_of(&key);
    return r.delta + r.dq_sum + r.engine;
}

/* ---- plans ---- */

static struct wf_cudnn *open_library(const wf_call *call)
{
    wf_cuda_math *math = wf_cuda_math_of(call);
    struct wf_cudnn *c;
    const char *why;

    if (!math || math->cudnn)
        return math ? math->cudnn : NULL;
    c = math->cudnn = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->api = wf_cudnn_load(&why);
    if (c->api &&
        (c->api->cudnnCreate(&c->handle) != CUDNN_STATUS_SUCCESS ||
         c->api->cudnnSetStream(c->handle, wf_cuda_of(call)->stream) != CUDNN_STATUS_SUCCESS))
        c->api = NULL;
    return c;
}

void wf_cudnn_close(struct wf_cudnn *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->count; i++) {
        wf_cudnn_graph_end(&c->all[i]->graph);
        free(c->all[i]);
    }
    if (c->api && c->handle)
        c->api->cudnnDestroy(c->handle);
    free(c->all);
    free(c);
}

static bool keep(struct wf_cudnn *c, served *s)
{
    if (c->count == c->room) {
        int more = c->room ? 2 * c->room : 16;
        served **all = realloc(c->all, (size_t)more * sizeof(served *));

        if (!all)
            return false;
        c->all = all;
        c->room = more;
    }
    c->all[c->count++] = s;
    return true;
}

/* Makes the graph, and finds the best engine whose plan fits; or `only`, if it does. */
static void make_plan(served *s, const wf_cudnn_api *api, int ordinal,
                      const wf_cudnn_engine *only)
{
    wf_cudnn_engine engine[ENGINES];
    wf_cudnn_descriptor properties;
    int64_t workspace;
    int n = 1;

    wf_cudnn_graph_begin(&s->graph, api);
    wf_cudnn_attention_graph(&s->graph, &s->key);
    properties = wf_cudnn_properties(&s->graph, ordinal, NULL);
    if (only)
        engine[0] = *only;
    else
        n = wf_cudnn_engines(&s->graph, properties, ENGINES, engine);
    for (int i = 0; i < n && !s->plan; i++) {
        s->plan = wf_cudnn_plan(&s->graph, properties, &engine[i], &workspace);
        s->engine = engine[i];
        if (s->plan && workspace > wf_cudnn_attention_engine(&s->key))
            s->plan = NULL;
    }
}

static served *find(const wf_call *call, struct wf_cudnn *c, const wf_cudnn_heads *key,
                    const wf_cudnn_engine *only)
{
    bool exact = is_exact(call);
    served *s;

    for (int i = 0; i < c->count; i++)
        if (memcmp(&c->all[i]->key, key, sizeof *key) == 0 && c->all[i]->exact == exact)
            return c->all[i];
    s = calloc(1, sizeof *s);
    if (!s || !keep(c, s)) {
        free(s);
        return NULL;
    }
    memcpy(&s->key, key, sizeof *key);
    s->exact = exact;
    make_plan(s, c->api, wf_cuda_of(call)->ordinal, only);
    return s;
}

/* Returns the plan for `batch` sequences; NULL where our kernels serve, or with a failure in
   *status. */
static served *plan_for(const wf_call *call, struct wf_cudnn *c, const wf_cuda_heads *h,
                        int64_t batch, bool backward, wf_status *status)
{
    bool exact = is_exact(call);
    wf_cuda_heads one = *h;
    wf_cudnn_heads key;
    served *single = NULL, *s;

    *status = WF_OK;
    if (exact) {
        one.heads = one.groups = 1;
        fill_key(&key, &one, 1, backward, exact);
        single = find(call, c, &key, NULL);
        if (!single || !single->plan)
            return NULL;
    }
    fill_key(&key, h, batch, backward, exact);
    s = find(call, c, &key, single ? &single->engine : NULL);
    if (s && s->plan)
        return s;
    if (exact)
        *status = wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "%s: cuDNN's engine for one head does not serve %" PRId64 " heads of %" PRId64
            " sequences (%s), so that a layout would show in the numbers; use .exact_off",
            call->op->name, h->heads, batch, s ? s->graph.text : "no memory");
    return NULL;
}

/* ---- running ---- */

static wf_status execute(const wf_call *call, struct wf_cudnn *c, const served *s, int n,
                         const int64_t *ids, void *const *data, void *workspace)
{
    wf_cudnn_graph pack;
    cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
    wf_cudnn_descriptor d;

    wf_cudnn_graph_begin(&pack, c->api);
    d = wf_cudnn_new(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    wf_cudnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    wf_cudnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
    wf_cudnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                 &workspace);
    wf_cudnn_finalize(&pack, d, "what a plan works on");
    wf_cuda_counts.launches++;
    if (!pack.failed)
        status = c->api->cudnnBackendExecute(c->handle, s->plan, d);
    wf_cudnn_graph_end(&pack);
    if (status == CUDNN_STATUS_SUCCESS)
        return WF_OK;
    return wf_cuda_host_table->fail(call->ctx, WF_EDEVICE, "%s: cuDNN says %s %s",
                                    call->op->name, c->api->cudnnGetErrorString(status),
                                    pack.text);
}

/* bf16 or float data from a sequence on. */
static void *from(const void *data, int64_t sequence, int64_t elements, size_t size)
{
    return (char *)(uintptr_t)data + (size_t)(sequence * elements) * size;
}

static wf_status run_sequences(const wf_call *call, struct wf_cudnn *c, const served *s,
                               const wf_cuda_heads *h, int64_t first, char *workspace)
{
    room r = room_of(&s->key);
    int64_t tokens = h->query_tokens.count, q = tokens * h->heads * h->dim;
    int64_t k = tokens * h->groups * h->dim;
    float scale = h->scale, lowest = -INFINITY, one = 1;
    const struct {
        int64_t id;
        void *data;
        bool forward;
    } all[] = {
        {WF_CUDNN_Q, from(h->q, first, q, 2), true},
        {WF_CUDNN_K, from(h->k, first, k, 2), true},
        {WF_CUDNN_V, from(h->v, first, k, 2), true},
        {WF_CUDNN_Y, from(h->y, first, q, 2), true},
        {WF_CUDNN_LSE, from(h->lse, first, tokens * h->heads, 4), true},
        {WF_CUDNN_SCALE, &scale, true},
        {WF_CUDNN_LOWEST, &lowest, true},
        {WF_CUDNN_ONE, &one, false},
        {WF_CUDNN_DY, from(h->dy, first, q, 2), false},
        {WF_CUDNN_DQ, from(h->dq, first, q, 2), false},
        {WF_CUDNN_DK, from(h->dk, first, k, 2), false},
        {WF_CUDNN_DV, from(h->dv, first, k, 2), false},
        {WF_CUDNN_DELTA, workspace, false},
        {WF_CUDNN_DQ_SUM, workspace + r.delta, false},
    };
    enum { MOST = sizeof all / sizeof *all };
    int64_t ids[MOST];
    void *data[MOST];
    int n = 0;

    for (int i = 0; i < MOST; i++) {
        bool wanted =
            s->key.backward ? all[i].id != WF_CUDNN_DQ_SUM || !s->key.ordered : all[i].forward;

        ids[n] = all[i].id;
        data[n] = all[i].data;
        n += wanted;
    }
    return execute(call, c, s, n, ids, data, workspace + r.delta + r.dq_sum);
}

bool wf_cudnn_attention(const wf_call *call, const wf_cuda_heads *h, bool backward,
                        void *workspace, wf_status *status)
{
    int64_t batch = at_once(call, h, backward), first = 0;
    struct wf_cudnn *c = wf_cudnn_may_serve(call, h) ? open_library(call) : NULL;

    if (!c || !c->api)
        return false;
    while (first < h->batch) {
        int64_t count = h->batch - first < batch ? h->batch - first : batch;
        served *s = plan_for(call, c, h, count, backward, status);

        if (s)
            *status = run_sequences(call, c, s, h, first, workspace);
        else if (*status == WF_OK)
            return false; /* nothing was written that our kernels would not write */
        if (*status != WF_OK)
            return true;
        first += count;
    }
    return true;
}
