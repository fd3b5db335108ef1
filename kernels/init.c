/*
 * kernels/init.c - initialisation in place: element i of the whole is a function of (seed,
 * stream, i) alone, so that a shard is the slice of the whole.
 *
 *     init_fill       t = a
 *     init_normal     t = mean + deviation * normal(i)
 *     init_uniform    t = low + (high - low) * uniform(i)
 *     init_truncated  t = mean + deviation * normal(i) within [low, high]
 *     init_scale      t = factor * t
 *     init_elements   t = a function of the user's, of a run of elements at a time
 *     init_whole      the same of the whole tensor at once, of which each rank keeps its part
 *
 * The values are those of fp32 on every device, also where they are stored as f64.
 */
#include "core/numerics/random.h"
#include "kernels/shared_internal.h"
#include <math.h>

static wf_status in_place(const wf_op *op, wf_tensor *t, wf_init_attr *attr)
{
    wf_call call = {.op = op, .n_in = 1, .in = {t}, .attr = attr, .attr_size = sizeof *attr};

    if (t)
        attr->key = wf_random_key(wf_context_seed(t->ctx), WF_RANDOM_INIT);
    return wf_dispatch(&call);
}

/* Checks a deviation and bounds: what is outside would leave NaN, or another distribution,
   without a word. */
static wf_status check_numbers(const wf_tensor *t, const char *op, float mean, float deviation,
                               float low, float high)
{
    if (!t || (isfinite(mean) && isfinite(deviation) && deviation >= 0 && low <= high &&
               isfinite(low) && isfinite(high)))
        return WF_OK;
    return wf_fail(
        t->ctx, WF_EINVAL,
        "%s: mean %g, deviation %g, bounds %g and %g: all are finite, the deviation is "
        "not negative, and the first bound not above the second",
        op, (double)mean, (double)deviation, (double)low, (double)high);
}

wf_status wf_init_fill(wf_tensor *t, float value)
{
    wf_init_attr attr = {.arg = {value}};

    return in_place(&wf_op_init_fill, t, &attr);
}

wf_status wf_init_normal(wf_tensor *t, float mean, float deviation, uint64_t stream)
{
    wf_init_attr attr = {.stream = stream, .arg = {mean, deviation}};

    if (check_numbers(t, "init_normal", mean, deviation, 0, 0) != WF_OK)
        return WF_EINVAL;
    return in_place(&wf_op_init_normal, t, &attr);
}

wf_status wf_init_uniform(wf_tensor *t, float low, float high, uint64_t stream)
{
    wf_init_attr attr = {.stream = stream, .arg = {low, high}};

    if (check_numbers(t, "init_uniform", 0, 0, low, high) != WF_OK)
        return WF_EINVAL;
    return in_place(&wf_op_init_uniform, t, &attr);
}

wf_status wf_init_truncated(wf_tensor *t, float mean, float deviation, float low, float high,
                            uint64_t stream)
{
    wf_init_attr attr = {.stream = stream, .arg = {mean, deviation, low, high}};
    wf_truncated check;

    if (t && !wf_truncate(&check, mean, deviation, low, high))
        return wf_fail(t->ctx, WF_EINVAL,
                       "init_truncated: [%g, %g] holds less than a thousandth of the normal "
                       "distribution of mean %g and deviation %g: widen it, or take a uniform "
                       "one",
                       (double)low, (double)high, (double)mean, (double)deviation);
    return in_place(&wf_op_init_truncated, t, &attr);
}

wf_status wf_init_scale(wf_tensor *t, float factor)
{
    wf_init_attr attr = {.arg = {factor}};

    return in_place(&wf_op_init_scale, t, &attr);
}

static wf_init_attr with_args(const float *arg, uint64_t stream)
{
    wf_init_attr attr = {.stream = stream};

    for (int i = 0; arg && i < WF_INIT_ARGS; i++)
        attr.arg[i] = arg[i];
    return attr;
}

wf_status wf_init_elements(wf_tensor *t, wf_init_run *run, const float arg[WF_INIT_ARGS],
                           uint64_t stream)
{
    wf_init_attr attr = with_args(arg, stream);

    attr.elements = run;
    return in_place(&wf_op_init_elements, t, &attr);
}

wf_status wf_init_whole(wf_tensor *t, wf_init_all *all, const float arg[WF_INIT_ARGS],
                        uint64_t stream)
{
    wf_init_attr attr = with_args(arg, stream);

    attr.whole = all;
    return in_place(&wf_op_init_whole, t, &attr);
}

typedef double element(double was, uint64_t index, const wf_init_attr *attr);

static wf_status each(const wf_call *call, element *make)
{
    double *x = call->in[0]->data;
    int64_t n = wf_tensor_local_count(call->in[0]), run;

    for (int64_t i = 0; i < n; i++)
        x[i] = make(x[i], (uint64_t)wf_global_index(call->in[0], 0, i, &run), call->attr);
    return WF_OK;
}

static double fill(double was, uint64_t index, const wf_init_attr *attr)
{
    (void)was, (void)index;
    return attr->arg[0];
}

static double normal(double was, uint64_t index, const wf_init_attr *attr)
{
    (void)was;
    return attr->arg[0] + attr->arg[1] * wf_random_normal(attr->key, attr->stream, index);
}

static double uniform(double was, uint64_t index, const wf_init_attr *attr)
{
    (void)was;
    return attr->arg[0] +
           (attr->arg[1] - attr->arg[0]) * wf_random_uniform(attr->key, attr->stream, index);
}

static double truncated(double was, uint64_t index, const wf_init_attr *attr)
{
    wf_truncated t;

    (void)was;
    wf_truncate(&t, attr->arg[0], attr->arg[1], attr->arg[2], attr->arg[3]);
    return wf_random_truncated(&t, attr->key, attr->stream, index);
}

static double scale(double was, uint64_t index, const wf_init_attr *attr)
{
    (void)index;
    return (float)was * attr->arg[0];
}

static double elements(double was, uint64_t index, const wf_init_attr *attr)
{
    const wf_init_site site = wf_init_site_of(attr);
    float x = (float)was;

    attr->elements(&x, 1, (int64_t)index, &site);
    return x;
}

static wf_status fill_reference(const wf_call *call, void *workspace)
{
    (void)workspace;
    return each(call, fill);
}

static wf_status normal_reference(const wf_call *call, void *workspace)
{
    (void)workspace;
    return each(call, normal);
}

static wf_status uniform_reference(const wf_call *call, void *workspace)
{
    (void)workspace;
    return each(call, uniform);
}

static wf_status truncated_reference(const wf_call *call, void *workspace)
{
    (void)workspace;
    return each(call, truncated);
}

static wf_status scale_reference(const wf_call *call, void *workspace)
{
    (void)workspace;
    return each(call, scale);
}

static wf_status elements_reference(const wf_call *call, void *workspace)
{
    (void)workspace;
    return each(call, elements);
}

static size_t whole_workspace(const wf_call *call)
{
    return (size_t)wf_tensor_count(call->in[0]) * sizeof(float);
}

static wf_status whole_reference(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    const wf_init_site site = wf_init_site_of(attr);
    const float *whole = workspace;
    const wf_tensor *t = call->in[0];
    double *x = t->data;
    int64_t n = wf_tensor_local_count(t), run;
    wf_status status = attr->whole(workspace, t, &site);

    for (int64_t i = 0; status == WF_OK && i < n; i++)
        x[i] = whole[wf_global_index(t, 0, i, &run)];
    return status;
}

const wf_op wf_op_init_fill = {WF_OP_ROW(init_fill), .reference = {.run = fill_reference}};
const wf_op wf_op_init_normal = {WF_OP_ROW(init_normal),
                                 .reference = {.run = normal_reference}};
const wf_op wf_op_init_uniform = {WF_OP_ROW(init_uniform),
                                  .reference = {.run = uniform_reference}};
const wf_op wf_op_init_truncated = {WF_OP_ROW(init_truncated),
                                    .reference = {.run = truncated_reference}};
const wf_op wf_op_init_scale = {WF_OP_ROW(init_scale), .reference = {.run = scale_reference}};
const wf_op wf_op_init_elements = {WF_OP_ROW(init_elements),
                                   .reference = {.run = elements_reference}};
const wf_op wf_op_init_whole = {
    WF_OP_ROW(init_whole), .reference = {.run = whole_reference, .workspace = whole_workspace}};
