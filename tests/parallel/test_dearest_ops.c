/* tests/parallel/test_dearest_ops.c - the table of a profile: rows by op and module, what is
   left over, and sums. */
#include "parallel/report/profile.h"
#include "tests/harness.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void put(wf_trace *trace, wf_trace_kind kind, const char *name, const char *place,
                int64_t ns, double flops)
{
    wf_trace_add(trace, &(wf_trace_event){.kind = kind,
                                          .name = name,
                                          .place = place,
                                          .start = 100,
                                          .end = 100 + ns,
                                          .bytes = 4000,
                                          .flops = flops});
}

static char *print(const wf_trace *trace, int rows, double peak)
{
    wf_error error = {WF_OK, ""};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    CU_ASSERT_EQUAL(wf_profile_print(out, trace, 10000000, peak, rows, &error), WF_OK);
    fclose(out);
    return text;
}

/* Returns true where the line that begins so has these calls, milliseconds and share of the
   steps. */
static bool has(const char *text, const char *name, int calls, double ms, double share)
{
    const char *at = strstr(text, name);
    double got_ms, got_share;
    int got;

    return at && sscanf(at + strlen(name), "%d %lf %lf %%", &got, &got_ms, &got_share) == 3 &&
           got == calls && fabs(got_ms - ms) < 1e-3 && fabs(got_share - share) < 0.1;
}

static void layers_are_one_row(void)
{
    wf_error error;
    wf_trace *trace = wf_trace_open(16, &error);
    wf_profile_sums sums;
    char *text;

    put(trace, WF_TRACE_OP, "linear1", "block.0.mlp.up", 2000000, 4e6);
    put(trace, WF_TRACE_OP, "linear1", "block.11.mlp.up", 2000000, 4e6);
    put(trace, WF_TRACE_OP, "add", "block.0", 500000, 0);
    put(trace, WF_TRACE_OP, "add", NULL, 500000, 0);
    put(trace, WF_TRACE_WAIT, "all_reduce", "tp", 3000000, 0);
    put(trace, WF_TRACE_PHASE, "forward", NULL, 9000000, 0);
    sums = wf_profile_sum(trace, 10000000);
    CU_ASSERT(sums.ops == 5000000 && sums.waits == 3000000 && sums.flops == 8e6);
    text = print(trace, 1, 4e9);
    CU_ASSERT(has(text, "linear1                block.*.mlp.up", 2, 4, 40));
    CU_ASSERT(strstr(text, "  2.00     0.00   50.0 %") != NULL); /* GFLOP/s, GB/s, of peak */
    CU_ASSERT(has(text, "other ops", 2, 1, 10));
    CU_ASSERT(has(text, "all ops", 0, 5, 50));
    CU_ASSERT(has(text, "waits for others", 0, 3, 30));
    CU_ASSERT(has(text, "neither", 0, 2, 20));
    free(text);
    text = print(trace, 9, 0);
    CU_ASSERT(strstr(text, "other ops") == NULL && strstr(text, "of peak") == NULL);
    free(text);
    wf_trace_close(trace);
}

int main(void)
{
    static const wf_test tests[] = {{"layers are one row", layers_are_one_row}, {NULL, NULL}};

    return wf_test_main("dearest_ops", tests);
}
