/*
 * tests/core/test_trace.c - a trace keeps what finds room, and knows what ran beside a
 * transfer.
 *
 * ctest: builds plain address thread
 */
#include "core/trace.h"
#include "tests/harness.h"
#include <string.h>

static void add(wf_trace *trace, wf_trace_kind kind, int64_t start, int64_t end)
{
    wf_trace_add(trace,
                 &(wf_trace_event){.kind = kind, .name = "it", .start = start, .end = end});
}

static void room(void)
{
    wf_error error = {WF_OK, ""};
    wf_trace *trace = wf_trace_open(3, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(trace);
    CU_ASSERT_EQUAL(wf_trace_count(trace), 0);
    for (int i = 0; i < 5; i++)
        add(trace, WF_TRACE_OP, 10 * i, 10 * i + 5);
    CU_ASSERT_EQUAL(wf_trace_count(trace), 3);
    CU_ASSERT_EQUAL(wf_trace_lost(trace), 2);
    CU_ASSERT_EQUAL(wf_trace_at(trace, 2)->start, 20);
    CU_ASSERT_STRING_EQUAL(wf_trace_at(trace, 2)->name, "it");
    wf_trace_close(trace);
    wf_trace_close(NULL);
    CU_ASSERT_PTR_NULL(wf_trace_open(INT64_MAX / 256, &error));
    CU_ASSERT_EQUAL(error.code, WF_ENOMEM);
}

static void time_goes_on(void)
{
    int64_t before = wf_trace_now(), after = wf_trace_now();

    CU_ASSERT(before > 0 && after >= before);
}

/* Kernels over [0,10) [20,40) [50,60) and [70,90); phases, waits and transfers hide nothing. */
static void hidden(void)
{
    static const struct {
        int64_t start, end, hidden;
    } cases[] = {{0, 90, 60},  {20, 40, 20}, {25, 30, 5},  {10, 20, 0},
                 {35, 55, 10}, {5, 75, 40},  {60, 60, 0},  {-9, 3, 3},
                 {88, 99, 2},  {90, 99, 0},  {-9, 99, 60}, {40, 50, 0}};
    wf_error error = {WF_OK, ""};
    wf_trace *trace = wf_trace_open(64, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(trace);
    add(trace, WF_TRACE_OP, 0, 10);
    add(trace, WF_TRACE_OP, 20, 40);
    add(trace, WF_TRACE_WAIT, 40, 50);
    add(trace, WF_TRACE_TRANSFER, 5, 50);
    add(trace, WF_TRACE_OP, 50, 60);
    add(trace, WF_TRACE_OP, 70, 90);
    add(trace, WF_TRACE_PHASE, 0, 90);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t at = wf_trace_count(trace);

        add(trace, WF_TRACE_TRANSFER, cases[i].start, cases[i].end);
        CU_ASSERT_EQUAL(wf_trace_hidden(trace, at), cases[i].hidden);
    }
    CU_ASSERT_EQUAL(wf_trace_hidden(trace, 3), 25);
    wf_trace_close(trace);
}

int main(void)
{
    static const wf_test tests[] = {
        {"room", room}, {"time goes on", time_goes_on}, {"hidden", hidden}, {NULL, NULL}};

    return wf_test_main("trace", tests);
}
