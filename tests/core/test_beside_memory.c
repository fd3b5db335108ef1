/*
 * tests/core/test_beside_memory.c - two functions beside each other without memory for what
 * each has of its own.
 *
 * ctest: links weft_allocations, builds address
 */
#include "core/beside.h"
#include "tests/allocations.h"
#include "tests/core/core_harness.h"

static const wf_extension of_call = {"calls", sizeof(int), .of_call = true};
static int asked, number;

/* Refuses one request alone: the next ones have memory again. */
static bool refuses(allocation_kind kind, size_t bytes)
{
    (void)bytes;
    return kind == ALLOCATION_HEAP && asked++ == number;
}

static const allocation_watch one = {.refuses = refuses}, none = {.refuses = NULL};

static bool kept;

static void keep(void *arg)
{
    int *mine = wf_context_extension(arg, &of_call);

    kept = mine != NULL;
    if (mine)
        *mine = 4;
    wf_beside_turn(arg);
    CU_ASSERT(!mine || *mine == 4);
}

static void change(void *arg)
{
    int *mine = wf_context_extension(arg, &of_call);

    CU_ASSERT(!mine || !kept || *mine == 0);
    if (mine)
        *mine = 7;
    wf_beside_turn(arg);
    CU_ASSERT(!mine || *mine == 7);
}

/* Whichever request fails, each function finds what it has kept, and the run ends with
   WF_ENOMEM, or needed no such memory. */
static void one_request_fails(void)
{
    bool fails = true;

    for (number = 0; fails && number < 1000; number++) {
        wf_context *ctx = open_reference(0);
        wf_status status;
        int *mine;

        asked = 0;
        kept = false;
        allocations_watch(&one);
        status = wf_beside_run(ctx, &(wf_beside){.run = {keep, change}, .arg = {ctx, ctx}});
        allocations_watch(&none);
        fails = asked > number;
        CU_ASSERT_EQUAL(status, fails ? WF_ENOMEM : WF_OK);
        wf_context_clear(ctx);
        mine = wf_context_extension(ctx, &of_call);
        CU_ASSERT(mine && (!kept || *mine == 4));
        wf_context_close(ctx);
    }
    CU_ASSERT_FALSE(fails);
    CU_ASSERT(number > 2);
}

int main(void)
{
    static const wf_test tests[] = {{"one request fails", one_request_fails}, {NULL, NULL}};

    return wf_test_main("beside_memory", tests);
}
