/*
 * tests/parallel/terms.h - terms of a sum over micro-steps, and random orders of them.
 */
#ifndef WF_TESTS_PARALLEL_TERMS_H
#define WF_TESTS_PARALLEL_TERMS_H

#include "core/numerics/bits.h"
#include "parallel/shard/gradient_reduce_internal.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/parallel_harness.h"

enum { FEATURES = 3, ORDERS = 30 };

/* Numbers whose sums are rounded, so that their order shows. */
static inline float term_of(int64_t i, int feature)
{
    return 1.0F / (float)(3 + 7 * i + feature) + (float)((i * 13) % 5);
}

static inline wf_tensor *term(wf_context *ctx, int64_t i)
{
    const wf_dim dim = wf_dim_chunked(FEATURES);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_GRADIENT);

    for (int f = 0; t && f < FEATURES; f++)
        ((float *)t->data)[f] = term_of(i, f);
    return t;
}

static uint64_t state = 1;

static inline int64_t random_below(int64_t n)
{
    state = wf_mix64(state + 1);
    return (int64_t)(state % (uint64_t)n);
}

static inline void shuffle(int64_t *order, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = random_below(i + 1), swap = order[i];

        order[i] = order[j];
        order[j] = swap;
    }
}

static inline void run_alone(wf_status (*body)(part *), bool exact_off)
{
    const training t = new_training(LLAMA, 3, 1);

    run_parts((part_test){.options = {.tp = 1, .dp = 1, .seed = 3, .exact_off = exact_off},
                          .config = &t.model,
                          .body = body});
}

#endif
