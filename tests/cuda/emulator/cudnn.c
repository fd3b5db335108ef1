/*
 * tests/cuda/emulator/cudnn.c - graphs of cuDNN's operations on the CPU, as awkward as they are
 * allowed to be: which engine is proposed first, and so the order of sums, depends on how many
 * heads there are; a gradient that sums dq in float has other bits each time, but for the
 * engine that has one order (9.25 and later); a plan writes all of the workspace that it asks
 * for; and tensors that leave their allocation stop the program.
 *
 * WEFT_EMULATOR_CUDNN is the version that it has; without it there is no cuDNN.
 */
#include "cudnn.h"
#include "cudnn_program.h"
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTRIBUTES = 12,
    ORDERED_VERSION = 92500,
    ORDERED = 6,
    IN_ORDER = 4,
    TILE = 128,
    LITTLE = 1 << 20
};

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t count;
    void *values;
} attribute;

typedef struct descriptor {
    cudnnBackendDescriptorType_t type;
    attribute attribute[ATTRIBUTES];
    int n;
    program *plan; /* an execution plan has it */
} descriptor;

struct cudnnContext {
    cudaStream_t stream;
};

static long runs; /* plans that were run */

long emulator_cudnn_runs(void)
{
    return runs;
}

size_t cudnnGetVersion(void)
{
    const char *version = getenv("WEFT_EMULATOR_CUDNN");

    return version ? strtoul(version, NULL, 10) : 0;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "success" : "not supported";
}

void cudnnGetLastErrorString(char *text, size_t room)
{
    snprintf(text, room, "by the emulated cuDNN");
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors: attributes by their names ---- */

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    default:
        return 4;
    }
}

static const attribute *find(const descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->attribute[i].name == name)
            return &d->attribute[i];
    return NULL;
}

static int64_t number(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const attribute *a = find(d, name);

    return a ? *(const int64_t *)a->values : 0;
}

static int code(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const attribute *a = find(d, name);

    return a ? *(const int *)a->values : -1;
}

static bool flag(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const attribute *a = find(d, name);

    return a && *(const bool *)a->values;
}

static const descriptor *inner(const descriptor *d, cudnnBackendAttributeName_t name)
{
    const attribute *a = find(d, name);

    return a ? *(const descriptor *const *)a->values : NULL;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *result)
{
    descriptor *d = calloc(1, sizeof *d);

    *result = d;
    if (!d)
        return CUDNN_STATUS_BAD_PARAM;
    d->type = type;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t of)
{
    descriptor *d = of;

    for (int i = 0; d && i < d->n; i++)
        free(d->attribute[i].values);
    if (d)
        free(d->plan);
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values)
{
    descriptor *d = of;
    size_t bytes = (size_t)count * size_of(type);
    attribute a = {name, count, malloc(bytes + 8)};

    if (d->n == ATTRIBUTES || !a.values) {
        free(a.values);
        return CUDNN_STATUS_BAD_PARAM;
    }
    memset(a.values, 0, bytes + 8);
    memcpy(a.values, values, bytes);
    d->attribute[d->n++] = a;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- a graph's program ---- */

static int add_tensor(program *p, const descriptor *d)
{
    const attribute *dims = d ? find(d, CUDNN_ATTR_TENSOR_DIMENSIONS) : NULL;
    const attribute *strides = d ? find(d, CUDNN_ATTR_TENSOR_STRIDES) : NULL;
    int64_t id = d ? number(d, CUDNN_ATTR_TENSOR_UNIQUE_ID) : 0;
    graph_tensor *t = &p->tensor[p->n_tensors];

    if (!d)
        return -1;
    for (int i = 0; i < p->n_tensors; i++)
        if (p->tensor[i].id == id)
            return i;
    if (p->n_tensors == MOST_TENSORS)
        emulator_die("cuDNN: more tensors than are emulated");
    *t = (graph_tensor){.id = id,
                        .type = (cudnnDataType_t)code(d, CUDNN_ATTR_TENSOR_DATA_TYPE),
                        .is_virtual = flag(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                        .by_value = flag(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
    memcpy(t->dim, dims->values, sizeof t->dim);
    memcpy(t->stride, strides->values, sizeof t->stride);
    return p->n_tensors++;
}

static void add_op(program *p, const descriptor *d)
{
    graph_op *op = &p->op[p->n_ops++];
    const descriptor *what;

    *op = (graph_op){.kind = d->type, .b = -1, .choice = -1};
    if (d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
        bool gradient = find(d, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) != NULL;

        what = inner(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        op->mode = code(what, CUDNN_ATTR_POINTWISE_MODE);
        op->axis = (int)number(what, CUDNN_ATTR_POINTWISE_AXIS);
        op->a = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
        op->b = add_tensor(p, inner(d, gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                                                : CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        op->choice = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
        op->y = add_tensor(p, inner(d, gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                                                : CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    } else if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        op->a = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
        op->b = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
        op->y = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    } else if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        what = inner(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
        op->mode = code(what, CUDNN_ATTR_REDUCTION_OPERATOR);
        op->a = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
        op->y = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    } else {
        op->a = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
        op->y = add_tensor(p, inner(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    }
}

static program *program_of(const descriptor *graph)
{
    const attribute *ops = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    program *p = calloc(1, sizeof *p);

    if (!p || ops->count > MOST_OPS)
        emulator_die("cuDNN: no room for a graph");
    for (int64_t i = 0; i < ops->count; i++)
        add_op(p, ((const descriptor *const *)ops->values)[i]);
    return p;
}

/* The scores of a graph: the result of its first product. */
static const graph_tensor *scores_of(const program *p)
{
    for (int i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            return &p->tensor[p->op[i].y];
    emulator_die("cuDNN: a graph without a product");
}

/* ---- engines: 0 sums upwards, 1 downwards; ORDERED sums dq in one order ---- */

static void propose(const descriptor *heuristic, int64_t room, int64_t *count, void *values)
{
    const descriptor *graph = inner(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    program *p = program_of(graph);
    const graph_tensor *s = scores_of(p);
    int64_t best = s->dim[0] * s->dim[1] % 2;

    *count = room < 2 ? room : 2;
    for (int64_t i = 0; i < *count; i++) {
        int64_t engine = i == 0 ? best : 1 - best;

        cudnnBackendSetAttribute(((cudnnBackendDescriptor_t *)values)[i],
                                 CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine);
    }
    free(p);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room,
                                       int64_t *count, void *values)
{
    descriptor *d = of;
    int64_t engine;

    *count = 0;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        propose(d, room, count, values);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        engine = number(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
        *count = 1;
        return cudnnBackendSetAttribute(*(cudnnBackendDescriptor_t *)values,
                                        CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                        &engine);
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && d->plan) {
        *count = 1;
        *(int64_t *)values = (int64_t)d->plan->workspace_bytes;
    } else if (find(d, name)) {
        *count = 1;
        memcpy(values, find(d, name)->values, size_of(type));
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Returns the value of a knob of a configuration, 0 where it is not turned. */
static int64_t knob_of(const descriptor *config, cudnnBackendKnobType_t knob)
{
    const attribute *all = find(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);

    for (int64_t i = 0; all && i < all->count; i++) {
        const descriptor *choice = ((const descriptor *const *)all->values)[i];

        if (code(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) == (int)knob)
            return number(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    }
    return 0;
}

/* Which result of a graph is a float in memory that a product writes: dq's sum. */
static bool sums_in_float(const program *p)
{
    for (int i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR &&
            !p->tensor[p->op[i].y].is_virtual && p->tensor[p->op[i].y].type == CUDNN_DATA_FLOAT)
            return true;
    return false;
}

static int64_t in_tiles(int64_t n)
{
    return (n + TILE - 1) / TILE * TILE;
}

static cudnnStatus_t make_plan(descriptor *d)
{
    const descriptor *config = inner(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const descriptor *engine = inner(config, CUDNN_ATTR_ENGINECFG_ENGINE);
    program *p = program_of(inner(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
    int64_t index = number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    bool in_order = index == ORDERED && knob_of(config, CUDNN_KNOB_TYPE_STAGES) == IN_ORDER;
    const graph_tensor *s = scores_of(p);
    bool backward = p->tensor[p->op[0].y].type == CUDNN_DATA_FLOAT &&
                    p->op[0].kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;

    d->plan = p;
    p->descending = index == 1;
    p->any_order = !in_order;
    p->workspace_bytes = LITTLE;
    if (backward && !sums_in_float(p)) /* scores, in whole tiles */
        p->workspace_bytes +=
            (size_t)(s->dim[0] * s->dim[1] * in_tiles(s->dim[2]) * in_tiles(s->dim[3])) *
            sizeof(uint16_t);
    if (index == ORDERED ? in_order && sums_in_float(p) && cudnnGetVersion() >= ORDERED_VERSION
                         : index == 0 || index == 1)
        return CUDNN_STATUS_SUCCESS;
    free(p);
    d->plan = NULL;
    return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t of)
{
    descriptor *d = of;

    return d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? make_plan(d)
                                                              : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const descriptor *d = plan, *v = pack;
    const attribute *ids = find(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const attribute *data = find(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    program p = *d->plan;

    p.workspace = *(char *const *)find(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values;
    for (int t = 0; t < p.n_tensors; t++) {
        graph_tensor *one = &p.tensor[t];
        void *at = NULL;

        for (int64_t i = 0; i < ids->count; i++)
            if (((const int64_t *)ids->values)[i] == one->id)
                at = ((void *const *)data->values)[i];
        if (!one->is_virtual && !at)
            return CUDNN_STATUS_BAD_PARAM;
        if (one->by_value)
            memcpy(&one->value, at, sizeof one->value);
        else
            one->at = at;
    }
    runs++;
    return emulator_enqueue_copy(handle->stream, program_run, &p, sizeof p) == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}
