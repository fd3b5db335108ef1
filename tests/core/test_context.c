/* tests/core/test_context.c - what a context keeps for libraries above core. */
#include "tests/core/core_harness.h"

/* Each library has memory of its own in each context, zeroed, and at the same address from then
   on. */
static void extensions(void)
{
    static const wf_extension kind[] = {{"one", 24, false},
                                        {"two", 8, false},
                                        {"three", 8, false},
                                        {"four", 8, false},
                                        {"five", 8, false}};
    wf_context *ctx = open_reference(0), *other = open_reference(0);
    int64_t *one = wf_context_extension(ctx, &kind[0]), *two;

    CU_ASSERT_FATAL(one && !one[0] && !one[1] && !one[2]);
    one[2] = 7;
    two = wf_context_extension(ctx, &kind[1]);
    CU_ASSERT_FATAL(two && two != one && *two == 0);
    CU_ASSERT(wf_context_extension(ctx, &kind[0]) == one && one[2] == 7);
    CU_ASSERT(wf_context_extension(other, &kind[1]) != two);
    CU_ASSERT(wf_context_extension(ctx, &kind[2]) && wf_context_extension(ctx, &kind[3]));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    CU_ASSERT_PTR_NULL(wf_context_extension(ctx, &kind[4]));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
    CU_ASSERT_STRING_EQUAL(
        wf_context_error(ctx)->text,
        "rank 3: extension five of a context: it has 4 others already, which "
        "is the most");
    CU_ASSERT_EQUAL(wf_context_status(other), WF_OK);
    wf_context_close(ctx);
    wf_context_close(other);
}

int main(void)
{
    static const wf_test tests[] = {{"memory of libraries above core", extensions},
                                    {NULL, NULL}};

    return wf_test_main("context", tests);
}
