/*
 * kernels/cuda/cudnn/graph_internal.h - cuDNN's backend interface from C: the library, loaded
 * when it is first asked for, and graphs of operations that become plans. For the files of this
 * folder.
 *
 * A graph keeps its first failure and ignores what follows, as a context does.
 */
#ifndef WF_KERNELS_CUDA_CUDNN_GRAPH_INTERNAL_H
#define WF_KERNELS_CUDA_CUDNN_GRAPH_INTERNAL_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

/* The functions that are used; the plugin does not link to cuDNN, so that it loads without. */
#define WF_CUDNN_FUNCTIONS(F)                                                                  \
    F(cudnnGetVersion)                                                                         \
    F(cudnnGetErrorString)                                                                     \
    F(cudnnGetLastErrorString)                                                                 \
    F(cudnnCreate)                                                                             \
    F(cudnnDestroy)                                                                            \
    F(cudnnSetStream)                                                                          \
    F(cudnnBackendCreateDescriptor)                                                            \
    F(cudnnBackendDestroyDescriptor)                                                           \
    F(cudnnBackendSetAttribute)                                                                \
    F(cudnnBackendGetAttribute)                                                                \
    F(cudnnBackendFinalize)                                                                    \
    F(cudnnBackendExecute)

typedef struct wf_cudnn_api {
#define WF_CUDNN_MEMBER(name) __typeof__(&name) name;
    WF_CUDNN_FUNCTIONS(WF_CUDNN_MEMBER)
#undef WF_CUDNN_MEMBER
} wf_cudnn_api;

/* libcudnn.so.9, loaded once; NULL where it is not there or must not be used, *why says so. */
const wf_cudnn_api *wf_cudnn_load(const char **why);

/* ---- graph.c ---- */

enum {
    WF_CUDNN_DESCRIPTORS = 224,
    WF_CUDNN_OPS = 40,
    WF_CUDNN_DIMS = 4,
    WF_CUDNN_KNOBS = 64,
    WF_CUDNN_SCALARS = 8,
    WF_CUDNN_VIRTUAL = 1000 /* ids of tensors that are never in memory begin here */
};

typedef cudnnBackendDescriptor_t wf_cudnn_descriptor;

typedef struct wf_cudnn_graph {
    const wf_cudnn_api *api;
    wf_cudnn_descriptor all[WF_CUDNN_DESCRIPTORS], op[WF_CUDNN_OPS];
    int n_all, n_ops;
    wf_cudnn_descriptor scalar[WF_CUDNN_SCALARS];
    int64_t scalar_id[WF_CUDNN_SCALARS], next_virtual;
    int n_scalars;
    bool failed;
    char text[256]; /* the failure */
} wf_cudnn_graph;

typedef struct wf_cudnn_shape {
    int64_t dim[WF_CUDNN_DIMS], stride[WF_CUDNN_DIMS];
} wf_cudnn_shape;

void wf_cudnn_graph_begin(wf_cudnn_graph *g, const wf_cudnn_api *api);
void wf_cudnn_graph_end(wf_cudnn_graph *g);

/* Returns a descriptor that the graph owns, not finalised yet; and finalising one, under a
   name. */
wf_cudnn_descriptor wf_cudnn_new(wf_cudnn_graph *g, cudnnBackendDescriptorType_t type);
void wf_cudnn_set(wf_cudnn_graph *g, wf_cudnn_descriptor d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *value);
void wf_cudnn_finalize(wf_cudnn_graph *g, wf_cudnn_descriptor d, const char *what);

/* Returns a tensor in memory, one that is not (packed, or with the strides given), and a number
   of 4 bytes that is handed over when the plan runs (one for an id). */
wf_cudnn_descriptor wf_cudnn_tensor(wf_cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                    const wf_cudnn_shape *shape);
wf_cudnn_descriptor wf_cudnn_virtual(wf_cudnn_graph *g, cudnnDataType_t type,
                                     const wf_cudnn_shape *shape);
wf_cudnn_descriptor wf_cudnn_scalar(wf_cudnn_graph *g, int64_t id, cudnnDataType_t type);

/* Adds y = mode(x, b, choice), operands that the mode takes; axis is of GEN_INDEX alone, else
   -1. */
void wf_cudnn_pointwise(wf_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                        wf_cudnn_descriptor x, wf_cudnn_descriptor b,
                        wf_cudnn_descriptor choice, wf_cudnn_descriptor y, int64_t axis);
/* Adds dx = dy (1 - tanh(x)^2). */
void wf_cudnn_tanh_gradient(wf_cudnn_graph *g, wf_cudnn_descriptor dy, wf_cudnn_descriptor x,
                            wf_cudnn_descriptor dx);
void wf_cudnn_matmul(wf_cudnn_graph *g, wf_cudnn_descriptor a, wf_cudnn_descriptor b,
                     wf_cudnn_descriptor c);
void wf_cudnn_reduce(wf_cudnn_graph *g, cudnnReduceTensorOp_t op, wf_cudnn_descriptor x,
                     wf_cudnn_descriptor y);
void wf_cudnn_reshape(wf_cudnn_graph *g, wf_cudnn_descriptor x, wf_cudnn_descriptor y);

/* ---- plan.c ---- */

/* An engine and its knobs: which kernel serves, and how. */
typedef struct wf_cudnn_engine {
    int64_t index;
    int n_knobs;
    cudnnBackendKnobType_t knob[WF_CUDNN_KNOBS];
    int64_t value[WF_CUDNN_KNOBS];
} wf_cudnn_engine;

/* Returns a device's properties: those of GPU `ordinal`, or as text for a GPU that is not
   here. */
wf_cudnn_descriptor wf_cudnn_properties(wf_cudnn_graph *g, int ordinal, const char *json);

/* Lists the engines that cuDNN holds best for the graph on such a device, best first; returns
   how many. */
int wf_cudnn_engines(wf_cudnn_graph *g, wf_cudnn_descriptor properties, int room,
                     wf_cudnn_engine *engine);

/* Makes the graph's plan by an engine, and finds the workspace that it needs; NULL where the
   engine cannot serve (the graph keeps the reason, and another engine can be tried). */
wf_cudnn_descriptor wf_cudnn_plan(wf_cudnn_graph *g, wf_cudnn_descriptor properties,
                                  const wf_cudnn_engine *engine, int64_t *workspace);

/* ---- attention.c ---- */

/* Ids of the tensors of attention's graphs. */
enum {
    WF_CUDNN_Q = 1,
    WF_CUDNN_K,
    WF_CUDNN_V,
    WF_CUDNN_Y,
    WF_CUDNN_LSE,
    WF_CUDNN_DY,
    WF_CUDNN_DQ,
    WF_CUDNN_DK,
    WF_CUDNN_DV,
    WF_CUDNN_DELTA,  /* y . dy, of the gradient */
    WF_CUDNN_DQ_SUM, /* dq in float, where it is summed without an order */
    WF_CUDNN_SCALE,
    WF_CUDNN_LOWEST, /* -inf */
    WF_CUDNN_ONE,
    WF_CUDNN_WINDOW, /* an int32 */
    WF_CUDNN_CAP
};

/* Names the order in which a gradient sums dq. */
typedef enum wf_cudnn_order {
    WF_CUDNN_ANY_ORDER, /* as tiles of keys come */
    WF_CUDNN_BY_SCORES, /* as one product, for a workspace of tokens^2 */
    WF_CUDNN_BY_TILES   /* tile after tile, which wait for each other: an engine of Hopper */
} wf_cudnn_order;

typedef struct wf_cudnn_heads {
    int64_t batch, heads, groups, tokens, dim;
    int64_t window; /* keys that a query sees; 0: all before it */
    wf_cudnn_order order;
    bool capped; /* scores */
    bool backward;
} wf_cudnn_heads;

/* Adds the operations to an empty graph; false where something does not fit (the graph says
   what). */
bool wf_cudnn_attention_graph(wf_cudnn_graph *g, const wf_cudnn_heads *a);

/* Returns the engine that sums dq tile after tile in one order (cuDNN 9.25 and later, compute
   capability 9). cuDNN proposes it for no graph: it has to be named. */
wf_cudnn_engine wf_cudnn_ordered_engine(void);

/* Returns bytes that an engine may need for it, known without one: the scores where dq waits
   for its order, dq in float where it does not, each head's dk and dv where groups share them,
   and a little. */
int64_t wf_cudnn_attention_engine(const wf_cudnn_heads *a);

#endif
