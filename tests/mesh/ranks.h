/*
 * tests/mesh/ranks.h - what the tests of communication share: arithmetic that is independent of
 * the kernels, numbers whose sums show their order, and a world with either path of
 * collectives.
 *
 * CUnit's assertions are for the main thread; a rank says NEED(condition), which fails the
 * world.
 */
#ifndef WF_TESTS_MESH_RANKS_H
#define WF_TESTS_MESH_RANKS_H

#include "core/context.h"
#include "core/numerics/tree.h"
#include "mesh/cluster/launch.h"
#include "mesh/transport/launcher.h"
#include "mesh/transport/registry_internal.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                                        \
    do {                                                                                       \
        if (!(condition))                                                                      \
            return wf_error_set(&rank->error, WF_EINTERNAL, "line %d: %s", __LINE__,           \
                                #condition);                                                   \
    } while (0)

#define GOOD(call)                                                                             \
    do {                                                                                       \
        wf_status good_status = (call);                                                        \
        if (good_status != WF_OK)                                                              \
            return good_status;                                                                \
    } while (0)

/* The context's error becomes the rank's. */
static inline wf_status give_up(wf_rank *rank, const wf_context *ctx)
{
    return wf_error_set(&rank->error, wf_context_status(ctx), "%s",
                        wf_context_error(ctx)->text);
}

/* Returns the status of a rank's work: its own, or the context's where it gives no reason. */
static inline wf_status came_to(wf_rank *rank, const wf_context *ctx, wf_status status)
{
    bool said = status != WF_OK && rank->error.code != WF_OK;

    return said || wf_context_status(ctx) == WF_OK ? status : give_up(rank, ctx);
}

/* The error has this code and all these words. */
static inline bool says(const wf_error *error, wf_status code, const char *a, const char *b)
{
    bool good = error->code == code && strstr(error->text, a) && strstr(error->text, b);

    if (!good)
        printf("\n    status %d: %s\n    not: %d, %s, %s\n", (int)error->code, error->text,
               (int)code, a, b);
    return good;
}

static inline void test_sum(const float *const *src, int64_t n_src, bool tree, float *y,
                            int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float open[WF_TREE_DEPTH];
        int depth = 0;

        for (int64_t s = 0; s < n_src; s++) {
            open[depth++] = src[s][i];
            for (int m = tree ? wf_tree_merges(n_src, s) : s > 0; m > 0; m--, depth--)
                open[depth - 2] += open[depth - 1];
        }
        y[i] = open[0];
    }
}

static inline void test_maximum(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] > b[i] ? a[i] : b[i];
}

/* Returns the number that a member holds at index i of buffer b: of widely differing sizes. */
static inline float number(int member, int64_t b, int64_t i)
{
    uint64_t x = (uint64_t)member * 0x9e3779b97f4a7c15u + (uint64_t)b * 0xbf58476d1ce4e5b9u +
                 (uint64_t)i * 0x94d049bb133111ebu + 1;

    x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    return (float)((int64_t)(x % 2000001) - 1000000) / (float)(1 << (x >> 32) % 20);
}

/* The sum over members [first, first + n), halved at the midpoint: the definition, by
 * recursion. */
static inline float tree_of(int first, int n, int64_t b, int64_t i)
{
    if (n == 1)
        return number(first, b, i);
    return tree_of(first, n / 2, b, i) + tree_of(first + n / 2, n - n / 2, b, i);
}

static inline float chain_of(int n, int64_t b, int64_t i)
{
    float sum = number(0, b, i);

    for (int m = 1; m < n; m++)
        sum += number(m, b, i);
    return sum;
}

static inline float top_of(int n, int64_t b, int64_t i)
{
    float top = number(0, b, i);

    for (int m = 1; m < n; m++)
        top = number(m, b, i) > top ? number(m, b, i) : top;
    return top;
}

static inline bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static const wf_reduce_ops test_ops = {.sum = test_sum, .maximum = test_maximum};

/* The transport that WEFT_TEST_TRANSPORT names, so that the same cases run over any; else
   threads.
*/
static inline const char *test_transport(void)
{
    return getenv("WEFT_TEST_TRANSPORT");
}

/* The threads, as a transport that cannot show memory: the other path of every collective.
   NULL, which is the transport as launched, where the test is over another one. */
static inline const wf_transport *staged_threads(void)
{
    static wf_transport packed;

    if (test_transport())
        return NULL;
    packed = wf_transport_threads;
    packed.direct = NULL;
    return &packed;
}

/* NULL, or the device of this rank whose memory the test's buffers are (device.c, and another
   one for transports of devices); and whatever it was asked for is done. */
struct wf_device *test_device(void);
void test_device_settle(void);

/* Launch; every rank shall succeed. Worlds that cannot be shared out over the processes are
   left out. */
static inline void run_ranks(int ranks, wf_status (*work)(wf_rank *, void *), void *arg)
{
    wf_error error = {WF_OK, ""};
    wf_launch_options o = {.ranks = ranks, .transport = test_transport()};
    wf_launcher launcher = wf_launcher_detected();

    if (ranks % launcher.processes ||
        (strcmp(launcher.kind, "torchrun") == 0 && ranks != launcher.processes))
        return;
    CU_ASSERT_EQUAL(wf_launch(&o, work, arg, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %d ranks: %s\n", ranks, error.text);
}

#endif
