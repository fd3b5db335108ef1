/*
 * tests/parallel/test_session.c - sessions: runs that are driven step by step from outside, on
 * several meshes; calls of all ranks between steps, failures, and what is refused.
 *
 * ctest: builds address thread
 */
#include "mesh/comm/collective.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/program/session.h"
#include "tests/harness.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 8, BATCH = 4, STEPS = 3 };

static const wf_nn_gpt_config config = {.vocabulary = 16,
                                        .positions = TOKENS,
                                        .layers = 1,
                                        .heads = 4,
                                        .kv_heads = 4,
                                        .width = 16,
                                        .ffn = 32};

static wf_nn_module *make(wf_par *par, void *arg)
{
    wf_nn_gpt *model = wf_nn_gpt_new(wf_par_context(par), &config);

    (void)arg;
    if (model)
        wf_par_plan(par, &model->base, wf_par_gpt_plan);
    return (wf_nn_module *)model;
}

/* Reads sequences that count up from `self`, an int. Errors: one where it is negative */
static wf_status read_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    int from = *(const int *)self;

    (void)step;
    if (from < 0)
        return wf_error_set(error, WF_EDATA, "the batch is gone");
    for (int64_t i = 0; i < count * TOKENS; i++) {
        int32_t id = (int32_t)((from + first * TOKENS + i) % 16);

        ((int32_t *)field[0])[i] = id;
        ((int32_t *)field[1])[i] = (id + 1) % 16;
    }
    return WF_OK;
}

static void describe(wf_process *p, int tp, int dp, FILE *out)
{
    p->job = (wf_par_job){
        .mesh = {.tp = tp, .dp = dp, .seed = 1, .threads = 1},
        .model = make,
        .train = {.global_batch = BATCH,
                  .field = WF_PAR_GPT_FIELDS(TOKENS),
                  .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
                  .schedule = {.lr = 1e-2, .min_lr = 1e-2, .steps = STEPS},
                  .loss = wf_par_gpt_loss},
        .steps = STEPS};
    p->started = "threads";
    p->run.out = p->run.saving.out = out;
    p->run.digest = WF_RUN_DIGEST_STEPS;
    wf_plan_request_of(&p->job, &p->request);
}

static wf_status count_ranks(wf_par_running *rank, void *arg)
{
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
    return wf_context_status(wf_par_context(rank->par));
}

/* Returns the digest after the last step. */
static uint64_t digest_on(int tp, int dp)
{
    FILE *out = fopen("/dev/null", "w");
    wf_process p = WF_PROCESS("test");
    wf_error error = {WF_OK, ""};
    wf_step_log made = {.digest = 0};
    wf_session *s;

    describe(&p, tp, dp, out);
    s = wf_session_open(&p, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int step = 1; step <= STEPS; step++) {
        int from = step * 5, calls = 0;
        const wf_par_data data = {.read = read_data, .self = &from};

        CU_ASSERT_EQUAL(wf_session_step(s, &data, &made, &error), WF_OK);
        CU_ASSERT_EQUAL(made.step, step);
        CU_ASSERT_EQUAL(wf_session_steps(s), step);
        CU_ASSERT_EQUAL(wf_session_call(s, count_ranks, &calls, &error), WF_OK);
        CU_ASSERT_EQUAL(calls, tp * dp);
    }
    CU_ASSERT_EQUAL(wf_session_step(s, NULL, &made, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "has made its 3 steps"));
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_session_close(s, &error), WF_OK);
    fclose(out);
    return made.digest;
}

typedef struct watch {
    wf_session *session;
    int over; /* atomic */
    bool good;
} watch;

/* Reads how many steps are done until they are over. */
static void *watch_steps(void *arg)
{
    watch *w = arg;

    for (int64_t last = 0, now; !__atomic_load_n(&w->over, __ATOMIC_SEQ_CST); last = now) {
        now = wf_session_steps(w->session);
        w->good &= now >= last && now <= STEPS;
        usleep(50);
    }
    return NULL;
}

/* Another thread reads the steps while they are made, which a sanitizer of threads looks at. */
static void test_steps_that_are_watched(void)
{
    FILE *out = fopen("/dev/null", "w");
    wf_process p = WF_PROCESS("test");
    wf_error error = {WF_OK, ""};
    watch w = {.good = true};
    pthread_t thread;

    describe(&p, 2, 1, out);
    w.session = wf_session_open(&p, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w.session);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, watch_steps, &w), 0);
    for (int step = 1; step <= STEPS; step++) {
        const wf_par_data data = {.read = read_data, .self = &step};

        CU_ASSERT_EQUAL(wf_session_step(w.session, &data, NULL, &error), WF_OK);
    }
    __atomic_store_n(&w.over, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    CU_ASSERT(w.good);
    CU_ASSERT_EQUAL(wf_session_close(w.session, &error), WF_OK);
    fclose(out);
}

static void test_meshes(void)
{
    uint64_t one = digest_on(1, 1);

    CU_ASSERT_NOT_EQUAL(one, 0);
    CU_ASSERT_EQUAL(digest_on(2, 1), one);
    CU_ASSERT_EQUAL(digest_on(2, 2), one);
}

static wf_status fail_on_last(wf_par_running *rank, void *arg)
{
    wf_context *ctx = wf_par_context(rank->par);

    (void)arg;
    if (wf_context_rank(ctx) == wf_mesh_ranks(wf_par_mesh(rank->par)) - 1)
        wf_fail(ctx, WF_EINVAL, "not this one");
    return wf_context_status(ctx);
}

/* Opens a session on two ranks, and lets it fail: a call where `function`, else a batch. */
static void fail_by(wf_par_hook *function)
{
    FILE *out = fopen("/dev/null", "w");
    wf_process p = WF_PROCESS("test");
    wf_error error = {WF_OK, ""};
    int gone = -1;
    const wf_par_data data = {.read = read_data, .self = &gone};
    const char *words = function ? "not this one" : "the batch is gone";
    wf_session *s;

    describe(&p, 2, 1, out);
    s = wf_session_open(&p, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    if (function)
        wf_session_call(s, function, NULL, &error);
    else
        wf_session_step(s, &data, NULL, &error);
    CU_ASSERT_NOT_EQUAL(error.code, WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_NOT_EQUAL(wf_session_step(s, &data, NULL, &error), WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_session_close(s, &error), WF_OK); /* it was returned before */
    fclose(out);
}

static void test_failures(void)
{
    fail_by(fail_on_last);
    fail_by(NULL);
}

/* Hangs on the last rank, for which the others wait. */
static wf_status hang_on_last(wf_par_running *rank, void *arg)
{
    wf_context *ctx = wf_par_context(rank->par);
    wf_mesh *mesh = wf_par_mesh(rank->par);
    wf_error error = {WF_OK, ""};

    (void)arg;
    while (wf_context_rank(ctx) == wf_mesh_ranks(mesh) - 1)
        pause();
    if (wf_barrier(wf_mesh_world(mesh), &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    return wf_context_status(ctx);
}

/* A rank that hangs uses the process when its session has ended: it stays. */
static void test_ranks_left(void)
{
    static wf_process p, well;
    FILE *out = fopen("/dev/null", "w");
    wf_error error = {WF_OK, ""};
    wf_session *s;

    p = well = (wf_process)WF_PROCESS("test");
    describe(&p, 2, 1, out);
    p.stall_timeout = 1;
    s = wf_session_open(&p, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(p.ranks_left, 0);
    CU_ASSERT_NOT_EQUAL(wf_session_call(s, hang_on_last, NULL, &error), WF_OK);
    wf_session_close(s, &error);
    CU_ASSERT_EQUAL(p.ranks_left, 1);
    error = (wf_error){WF_OK, ""};
    describe(&well, 2, 1, out);
    s = wf_session_open(&well, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(wf_session_close(s, &error), WF_OK);
    CU_ASSERT_EQUAL(well.ranks_left, 0);
}

static void test_no_batch(void)
{
    FILE *out = fopen("/dev/null", "w");
    wf_process p = WF_PROCESS("test");
    wf_error error = {WF_OK, ""};
    wf_session *s;

    describe(&p, 1, 1, out);
    s = wf_session_open(&p, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(wf_session_step(s, NULL, NULL, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "step 1 has no batch"));
    wf_session_close(s, &error);
    fclose(out);
}

/* Reads the job's batch between two steps: writes the error's text to `arg`. */
static wf_status read_between(wf_par_running *rank, void *arg)
{
    const wf_par_data *data = &rank->job->data;
    int32_t tokens[TOKENS], next[TOKENS];
    wf_error error = {WF_OK, ""};

    data->read(data->self, rank->steps + 1, 0, 1, (void *[]){tokens, next}, &error);
    memcpy(arg, error.text, sizeof error.text);
    return wf_context_status(wf_par_context(rank->par));
}

/* A step's batch is read while its call lasts: its owner may have freed it at a later call. */
static void test_batch_returned(void)
{
    FILE *out = fopen("/dev/null", "w");
    wf_process p = WF_PROCESS("test");
    wf_error error = {WF_OK, ""}, seen = {WF_OK, ""};
    int from = 5;
    const wf_par_data data = {.read = read_data, .self = &from};
    wf_session *s;

    describe(&p, 1, 1, out);
    s = wf_session_open(&p, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(wf_session_step(s, &data, NULL, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_session_call(s, read_between, seen.text, &error), WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(seen.text, "step 2 has no batch"));
    wf_session_close(s, &error);
    fclose(out);
}

/* A caller that takes longer than ranks may stall is no stall, and records keep nothing that is
   another's. */
static void test_slow_caller(void)
{
    FILE *out = fopen("/dev/null", "w");
    wf_process p = WF_PROCESS("test");
    wf_error error = {WF_OK, ""};
    int from = 5;
    const wf_par_data data = {.read = read_data, .self = &from};
    wf_step_log made;
    wf_session *s;

    describe(&p, 2, 1, out);
    p.stall_timeout = 2;
    s = wf_session_open(&p, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int step = 0; step < 2; step++) {
        CU_ASSERT_EQUAL(wf_session_step(s, &data, &made, &error), WF_OK);
        CU_ASSERT(!made.losses && !made.scalars && !made.loads);
        if (step == 0)
            usleep(5000000);
    }
    CU_ASSERT_EQUAL(wf_session_close(s, &error), WF_OK);
    fclose(out);
}

static void test_refused(void)
{
    wf_process p = WF_PROCESS("test");
    wf_error error = {WF_OK, ""};

    describe(&p, 1, 2, stdout);
    p.is_elastic = true;
    CU_ASSERT_PTR_NULL(wf_session_open(&p, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "elastic"));
    error = (wf_error){WF_OK, ""};
    p.is_elastic = false;
    p.job.steps = 0;
    CU_ASSERT_PTR_NULL(wf_session_open(&p, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "0 steps"));
    CU_ASSERT_EQUAL(wf_session_close(NULL, &(wf_error){WF_OK, ""}), WF_OK);
}

/* A wf_process.opened: copies the numerics identity. */
static wf_status copy_numerics(void *arg, wf_process *process, wf_error *error)
{
    (void)error;
    memcpy(arg, process->numerics, sizeof process->numerics);
    return WF_OK;
}

/* The numerics identity is measured for what tells it, and for nothing else: to train for it is
   longer than a run of a few steps. */
static void measured_where_it_is_reported(void)
{
    enum { NOBODY, LOG, HOOK, EMBEDDED, KINDS };
    char found[KINDS][sizeof((wf_process *)NULL)->numerics] = {""};
    char folder[WF_TEST_FOLDER], log[WF_TEST_FOLDER + 8];

    wf_test_new_folder(folder);
    snprintf(log, sizeof log, "%s/log", folder);
    for (int kind = 0; kind < KINDS; kind++) {
        FILE *out = fopen("/dev/null", "w");
        wf_process p = WF_PROCESS("test");
        wf_error error = {WF_OK, ""};
        wf_launch_end end;
        int from = 3;

        describe(&p, 1, 1, out);
        p.job.data = (wf_par_data){.read = read_data, .self = &from};
        p.log_jsonl = kind == LOG ? log : NULL;
        p.reads_numerics = kind == HOOK;
        p.is_embedded = kind == EMBEDDED;
        p.opened = copy_numerics;
        p.arg = found[kind];
        CU_ASSERT_EQUAL(wf_process_run(&p, &end, &error), WF_OK);
        fclose(out);
    }
    CU_ASSERT_STRING_EQUAL(found[NOBODY], "");
    CU_ASSERT_EQUAL(strlen(found[LOG]), 16);
    CU_ASSERT_STRING_EQUAL(found[HOOK], found[LOG]);
    CU_ASSERT_STRING_EQUAL(found[EMBEDDED], found[LOG]);
}

int main(void)
{
    static const wf_test tests[] = {
        {"meshes", test_meshes},
        {"failures", test_failures},
        {"no batch", test_no_batch},
        {"a batch between steps", test_batch_returned},
        {"a slow caller", test_slow_caller},
        {"steps that are watched", test_steps_that_are_watched},
        {"ranks that are left", test_ranks_left},
        {"refused", test_refused},
        {"numerics where they are reported", measured_where_it_is_reported},
        {NULL, NULL}};

    return wf_test_main("session", tests);
}
