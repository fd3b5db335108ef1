/* tests/parallel/test_dearest_ops.c - a profile: rows by op and module, times outside of what
   they contain, sums over ranks. */
#include "parallel/report/profile_internal.h"
#include "tests/harness.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void put(wf_trace *trace, wf_trace_kind kind, const char *name, const char *location,
                int64_t ns, double flops)
{
    wf_trace_add(trace, &(wf_trace_event){.kind = kind,
                                          .name = name,
                                          .location = location,
                                          .start = 100,
                                          .end = 150 + ns,
                                          .own = ns, /* 50 ns are another event's */
                                          .bytes = 4000,
                                          .flops = flops});
}

static char *print(wf_profile *profile, int rows, const wf_profile_peak *peak)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    wf_profile_print(out, profile, peak, rows);
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

static bool sums_to(const char *text, const char *name, double ms)
{
    const char *at = strstr(text, name);
    double got;

    return at && sscanf(at + strlen(name), "%lf", &got) == 1 && fabs(got - ms) < 1e-3;
}

static void layers_are_one_row(void)
{
    wf_error error = {WF_OK, ""};
    wf_trace *trace = wf_trace_open(16, &error);
    wf_profile *profile = wf_profile_open(&error);
    wf_profile_sums sums;
    char *text;

    put(trace, WF_TRACE_OP, "linear1", "block.0.mlp.up", 2000000, 4e6);
    put(trace, WF_TRACE_OP, "linear1", "block.11.mlp.up", 2000000, 4e6);
    put(trace, WF_TRACE_OP, "add", "block.0", 500000, 0);
    put(trace, WF_TRACE_OP, "add", NULL, 500000, 0);
    put(trace, WF_TRACE_WAIT, "all_reduce", "tp", 3000000, 0);
    put(trace, WF_TRACE_HOST, "gradient norm", NULL, 1000000, 0);
    put(trace, WF_TRACE_PHASE, "forward", NULL, 9000000, 0);
    CU_ASSERT_EQUAL(wf_profile_add(profile, trace, 0, 10000000, &error), WF_OK);
    sums = wf_profile_sum(profile);
    CU_ASSERT(sums.ops == 5000000 && sums.waits == 3000000 && sums.host == 1000000 &&
              sums.launch == 0 && sums.flops == 8e6 && sums.calls == 4 &&
              sums.bytes == 4 * 4000);
    text = print(profile, 2, &(wf_profile_peak){4e9, 16e6});
    CU_ASSERT(has(text, "linear1                block.*.mlp.up", 2, 4, 40));
    CU_ASSERT(strstr(text, "  2.00     0.00   50.0 %") != NULL); /* GFLOP/s, GB/s, of peak */
    CU_ASSERT(has(text, "wait for all_reduce    tp", 1, 3, 30));
    CU_ASSERT(has(text, "others", 3, 2, 20));
    CU_ASSERT(has(text, "all ops                0.000 GB", 4, 5, 50) &&
              sums_to(text, "all waits", 3) && sums_to(text, "host beside ops", 1) &&
              sums_to(text, "neither", 1));
    free(text);
    text = print(profile, 9, NULL);
    CU_ASSERT(strstr(text, "others") == NULL && strstr(text, "of peak") == NULL);
    free(text);
    wf_profile_close(profile);
    wf_trace_close(trace);
}

/* Work of the host that contains an op and a launch has the rest of its time. */
static void time_is_counted_once(void)
{
    wf_error error = {WF_OK, ""};
    wf_trace *trace = wf_trace_open(16, &error);
    wf_trace_mark host = wf_trace_begin(trace), launch = wf_trace_begin(trace), op;
    const wf_trace_event *e;
    int64_t launches, calls;

    op = wf_trace_begin(trace);
    wf_trace_end(trace, op, &(wf_trace_event){.kind = WF_TRACE_OP, .name = "add"});
    wf_trace_launched(trace, launch);
    wf_trace_end(trace, host, &(wf_trace_event){.kind = WF_TRACE_HOST, .name = "norm"});
    launches = wf_trace_launches(trace, &calls);
    e = wf_trace_at(trace, 1);
    CU_ASSERT(calls == 1 && launches >= 0 && wf_trace_count(trace) == 2);
    CU_ASSERT_EQUAL(e->own + launches + wf_trace_at(trace, 0)->own, e->end - e->start);
    wf_trace_end(trace, wf_trace_begin(NULL), e);
    CU_ASSERT_EQUAL(wf_trace_count(trace), 2);
    wf_trace_clear(trace);
    CU_ASSERT(wf_trace_count(trace) == 0 && wf_trace_launches(trace, &calls) == 0 && !calls);
    wf_trace_close(trace);
}

/* A name that begins with a digit is no number, and an op and work of the host of one name and
   module have a row each. */
static void rows_apart(void)
{
    static const char name[] = "norm", module[] = "block.3.2nd";
    wf_error error = {WF_OK, ""};
    wf_trace *trace = wf_trace_open(16, &error);
    wf_profile *profile = wf_profile_open(&error);
    wf_profile_sums sums;

    CU_ASSERT_FATAL(trace && profile);
    put(trace, WF_TRACE_OP, name, module, 1000000, 0);
    put(trace, WF_TRACE_HOST, name, module, 2000000, 0);
    CU_ASSERT_EQUAL(wf_profile_add(profile, trace, 0, 10000000, &error), WF_OK);
    sums = wf_profile_sum(profile);
    CU_ASSERT(sums.ops == 1000000 && sums.host == 2000000);
    CU_ASSERT_EQUAL_FATAL(profile->n, 2);
    CU_ASSERT_STRING_EQUAL(profile->row[0].module, "block.*.2nd");
    wf_profile_close(profile);
    wf_trace_close(trace);
}

/* A trace that is added twice, the second time from where the first has ended, has its launches
   counted once. */
static void launches_are_counted_once(void)
{
    wf_error error = {WF_OK, ""};
    wf_trace *trace = wf_trace_open(16, &error);
    wf_profile *profile = wf_profile_open(&error);
    int64_t calls;

    CU_ASSERT_FATAL(trace && profile);
    for (int k = 0; k < 2; k++) {
        wf_trace_mark launch = wf_trace_begin(trace);

        for (int64_t begun = wf_trace_now(); wf_trace_now() == begun;)
            ;
        wf_trace_launched(trace, launch);
        put(trace, WF_TRACE_OP, "add", NULL, 1000, 0);
        CU_ASSERT_EQUAL(wf_profile_add(profile, trace, k, 1000000, &error), WF_OK);
    }
    CU_ASSERT_EQUAL(wf_profile_sum(profile).launch, wf_trace_launches(trace, &calls));
    CU_ASSERT_EQUAL_FATAL(profile->n, 2);
    CU_ASSERT_STRING_EQUAL(profile->row[1].name, "launches of ops");
    CU_ASSERT(calls == 2 && profile->row[1].calls == 2 && profile->row[1].time > 0);
    wf_profile_close(profile);
    wf_trace_close(trace);
}

/* Rows of ranks are added up, and the rank that spent most is kept. */
static void most_of_a_rank(void)
{
    static const struct {
        int rank;
        int64_t time;
    } ranks[] = {{0, 10}, {3, 50}, {1, 20}};
    wf_error error = {WF_OK, ""};
    wf_profile *profile = wf_profile_open(&error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(profile);
    for (int i = 0; i < 3; i++) {
        const wf_profile_row row = {.name = "add",
                                    .module = "block.*",
                                    .kind = WF_TRACE_OP,
                                    .most_rank = ranks[i].rank,
                                    .time = ranks[i].time};

        CU_ASSERT_EQUAL(wf_profile_put(profile, &row, &error), WF_OK);
    }
    CU_ASSERT_EQUAL_FATAL(profile->n, 1);
    CU_ASSERT(profile->row[0].time == 80 && profile->row[0].most == 50);
    CU_ASSERT_EQUAL(profile->row[0].most_rank, 3);
    wf_profile_close(profile);
}

int main(void)
{
    static const wf_test tests[] = {{"layers are one row", layers_are_one_row},
                                    {"time is counted once", time_is_counted_once},
                                    {"rows apart", rows_apart},
                                    {"launches are counted once", launches_are_counted_once},
                                    {"the most of a rank", most_of_a_rank},
                                    {NULL, NULL}};

    return wf_test_main("dearest_ops", tests);
}
