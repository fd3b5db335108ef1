/* kernels/cuda/cudnn/graph.c - operations of cuDNN's backend, put together to graphs. */
#include "kernels/cuda/cudnn/graph_internal.h"
#include <stdio.h>
#include <string.h>

enum { ALIGNED = 16 };

static void check(wf_cudnn_graph *g, cudnnStatus_t status, const char *what)
{
    char more[160] = "";

    if (status == CUDNN_STATUS_SUCCESS || g->failed)
        return;
    g->failed = true;
    g->api->cudnnGetLastErrorString(more, sizeof more);
    snprintf(g->text, sizeof g->text, "%s: %s %s", what, g->api->cudnnGetErrorString(status),
             more);
}

void wf_cudnn_graph_begin(wf_cudnn_graph *g, const wf_cudnn_api *api)
{
    memset(g, 0, sizeof *g);
    g->api = api;
    g->next_virtual = WF_CUDNN_VIRTUAL;
}

void wf_cudnn_graph_end(wf_cudnn_graph *g)
{
    while (g->n_all > 0)
        g->api->cudnnBackendDestroyDescriptor(g->all[--g->n_all]);
}

wf_cudnn_descriptor wf_cudnn_new(wf_cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
    wf_cudnn_descriptor d = NULL;

    if (g->failed)
        return NULL;
    if (g->n_all == WF_CUDNN_DESCRIPTORS) {
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "more descriptors than a graph has room for");
        return NULL;
    }
    check(g, g->api->cudnnBackendCreateDescriptor(type, &d), "a descriptor");
    if (d)
        g->all[g->n_all++] = d;
    return d;
}

void wf_cudnn_set(wf_cudnn_graph *g, wf_cudnn_descriptor d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    char what[32];

    if (g->failed)
        return;
    snprintf(what, sizeof what, "attribute %d", (int)name);
    check(g, g->api->cudnnBackendSetAttribute(d, name, type, count, value), what);
}

void wf_cudnn_finalize(wf_cudnn_graph *g, wf_cudnn_descriptor d, const char *what)
{
    if (!g->failed)
        check(g, g->api->cudnnBackendFinalize(d), what);
}

static void set_descriptor(wf_cudnn_graph *g, wf_cudnn_descriptor d,
                           cudnnBackendAttributeName_t name, wf_cudnn_descriptor value)
{
    if (value)
        wf_cudnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static wf_cudnn_descriptor make_tensor(wf_cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                       const wf_cudnn_shape *shape, bool is_virtual,
                                       bool by_value)
{
    wf_cudnn_descriptor d = wf_cudnn_new(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t aligned = by_value ? (int64_t)sizeof(float) : ALIGNED;

    wf_cudnn_set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    wf_cudnn_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, WF_CUDNN_DIMS,
                 shape->dim);
    wf_cudnn_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, WF_CUDNN_DIMS,
                 shape->stride);
    wf_cudnn_set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    wf_cudnn_set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
    wf_cudnn_set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value)
        wf_cudnn_set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    wf_cudnn_finalize(g, d, "a tensor");
    return d;
}

wf_cudnn_descriptor wf_cudnn_tensor(wf_cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                    const wf_cudnn_shape *shape)
{
    return make_tensor(g, id, type, shape, false, false);
}

wf_cudnn_descriptor wf_cudnn_virtual(wf_cudnn_graph *g, cudnnDataType_t type,
                                     const wf_cudnn_shape *shape)
{
    return make_tensor(g, g->next_virtual++, type, shape, true, false);
}

wf_cudnn_descriptor wf_cudnn_scalar(wf_cudnn_graph *g, int64_t id, cudnnDataType_t type)
{
    static const wf_cudnn_shape one = {{1, 1, 1, 1}, {1, 1, 1, 1}};

    for (int i = 0; i < g->n_scalars; i++)
        if (g->scalar_id[i] == id)
            return g->scalar[i];
    if (g->n_scalars == WF_CUDNN_SCALARS) {
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "more numbers than a graph has room for");
        return NULL;
    }
    g->scalar_id[g->n_scalars] = id;
    g->scalar[g->n_scalars] = make_tensor(g, id, type, &one, false, true);
    return g->scalar[g->n_scalars++];
}

static void add_operation(wf_cudnn_graph *g, wf_cudnn_descriptor op, const char *what)
{
    wf_cudnn_finalize(g, op, what);
    if (!g->failed && g->n_ops == WF_CUDNN_OPS)
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "more operations than a graph has room for");
    if (!g->failed)
        g->op[g->n_ops++] = op;
}

/* Returns an operation by element without its tensors. */
static wf_cudnn_descriptor by_element(wf_cudnn_graph *g, cudnnPointwiseMode_t mode,
                                      cudnnDataType_t type, int64_t axis)
{
    wf_cudnn_descriptor what = wf_cudnn_new(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;

    wf_cudnn_set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    wf_cudnn_set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0)
        wf_cudnn_set(g, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    wf_cudnn_finalize(g, what, "what is computed by element");
    op = wf_cudnn_new(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    return op;
}

void wf_cudnn_pointwise(wf_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                        wf_cudnn_descriptor x, wf_cudnn_descriptor b,
                        wf_cudnn_descriptor choice, wf_cudnn_descriptor y, int64_t axis)
{
    wf_cudnn_descriptor op = by_element(g, mode, type, axis);

    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choice);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(g, op, "an operation by element");
}

void wf_cudnn_tanh_gradient(wf_cudnn_graph *g, wf_cudnn_descriptor dy, wf_cudnn_descriptor x,
                            wf_cudnn_descriptor dx)
{
    wf_cudnn_descriptor op = by_element(g, CUDNN_POINTWISE_TANH_BWD, CUDNN_DATA_FLOAT, -1);

    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    add_operation(g, op, "an operation by element");
}

void wf_cudnn_matmul(wf_cudnn_graph *g, wf_cudnn_descriptor a, wf_cudnn_descriptor b,
                     wf_cudnn_descriptor c)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    wf_cudnn_descriptor what = wf_cudnn_new(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op;

    wf_cudnn_set(g, what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    wf_cudnn_finalize(g, what, "how a product is computed");
    op = wf_cudnn_new(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    add_operation(g, op, "a product");
}

void wf_cudnn_reduce(wf_cudnn_graph *g, cudnnReduceTensorOp_t how, wf_cudnn_descriptor x,
                     wf_cudnn_descriptor y)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    wf_cudnn_descriptor what = wf_cudnn_new(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op;

    wf_cudnn_set(g, what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                 &how);
    wf_cudnn_set(g, what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    wf_cudnn_finalize(g, what, "how a reduction is computed");
    op = wf_cudnn_new(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(g, op, "a reduction");
}

void wf_cudnn_reshape(wf_cudnn_graph *g, wf_cudnn_descriptor x, wf_cudnn_descriptor y)
{
    wf_cudnn_descriptor op = wf_cudnn_new(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, op, "another shape");
}
