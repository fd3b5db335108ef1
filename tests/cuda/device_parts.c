/* tests/cuda/device_parts.c - the checks of device_parts.h. */
#include "tests/cuda/device_parts.h"
#include "core/numerics/bf16.h"
#include "core/numerics/random.h"
#include "kernels/devices.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wf_context *ctx;
static wf_device *device;
static uint64_t stream;
static size_t shift; /* elements */

void shift_to(size_t elements)
{
    shift = elements;
}

static size_t room_of(const wf_tensor *t)
{
    return bytes_of(t) + shift * wf_dtype_size(t->dtype);
}

void open_context(bool exact_off)
{
    const wf_context_options options = {.seed = 7, .exact_off = exact_off};
    wf_error error = {WF_OK, ""};

    device = wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error);
    if (!device)
        printf("%s\n", error.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    ctx = wf_context_open(device, &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    stream = 0;
}

void close_context(void)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    if (wf_context_status(ctx) != WF_OK)
        printf("%s\n", wf_context_error(ctx)->text);
    wf_context_close(ctx);
}

size_t bytes_of(const wf_tensor *t)
{
    return (size_t)wf_tensor_local_count(t) * wf_dtype_size(t->dtype);
}

numbers numbers_of(int ndim, const wf_dim *dims, wf_dtype dtype)
{
    numbers n = {.t = {.ctx = ctx, .dtype = dtype, .ndim = ndim}};

    for (int d = 0; d < ndim; d++) {
        n.t.dim[d] = dims[d];
        n.t.local[d] = dims[d].size;
    }
    n.host = malloc(bytes_of(&n.t) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(n.host);
    return n;
}

numbers random_numbers(int ndim, const wf_dim *dims, wf_dtype dtype)
{
    numbers n = numbers_of(ndim, dims, dtype);

    for (int64_t i = 0; i < wf_tensor_local_count(&n.t); i++) {
        float x = wf_random_normal(5, stream, (uint64_t)i);

        if (dtype == WF_BF16)
            ((uint16_t *)n.host)[i] = wf_bf16_of(x);
        else
            ((float *)n.host)[i] = x;
    }
    stream++;
    return n;
}

static double value(const numbers *n, int64_t i)
{
    return n->t.dtype == WF_BF16  ? (double)wf_bf16_value(((uint16_t *)n->host)[i])
           : n->t.dtype == WF_F64 ? ((double *)n->host)[i]
                                  : (double)((float *)n->host)[i];
}

void fill(numbers *n, float x)
{
    for (int64_t i = 0; i < wf_tensor_local_count(&n->t); i++)
        ((float *)n->host)[i] = x;
}

numbers part_of(const numbers *whole, int dim, int p, int r)
{
    numbers n = *whole;
    size_t outer = 1, inner = wf_dtype_size(n.t.dtype), row;

    if (dim >= 0) {
        const wf_dim *d = &n.t.dim[dim];

        n.t.start[dim] = wf_cut(d->size, d->grain, p, r);
        n.t.local[dim] = wf_cut(d->size, d->grain, p, r + 1) - n.t.start[dim];
    }
    n.host = malloc(bytes_of(&n.t) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(n.host);
    for (int d = 0; d < n.t.ndim; d++)
        if (d < dim)
            outer *= (size_t)n.t.local[d];
        else if (d > dim && dim >= 0)
            inner *= (size_t)n.t.local[d];
    row = dim < 0 ? bytes_of(&n.t) : inner * (size_t)n.t.local[dim];
    for (size_t o = 0; o < outer; o++)
        memcpy((char *)n.host + o * row,
               (char *)whole->host + (dim < 0 ? 0
                                              : o * inner * (size_t)n.t.dim[dim].size +
                                                    inner * (size_t)n.t.start[dim]),
               row);
    return n;
}

void run_on_device(const wf_call *like, numbers *in, numbers *out, bool add)
{
    wf_call call = *like;
    const wf_kernel *kernel = device->kernel(device, call.op);
    int n_in = call.n_in, n_out = call.n_out;
    wf_allocator *a = &device->allocator;
    size_t workspace_bytes;
    void *workspace = NULL;
    wf_error error = {WF_OK, ""};

    call.ctx = ctx;
    for (int i = 0; i < n_in + n_out; i++) {
        numbers *n = i < n_in ? &in[i] : &out[i - n_in];

        n->block = a->alloc(a->self, room_of(&n->t));
        CU_ASSERT_PTR_NOT_NULL_FATAL(n->block);
        n->t.data = (char *)n->block + shift * wf_dtype_size(n->t.dtype);
        if (i < n_in || add)
            device->memory->write(device, n->t.data, n->host, bytes_of(&n->t));
        *(i < n_in ? &call.in[i] : &call.out[i - n_in]) = &n->t;
    }
    workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
    if (workspace_bytes)
        workspace = a->alloc(a->self, workspace_bytes);
    CU_ASSERT_EQUAL(kernel->run(&call, workspace), WF_OK);
    for (int i = 0; i < (n_out ? n_out : n_in); i++) {
        numbers *n = n_out ? &out[i] : &in[i]; /* in place: operands are the results */

        CU_ASSERT_EQUAL(
            device->memory->read(device, n->host, n->t.data, bytes_of(&n->t), &error), WF_OK);
    }
    if (wf_context_status(ctx) != WF_OK)
        printf("\n%s\n", wf_context_error(ctx)->text);
    CU_ASSERT_EQUAL_FATAL(wf_context_status(ctx), WF_OK);
    for (int i = 0; i < n_in + n_out; i++) {
        numbers *n = i < n_in ? &in[i] : &out[i - n_in];

        a->release(a->self, n->block, room_of(&n->t));
        n->t.data = NULL;
    }
    if (workspace_bytes)
        a->release(a->self, workspace, workspace_bytes);
}

static numbers in_double(const numbers *n)
{
    numbers wide = numbers_of(n->t.ndim, n->t.dim, n->t.dtype == WF_I32 ? WF_I32 : WF_F64);

    if (n->t.dtype == WF_I32)
        memcpy(wide.host, n->host, bytes_of(&n->t));
    for (int64_t i = 0; n->t.dtype != WF_I32 && i < wf_tensor_local_count(&n->t); i++)
        ((double *)wide.host)[i] = value(n, i);
    wide.t.data = wide.host;
    return wide;
}

static double distance(const numbers *a, const numbers *b)
{
    double apart = 0, size = 0;

    for (int64_t i = 0; i < wf_tensor_local_count(&a->t); i++) {
        double x = value(a, i), y = value(b, i);

        apart += (x - y) * (x - y);
        size += y * y;
    }
    return size > 0 ? sqrt(apart / size) : sqrt(apart);
}

static bool like_bf16(const numbers *in, int n)
{
    for (int i = 0; i < n; i++)
        if (in[i].t.dtype == WF_BF16)
            return true;
    return false;
}

void check_reference(const wf_call *like, const numbers *in, const numbers *out,
                     const numbers *before)
{
    const wf_op *op = like->op;
    int n_in = like->n_in, n_out = like->n_out;
    wf_call call = *like;
    numbers x[WF_MAX_INPUTS], y[WF_MAX_OUTPUTS];
    void *workspace = NULL;

    call.ctx = ctx;
    for (int i = 0; i < n_in; i++) {
        x[i] = in_double(&in[i]);
        call.in[i] = &x[i].t;
    }
    for (int o = 0; o < n_out; o++) {
        y[o] = in_double(before ? &before[o] : &out[o]);
        call.out[o] = &y[o].t;
    }
    if (op->reference.workspace)
        workspace = malloc(op->reference.workspace(&call));
    CU_ASSERT_EQUAL(op->reference.run(&call, workspace), WF_OK);
    for (int o = 0; o < n_out; o++) {
        double off = distance(&out[o], &y[o]);
        double most = like_bf16(in, n_in) || out[o].t.dtype == WF_BF16 ? 1e-2 : 1e-5;

        CU_ASSERT(off <= most);
        if (!(off <= most))
            printf("\n%s: output %d is %g off\n", op->name, o, off);
        free(y[o].host);
    }
    for (int i = 0; i < n_in; i++)
        free(x[i].host);
    free(workspace);
}

void check_cpu(const wf_call *like, const numbers *in, const numbers *out)
{
    const wf_context_options options = {.seed = 7};
    wf_error error = {WF_OK, ""};
    wf_device *cpu = wf_cpu_device(1, &error);
    wf_context *on_cpu = cpu ? wf_context_open(cpu, &options, &error) : NULL;
    const wf_kernel *kernel = cpu ? cpu->kernel(cpu, like->op) : NULL;
    wf_call call = *like;
    numbers x[WF_MAX_INPUTS], y[WF_MAX_OUTPUTS];
    void *workspace;

    CU_ASSERT_PTR_NOT_NULL_FATAL(on_cpu);
    call.ctx = on_cpu;
    for (int i = 0; i < call.n_in + call.n_out; i++) {
        numbers *n = i < call.n_in ? &x[i] : &y[i - call.n_in];

        *n = part_of(i < call.n_in ? &in[i] : &out[i - call.n_in], WHOLE, 1, 0);
        n->t.ctx = on_cpu;
        n->t.data = n->host;
        *(i < call.n_in ? &call.in[i] : &call.out[i - call.n_in]) = &n->t;
    }
    workspace =
        aligned_alloc(64, (kernel->workspace ? kernel->workspace(&call) : 0) / 64 * 64 + 64);
    CU_ASSERT_EQUAL(kernel->run(&call, workspace), WF_OK);
    for (int o = 0; o < call.n_out; o++) {
        bool same = memcmp(y[o].host, out[o].host, bytes_of(&out[o].t)) == 0;

        CU_ASSERT(same);
        if (!same)
            printf("\n%s: output %d is not the CPU's\n", call.op->name, o);
        free(y[o].host);
    }
    for (int i = 0; i < call.n_in; i++)
        free(x[i].host);
    free(workspace);
    wf_context_close(on_cpu);
}

/* The midpoint tree over ranks, which is what chunks of a partial sum come to. */
static float tree_of(const float *x, int n)
{
    return n == 1 ? x[0] : tree_of(x, n / 2) + tree_of(x + n / 2, n - n / 2);
}

static float greatest_of(const float *x, int n)
{
    float most = x[0];

    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static void combine(numbers *const *parts, int p, int how, numbers *total)
{
    for (int64_t i = 0; i < wf_tensor_local_count(&total->t); i++) {
        float x[MOST_PARTS];

        for (int r = 0; r < p; r++)
            x[r] = ((float *)parts[r]->host)[i];
        ((float *)total->host)[i] = how == MAX ? greatest_of(x, p) : tree_of(x, p);
    }
}

static bool alike(const numbers *a, const numbers *b)
{
    return memcmp(a->host, b->host, bytes_of(&a->t)) == 0;
}

/* An output of all ranks is that of one: slice by slice, or summed. */
static bool same_as_whole(const numbers *whole, numbers (*out)[WF_MAX_OUTPUTS], int o, int dim,
                          int p)
{
    numbers *parts[MOST_PARTS], total = part_of(whole, WHOLE, 1, 0);
    bool same = true;

    for (int r = 0; r < p; r++) {
        numbers slice = part_of(whole, dim, p, r);

        parts[r] = &out[r][o];
        same = same && (dim < 0 || alike(&slice, parts[r]));
        free(slice.host);
    }
    if (dim < 0) {
        combine(parts, p, dim, &total);
        same = alike(whole, &total);
    }
    free(total.host);
    return same;
}

static void check_parts(const wf_call *call, const numbers *in, const numbers *whole,
                        const split *s, int p)
{
    int n_in = call->n_in, n_out = call->n_out;
    numbers part[WF_MAX_INPUTS], out[MOST_PARTS][WF_MAX_OUTPUTS];

    for (int r = 0; r < p; r++) {
        for (int i = 0; i < n_in; i++)
            part[i] = part_of(&in[i], s->in[i], p, r);
        for (int o = 0; o < n_out; o++)
            out[r][o] = part_of(&whole[o], s->out[o], p, r);
        run_on_device(call, part, out[r], false);
        for (int i = 0; i < n_in; i++)
            free(part[i].host);
    }
    for (int o = 0; o < n_out; o++) {
        bool same = same_as_whole(&whole[o], out, o, s->out[o], p);

        CU_ASSERT(same);
        if (!same)
            printf("\n%s: output %d is not the same over %d ranks\n", s->name, o, p);
    }
    for (int r = 0; r < p; r++)
        for (int o = 0; o < n_out; o++)
            free(out[r][o].host);
}

void check(const wf_call *call, numbers *in, numbers *out, const split *s, bool vanishing)
{
    run_on_device(call, in, out, false);
    if (!vanishing)
        check_reference(call, in, out, NULL);
    for (int p = 1; p <= MOST_PARTS; p++)
        if (s->parts >> p & 1)
            check_parts(call, in, out, s, p);
}
