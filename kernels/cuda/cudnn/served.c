/*
 * kernels/cuda/cudnn/served.c - cuDNN opened for a rank, and its plans, made when a shape is
 * first asked for.
 *
 * Exact mode has one engine with its knobs for all layouts, found for a single head of a single
 * sequence. Where there is no such plan for a call though there is one for the single head, the
 * call is an error: our kernels have other bits.
 *
 * The workspace is ours to promise before there is a plan: plans that need more are passed
 * over.
 */
#include "kernels/cuda/cudnn/serve_internal.h"
#include "kernels/cuda/matmul_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ENGINES = 8 };

static struct wf_cudnn *open_library(const wf_call *call, wf_cuda_math *math)
{
    struct wf_cudnn *c = math->cudnn = calloc(1, sizeof *math->cudnn);
    const char *why;

    if (!c)
        return NULL;
    c->api = wf_cudnn_load(&why);
    if (c->api &&
        (c->api->cudnnCreate(&c->handle) != CUDNN_STATUS_SUCCESS ||
         c->api->cudnnSetStream(c->handle, wf_cuda_of(call)->stream) != CUDNN_STATUS_SUCCESS))
        c->api = NULL;
    return c;
}

struct wf_cudnn *wf_cudnn_open(const wf_call *call)
{
    wf_cuda_math *math = wf_cuda_math_of(call);
    struct wf_cudnn *c = math ? math->cudnn : NULL;

    if (math && !c)
        c = open_library(call, math);
    return c && c->api ? c : NULL;
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

/* Makes the graph, and finds the best engine whose plan fits; or `only`, if it does. The engine
   that sums tile after tile is no proposal of cuDNN. */
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
    else if (s->key.order == WF_CUDNN_BY_TILES)
        engine[0] = wf_cudnn_ordered_engine();
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
    bool exact = wf_cuda_host_table->context_exact(call->ctx);
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

served *wf_cudnn_served(const wf_call *call, struct wf_cudnn *c, const wf_cudnn_heads *key,
                        wf_status *status)
{
    bool exact = wf_cuda_host_table->context_exact(call->ctx);
    wf_cudnn_heads one;
    served *single = NULL, *s;

    *status = WF_OK;
    if (exact) {
        memcpy(&one, key, sizeof one); /* its padding too: keys are compared as bytes */
        one.batch = one.heads = one.groups = 1;
        single = find(call, c, &one, NULL);
        if (!single || !single->plan)
            return NULL;
    }
    s = find(call, c, key, single ? &single->engine : NULL);
    if (s && s->plan)
        return s;
    if (exact)
        *status = wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "%s: cuDNN's engine for one head does not serve %" PRId64 " heads of %" PRId64
            " sequences (%s), so that a layout would show in the numbers; use .exact_off",
            call->op->name, key->heads, key->batch, s ? s->graph.text : "no memory");
    return NULL;
}

wf_status wf_cudnn_execute(const wf_call *call, struct wf_cudnn *c, const served *s, int n,
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
