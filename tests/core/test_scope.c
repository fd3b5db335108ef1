/* tests/core/test_scope.c - who owns the results of ops, and for how long. */
#include "tests/core/core_harness.h"
#include <stdlib.h>

static const double ones[4] = {1, 1, 1, 1};

enum { BYTES = 64 }; /* a tensor of 4 has so many */

static wf_tensor *one(wf_context *ctx)
{
    return make(ctx, 0, 4, ones);
}

static void close_releases(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *outside = one(ctx), *held;

    wf_scope_open(ctx);
    for (int i = 0; i < 1000; i++)
        one(ctx);
    held = wf_tensor_retain(one(ctx));
    CU_ASSERT_EQUAL(in_use(ctx), 1002 * BYTES);
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(in_use(ctx), 2 * BYTES);
    CU_ASSERT_TRUE(equals(held, 4, ones) && equals(outside, 4, ones));
    wf_tensor_release(held);
    CU_ASSERT_EQUAL(in_use(ctx), BYTES);
    wf_context_close(ctx);
}

static void return_hands_out(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *t, *outside = one(ctx);

    wf_scope_open(ctx);
    wf_scope_open(ctx);
    one(ctx);
    t = wf_scope_return(ctx, wf_add(one(ctx), one(ctx)));
    CU_ASSERT_EQUAL(in_use(ctx), 2 * BYTES);
    CU_ASSERT_TRUE(equals(t, 4, (const double[]){2, 2, 2, 2}));
    wf_scope_close(ctx); /* it belongs to this one now */
    CU_ASSERT_EQUAL(in_use(ctx), BYTES);

    wf_scope_open(ctx);
    one(ctx);
    CU_ASSERT_PTR_NULL(wf_scope_return(ctx, NULL));
    CU_ASSERT_EQUAL(in_use(ctx), BYTES);

    wf_scope_open(ctx); /* a tensor outside of the scope stays as it was */
    CU_ASSERT_PTR_EQUAL(wf_scope_return(ctx, outside), outside);
    CU_ASSERT_TRUE(equals(outside, 4, ones));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static void keep_several(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *kept[3], *same;

    wf_scope_open(ctx);
    wf_scope_open(ctx);
    one(ctx);
    kept[0] = one(ctx);
    kept[1] = NULL;
    kept[2] = same = wf_scale(kept[0], 3);
    wf_scope_keep(ctx, 3, kept);
    CU_ASSERT_EQUAL(in_use(ctx), 2 * BYTES);
    CU_ASSERT_TRUE(equals(kept[0], 4, ones));
    CU_ASSERT_PTR_NULL(kept[1]);
    CU_ASSERT_PTR_EQUAL(kept[2], same);
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    wf_context_close(ctx);
}

/* Scope i returns i + the sum of what the scopes inside returned, one tensor each. */
static wf_tensor *nested(wf_context *ctx, int depth)
{
    wf_tensor *t;

    wf_scope_open(ctx);
    t = one(ctx);
    if (depth > 0)
        t = wf_add(t, nested(ctx, depth - 1));
    return wf_scope_return(ctx, t);
}

static void deep_nesting(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *t;

    wf_scope_open(ctx);
    t = nested(ctx, 999);
    CU_ASSERT_TRUE(equals(t, 4, (const double[]){1000, 1000, 1000, 1000}));
    CU_ASSERT_EQUAL(in_use(ctx), BYTES);
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    wf_context_close(ctx);
}

static void closed_too_often(void)
{
    wf_context *ctx = open_reference(0);
    wf_tensor *t = one(ctx);

    wf_scope_close(ctx);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "needs a wf_scope_open before it"));
    CU_ASSERT_PTR_EQUAL(wf_scope_return(ctx, t), t);
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "none is open"));
    CU_ASSERT_TRUE(equals(t, 4, ones)); /* the context's own scope is as it was */
    wf_scope_open(ctx);
    one(ctx);
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    CU_ASSERT_EQUAL(in_use(ctx), BYTES);
    wf_context_close(ctx);
}

static void out_of_memory(void)
{
    wf_context *ctx = open_reference(3 * BYTES);
    wf_tensor *a, *sum;

    wf_scope_open(ctx);
    a = one(ctx);
    sum = wf_add(a, wf_add(a, a));
    CU_ASSERT_TRUE(equals(sum, 4, (const double[]){3, 3, 3, 3}));
    sum = wf_add(sum, a);
    CU_ASSERT_PTR_NULL(sum);
    CU_ASSERT_PTR_NULL(one(ctx));
    CU_ASSERT_PTR_NULL(wf_scope_return(ctx, sum));
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    CU_ASSERT_TRUE(refused(ctx, WF_ENOMEM, "32 bytes for activations"));
    CU_ASSERT_TRUE(equals(one(ctx), 4, ones)); /* dealt with: it goes on */
    wf_context_close(ctx);
}

/* Memory of a device that counts what it has given. */
static void *counted_alloc(void *self, size_t bytes)
{
    ++*(int *)self;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void counted_release(void *self, void *block, size_t bytes)
{
    (void)bytes;
    --*(int *)self;
    free(block);
}

/* A context gives everything back, also what a careless caller still holds. */
static void close_frees_all(void)
{
    int blocks = 0;
    wf_device *device = wf_reference_device(NULL);
    wf_context *ctx;
    wf_tensor *held;

    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    device->allocator =
        (wf_allocator){.alloc = counted_alloc, .release = counted_release, .self = &blocks};
    ctx = wf_context_open(device, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_scope_open(ctx);
    held = wf_tensor_retain(one(ctx));
    for (int i = 0; i < 100; i++)
        wf_tensor_retain(wf_tensor_alias(held));
    wf_tape_open(ctx);
    wf_mul(wf_leaf(held), one(ctx));
    wf_tape_open(ctx);
    wf_mul(wf_leaf(held), one(ctx));
    wf_tape_switch(ctx, NULL);
    CU_ASSERT_TRUE(blocks > 0);
    wf_context_close(ctx);
    CU_ASSERT_EQUAL(blocks, 0);
    wf_context_close(NULL);
    CU_ASSERT_PTR_NULL(wf_context_open(NULL, NULL, NULL));
}

int main(void)
{
    static const wf_test tests[] = {{"close releases", close_releases},
                                    {"return hands one out", return_hands_out},
                                    {"keep several", keep_several},
                                    {"deep nesting", deep_nesting},
                                    {"closed too often", closed_too_often},
                                    {"out of memory", out_of_memory},
                                    {"closing a context frees all", close_frees_all},
                                    {NULL, NULL}};

    return wf_test_main("scope", tests);
}
