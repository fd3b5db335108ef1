/* tests/core/test_partial_sum.c - sums outside of the tape: into a tensor of its own, and in
   place. */
#include "tests/core/core_harness.h"

static void into_a_sum(void)
{
    static const double av[] = {1, 2}, bv[] = {10, 20}, four[4] = {1, 1, 1, 1};
    wf_context *ctx = open_reference(0);
    wf_tensor *a = make(ctx, 0, 2, av), *b = make(ctx, 0, 2, bv);
    wf_tensor *fake = wf_tensor_fake(ctx, WF_F64, 1, a->dim, NULL);
    wf_tensor *sum = wf_tensor_retain(a), *was = sum;

    CU_ASSERT_EQUAL(wf_partial_add(&sum, b), WF_OK);
    CU_ASSERT_TRUE(equals(sum, 2, (const double[]){11, 22}));
    CU_ASSERT_TRUE(equals(a, 2, av)); /* the scope holds it too */
    wf_scope_open(ctx);
    CU_ASSERT_EQUAL(wf_partial_add(&sum, fake), WF_OK);
    CU_ASSERT_TRUE(wf_tensor_is_fake(sum));
    CU_ASSERT_EQUAL(wf_partial_add(&sum, b), WF_OK);
    CU_ASSERT_TRUE(wf_tensor_is_fake(sum));
    wf_tensor_release(sum);

    sum = wf_tensor_retain(make(ctx, 0, 2, av));
    wf_scope_close(ctx);
    was = sum;
    CU_ASSERT_EQUAL(wf_partial_add(&sum, b), WF_OK); /* nobody else: in place */
    CU_ASSERT_PTR_EQUAL(sum, was);
    CU_ASSERT_TRUE(equals(sum, 2, (const double[]){11, 22}));
    a = wf_tensor_alias(sum); /* somebody holds the data */
    CU_ASSERT_EQUAL(wf_partial_add(&sum, b), WF_OK);
    CU_ASSERT_TRUE(equals(a, 2, (const double[]){11, 22}));
    CU_ASSERT_TRUE(equals(sum, 2, (const double[]){21, 42}));

    was = NULL;
    CU_ASSERT_EQUAL(wf_partial_add(&sum, NULL), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_partial_add(&was, b), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    CU_ASSERT_EQUAL(wf_partial_add(&sum, make(ctx, 0, 4, four)), WF_ELAYOUT);
    CU_ASSERT_TRUE(refused(ctx, WF_ELAYOUT, "not alike: f64 [2] and f64 [4]; bring both"));
    wf_tensor_release(sum);
    wf_context_close(ctx);
}

static void in_place(void)
{
    static const double av[] = {1, 2}, bv[] = {10, 20}, four[4] = {1, 1, 1, 1};
    wf_context *ctx = open_reference(0);
    wf_tensor *a = make(ctx, 0, 2, av), *b = make(ctx, 0, 2, bv);
    wf_tensor *fake = wf_tensor_fake(ctx, WF_F64, 1, a->dim, NULL);

    CU_ASSERT_PTR_EQUAL(wf_partial_add_to(a, b), a);
    CU_ASSERT_TRUE(equals(a, 2, (const double[]){11, 22}) && equals(b, 2, bv));
    CU_ASSERT_PTR_EQUAL(wf_partial_add_to(fake, b), fake);
    CU_ASSERT_PTR_EQUAL(wf_partial_add_to(a, fake), a);
    CU_ASSERT_PTR_NULL(wf_partial_add_to(a, NULL));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    CU_ASSERT_PTR_NULL(wf_partial_add_to(a, make(ctx, 0, 4, four)));
    CU_ASSERT_TRUE(refused(ctx, WF_ELAYOUT, "not alike: f64 [2] and f64 [4]; bring both"));
    CU_ASSERT_TRUE(equals(a, 2, (const double[]){11, 22}));
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"into a sum", into_a_sum}, {"in place", in_place}, {NULL, NULL}};

    return wf_test_main("node", tests);
}
