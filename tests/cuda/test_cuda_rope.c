/*
 * tests/cuda/test_cuda_rope.c - tables of rope on the emulated GPU: one for queries, keys, all
 * blocks and both directions; the numbers of other positions, factors and bases, whatever was
 * kept before; and graphs, whose tables stay.
 */
#include "core/graph.h"
#include "core/host_data.h"
#include "core/numerics/random.h"
#include "kernels/devices.h"
#include "kernels/now.h"
#include "kernels/ops.h"
#include "tests/cuda/gpu_main.h"
#include <math.h>
#include <string.h>

enum { TOKENS = 5, HEADS_HERE = 3, FEATURES = 8, N = TOKENS * HEADS_HERE * FEATURES };

static wf_tensor *heads_of(wf_context *ctx, int64_t tokens)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(tokens), wf_dim_width(HEADS_HERE),
                           wf_dim_width(FEATURES)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_host_data view;
    float *x = wf_data_write(t, false, &view);

    for (int64_t i = 0; x && i < wf_tensor_local_count(t); i++)
        x[i] = wf_random_normal(5, 9, (uint64_t)i);
    wf_data_close(&view);
    return t;
}

static int64_t launches(wf_context *ctx)
{
    return wf_context_device(ctx)->counts().launches;
}

/* The first call makes a table, and no other with these positions does. */
static void one_table(void)
{
    const wf_rope_options how = {.base = 10000}, other = {.base = 500};
    wf_context *ctx = gpu_context();
    wf_tensor *x = heads_of(ctx, TOKENS), *y;
    int64_t begun = launches(ctx);
    float got[N], want[N];

    y = wf_rope(x, &how, false);
    CU_ASSERT_EQUAL(launches(ctx) - begun, 2);
    begun = launches(ctx);
    y = wf_rope(y, &how, true);
    wf_rope(x, &how, false);
    CU_ASSERT_EQUAL(launches(ctx) - begun, 2);
    CU_ASSERT_EQUAL(wf_data_get(y, 0, N, got), WF_OK);
    CU_ASSERT_EQUAL(wf_data_get(x, 0, N, want), WF_OK);
    for (int i = 0; i < N; i++)
        CU_ASSERT_DOUBLE_EQUAL(got[i], want[i], 1e-5);
    begun = launches(ctx);
    wf_rope(x, &other, false);
    CU_ASSERT_EQUAL(launches(ctx) - begun, 2);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

/* Checks pair 0 of token t, which has rotated by `angle`. */
static void check_turn(wf_tensor *x, wf_tensor *y, int64_t t, double angle)
{
    float from[N], to[N];
    const int64_t at = t * HEADS_HERE * FEATURES;

    CU_ASSERT_EQUAL(wf_data_get(x, 0, N, from), WF_OK);
    CU_ASSERT_EQUAL(wf_data_get(y, 0, N, to), WF_OK);
    CU_ASSERT_DOUBLE_EQUAL(
        to[at], cos(angle) * (double)from[at] - sin(angle) * (double)from[at + FEATURES / 2],
        1e-5);
}

/* A list of factors is another one when its numbers are, wherever it lies. */
static void factors_that_change(void)
{
    wf_rope_factors factors = {.count = FEATURES / 2};
    const wf_rope_options how = {.base = 10000,
                                 .scaling = {.kind = WF_ROPE_LONG,
                                             .factor = 1,
                                             .original_positions = 64,
                                             .attention_factor = 1},
                                 .factors = &factors};
    wf_context *ctx = gpu_context();
    wf_tensor *x = heads_of(ctx, TOKENS);

    for (int k = 1; k <= 3; k++) {
        for (int i = 0; i < FEATURES / 2; i++)
            factors.short_factor[i] = factors.long_factor[i] = (float)k;
        check_turn(x, wf_rope(x, &how, false), TOKENS - 1, (TOKENS - 1.0) / k);
    }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

/* More positions and bases than tables are kept, again and again; positions begin anywhere. */
static void many_tables(void)
{
    enum { BASES = 7 };
    wf_context *ctx = gpu_context();

    for (int round = 0; round < 3; round++)
        for (int b = 1; b <= BASES; b++) {
            const wf_rope_options how = {.base = 100,
                                         .scaling = {.kind = WF_ROPE_LINEAR, .factor = b}};
            wf_tensor *x = heads_of(ctx, TOKENS), *y;
            const int64_t begun = launches(ctx);

            y = wf_rope(x, &how, round == 1);
            CU_ASSERT_EQUAL(launches(ctx) - begun, 2);
            if (round != 1)
                check_turn(x, y, TOKENS - 1, (TOKENS - 1.0) / b);
            x->start[1] = 2; /* as a rank of several has it */
            y = wf_rope(x, &how, false);
            x->start[1] = 0;
            check_turn(x, y, 3, 5.0 / b);
            check_turn(x, wf_rope(x, &how, false), 3, 3.0 / b);
        }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

/* Tables that a graph reads stay, and one that was not made before it is its own. */
static void graphs(void)
{
    const wf_rope_options kept = {.base = 10000}, made_in_it = {.base = 777};
    const wf_now now = {.step = 1};
    wf_context *ctx = gpu_context();
    wf_tensor *x = heads_of(ctx, TOKENS), *y[2], *want[2];
    float got[N], expected[N];
    wf_graph *graph;

    want[0] = wf_rope(x, &kept, false);
    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_OK);
    y[0] = wf_rope(x, &kept, false);
    y[1] = wf_rope(x, &made_in_it, true);
    graph = wf_graph_end(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
    for (int b = 1; b < 12; b++) /* others come after it */
        wf_rope(x, &(wf_rope_options){.base = 10 * b}, false);
    want[1] = wf_rope(x, &made_in_it, true);
    CU_ASSERT_EQUAL(wf_graph_run(graph, &now, sizeof now), WF_OK);
    for (int k = 0; k < 2; k++) {
        CU_ASSERT_EQUAL(wf_data_get(y[k], 0, N, got), WF_OK);
        CU_ASSERT_EQUAL(wf_data_get(want[k], 0, N, expected), WF_OK);
        CU_ASSERT(memcmp(got, expected, sizeof got) == 0);
    }
    wf_graph_free(graph);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"one table", one_table},
                                    {"factors that change", factors_that_change},
                                    {"many tables", many_tables},
                                    {"graphs", graphs},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_rope", tests);
}
