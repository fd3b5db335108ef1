/*
 * tests/cuda/test_cuda_graph.c - graph capture: work that is captured and replayed: the same
 * bits as op by op, with the numbers of the step that runs; memory is counted; what cannot be
 * captured is an error.
 */
#include "core/graph.h"
#include "core/host_data.h"
#include "kernels/devices.h"
#include "kernels/now.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/cuda/gpu_main.h"

enum {
    BATCH = 2,
    ROWS = 8,
    COLUMNS = 32,
    HEADS_HERE = 2,
    SITE = 3,
    FIRST = 5,
    GRAPH_STEPS = 10
};

static wf_context *open_context(bool plan)
{
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cuda_device(&(wf_cuda_options){.plan = plan}, &error);
    wf_context *ctx =
        wf_context_open(device, &(wf_context_options){.seed = 7, .plan = plan}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

static wf_tensor *new_tensor(wf_context *ctx, int member)
{
    wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(ROWS),
                     wf_dim_heads(HEADS_HERE, COLUMNS / HEADS_HERE)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);

    return t && !wf_context_dry_run(ctx) ? gpu_filled(t, member) : t;
}

/* All that has dropout in it; the sums that it adds to are given back on the way. */
static wf_tensor *with_dropout(wf_tensor *x)
{
    wf_tensor *gain, *heads, *y, *sum;
    wf_dim width = wf_dim_heads(HEADS_HERE, COLUMNS / HEADS_HERE);
    const wf_attention_options how = {.causal = true, .dropout = 0.25f, .site = SITE + 3};

    wf_scope_open(x->ctx);
    gain = wf_tensor_new(x->ctx, WF_F32, 1, &width, NULL, WF_MEMORY_ACTIVATION);
    wf_init_fill(gain, 0.5f);
    y = wf_dropout_add(x, wf_dropout(x, 0.25f, SITE), 0.25f, SITE + 1);
    y = wf_add_rmsnorm(x, y, gain, 1e-5f, 0.25f, SITE + 2, &sum);
    heads = wf_split_heads(y, COLUMNS / HEADS_HERE);
    y = wf_merge_heads(wf_attention(heads, heads, heads, &how));
    return wf_scope_return(x->ctx, wf_add(y, sum));
}

static void numbers_of(const wf_tensor *t, float *to)
{
    CU_ASSERT_EQUAL(wf_data_get(t, 0, BATCH * ROWS * COLUMNS, to), WF_OK);
}

/* Recorded at one step, run at others: what differs is read anew, and nothing else is. */
static void runs_are_calls(void)
{
    wf_context *ctx = open_context(false);
    float got[BATCH * ROWS * COLUMNS], want[BATCH * ROWS * COLUMNS];
    wf_tensor *x = new_tensor(ctx, 1), *y;
    wf_graph *graph;

    wf_context_position(ctx, 1, (wf_sequences){.first = FIRST});
    with_dropout(x);
    CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
    y = with_dropout(x);
    graph = wf_graph_end(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
    for (int64_t step = 2; step < 6; step++) {
        wf_scope_open(ctx);
        gpu_filled(x, (int)step / 2);
        CU_ASSERT_EQUAL(wf_graph_run(graph, &(wf_now){.step = step}, sizeof(wf_now)), WF_OK);
        numbers_of(y, got);
        wf_context_position(ctx, step, (wf_sequences){.first = FIRST});
        numbers_of(with_dropout(x), want);
        CU_ASSERT(memcmp(got, want, sizeof got) == 0);
        wf_scope_close(ctx);
    }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_graph_free(graph);
    wf_context_close(ctx);
}

enum { UPDATES = 5 };

/* Updates with numbers of their step: all of them, with a factor of the rate, the rate alone,
   the scale alone; and one with numbers of its own. */
static void update_all(wf_tensor *const *p, wf_tensor *grad, wf_tensor *m, wf_tensor *v,
                       float lr, float bias1, float bias2, float scale)
{
    const wf_update step = {.lr = lr,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .bias1 = bias1,
                            .bias2 = bias2,
                            .grad_scale = scale,
                            .step_lr = true,
                            .step_scale = true,
                            .lr_times = 1};
    wf_update group = step, rate = step, clipped = step;
    const wf_update own = {.lr = 0.5f, .grad_scale = 2};

    group.lr *= 0.1f;
    group.lr_times = 0.1f;
    rate.step_scale = false;
    rate.grad_scale = 3;
    rate.beta1 = 0;
    clipped.step_lr = false;
    clipped.lr = -1;
    clipped.beta1 = 0;
    wf_adamw(p[0], grad, m, v, &step);
    wf_update_elements(p[1], grad, 1, &m, wf_update_lion, &group);
    wf_sgd(p[2], grad, m, &rate);
    wf_sgd(p[3], grad, m, &clipped);
    wf_sgd(p[4], grad, m, &own);
}

static void updates(void)
{
    wf_context *ctx = open_context(false);
    float got[UPDATES][BATCH * ROWS * COLUMNS], want[UPDATES][BATCH * ROWS * COLUMNS];
    wf_tensor *p[UPDATES], *m = new_tensor(ctx, 2), *v = wf_mul(m, m),
                           *grad = new_tensor(ctx, 3);
    wf_graph *graph;

    for (int i = 0; i < UPDATES; i++)
        p[i] = new_tensor(ctx, 1);
    CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
    update_all(p, grad, m, v, 77, 1, 1, 1); /* these belong to a step that is past */
    graph = wf_graph_end(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
    wf_graph_run(graph, &(wf_now){.lr = 0.25f, .bias1 = 10, .bias2 = 20, .grad_scale = 0.5f},
                 sizeof(wf_now));
    for (int i = 0; i < UPDATES; i++) {
        numbers_of(p[i], got[i]);
        gpu_filled(p[i], 1);
    }
    gpu_filled(m, 2);
    v = wf_mul(m, m);
    update_all(p, grad, m, v, 0.25f, 10, 20, 0.5f);
    for (int i = 0; i < UPDATES; i++) {
        numbers_of(p[i], want[i]);
        CU_ASSERT(memcmp(got[i], want[i], sizeof got[i]) == 0);
    }
    wf_graph_free(graph);
    wf_context_close(ctx);
}

static size_t in_use(wf_context *ctx, wf_memory_kind kind)
{
    wf_memory_report report;

    wf_pool_report(wf_context_pool(ctx), &report);
    return kind == WF_MEMORY_KINDS ? report.in_use : report.now[kind];
}

/* Memory that lived while a graph was recorded and is freed counts as the graph's, in a plan as
   well. */
static void memory(void)
{
    size_t held[2];

    for (int plan = 0; plan < 2; plan++) {
        wf_context *ctx = open_context(plan);
        wf_tensor *x = new_tensor(ctx, 1);
        size_t before = in_use(ctx, WF_MEMORY_KINDS);
        wf_graph *graph;

        wf_scope_open(ctx);
        CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
        with_dropout(x);
        graph = wf_graph_end(ctx);
        CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
        held[plan] = in_use(ctx, WF_MEMORY_GRAPH);
        CU_ASSERT(held[plan] >= 4 * BATCH * ROWS * COLUMNS * sizeof(float));
        CU_ASSERT_EQUAL(wf_graph_run(graph, &(wf_now){.step = 1}, sizeof(wf_now)), WF_OK);
        CU_ASSERT_EQUAL(in_use(ctx, WF_MEMORY_GRAPH), held[plan]);
        wf_scope_close(ctx);
        wf_graph_free(graph);
        CU_ASSERT_EQUAL(in_use(ctx, WF_MEMORY_KINDS), before);
        wf_context_close(ctx);
    }
    CU_ASSERT_EQUAL(held[0], held[1]);
}

static void check_lost(void (*ask)(wf_tensor *x), const char *says)
{
    wf_context *ctx = open_context(false);
    wf_tensor *x = new_tensor(ctx, 1), *old = wf_tensor_retain(new_tensor(ctx, 2));

    CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
    wf_add(x, old);
    ask(old);
    wf_add(x, x);
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EDEVICE);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, says));
    wf_tensor_release(old);
    wf_context_close(ctx);
}

static void read_it(wf_tensor *x)
{
    float value;

    wf_data_get(x, 0, 1, &value);
}

static void write_it(wf_tensor *x)
{
    gpu_filled(x, 4);
}

/* Memory of before would be given back by every run. */
static void drop_it(wf_tensor *x)
{
    wf_tensor_drop(x);
}

/* A call that the device never saw is reported as the mistake. */
static void a_mistake(void)
{
    wf_context *ctx = open_context(false);
    wf_tensor *x = new_tensor(ctx, 1);

    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_OK);
    wf_add(x, x);
    wf_add(x, NULL);
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
    wf_context_close(ctx);
}

static void what_cannot_be(void)
{
    wf_context *ctx = open_context(false);
    wf_error error = {WF_OK, ""};

    check_lost(read_it, "a copy to the host: the GPU says operation not permitted when stream");
    check_lost(write_it, "a copy to the GPU: the GPU says operation not permitted when stream");
    check_lost(drop_it, "memory given back: the GPU says invalid argument");
    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_OK);
    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_EINVAL);
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    wf_context_close(ctx);
    a_mistake();
    ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "device cpu has no graphs"));
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"a run has the bits of the calls", runs_are_calls},
                                    {"updates of the step that runs", updates},
                                    {"memory is counted", memory},
                                    {"what cannot be captured", what_cannot_be},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_graph", tests);
}
