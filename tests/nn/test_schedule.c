/* tests/nn/test_schedule.c - learning-rate schedules against their formulas, and points of
   files. */
#include "nn/optim/schedule.h"
#include "tests/harness.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static double cosine_schedule(const wf_nn_schedule *s, int64_t step)
{
    double warm = (double)s->warmup, done = ((double)step - warm) / ((double)s->steps - warm);

    if (step <= s->warmup)
        return s->lr * (double)step / warm;
    return s->min_lr + (s->lr - s->min_lr) * (1 + cos(acos(-1) * fmin(done, 1))) / 2;
}

static void schedules(void)
{
    static const wf_nn_schedule list[] = {{6e-4, 6e-5, 10, .steps = 100},
                                          {1, 0, 0, .steps = 7},
                                          {1e-3, 1e-3, 3, .steps = 20},
                                          {0.5, 0.1, 20, .steps = 21}};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const wf_nn_schedule *s = &list[i];

        for (int64_t step = 1; step <= s->steps + 3; step++) {
            double want = cosine_schedule(s, step), got = (double)wf_nn_schedule_at(s, step);

            CU_ASSERT(fabs(got - want) <= 1e-7 * s->lr);
        }
        CU_ASSERT_EQUAL(wf_nn_schedule_at(s, s->steps), (float)s->min_lr);
        CU_ASSERT_EQUAL(wf_nn_schedule_at(s, s->steps + 1000), (float)s->min_lr);
        if (s->warmup)
            CU_ASSERT_EQUAL(wf_nn_schedule_at(s, s->warmup), (float)s->lr);
    }
}

/* Rates of the other rows by their formulas: warm-up 10 of 100 steps, from 8 down to 2. */
static void rows_of_schedules(void)
{
    wf_nn_schedule s = {8, 2, 10, .steps = 100, .kind = WF_NN_CONSTANT};

    for (int kind = WF_NN_CONSTANT; kind < WF_NN_SCHEDULES; kind++) {
        s.kind = (wf_nn_schedule_kind)kind;
        for (int64_t step = 1; step <= 10; step++)
            CU_ASSERT(fabs((double)wf_nn_schedule_at(&s, step) - 0.8 * (double)step) < 1e-6);
    }
    s.kind = WF_NN_CONSTANT;
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 1000), 8);
    s.kind = WF_NN_LINEAR;
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 55), 5);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 100), 2);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 101), 2);
    s.kind = WF_NN_WSD;
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 90), 8); /* the last tenth falls */
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 95), 5);
    s.decay = 40;
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 60), 8);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 80), 5);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 100), 2);
    s = (wf_nn_schedule){8, 3, 10, .steps = 100, .kind = WF_NN_INVERSE_SQRT};
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 40), 4);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 90), 3);
    s.warmup = 0;
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 4), 4);
}

static void points_of_a_file(void)
{
    static const char *const wrong[] = {"10,1\n10,2\n", "ten,1\n", "1,2,3\n", "# none\n"};
    char path[] = "/tmp/weft-schedule-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    wf_nn_schedule s = {.lr = 5};
    wf_error error;

    fputs("# step,rate\n\n 10, 1e-3 # up\n20,3e-3\n30,0\n", file);
    fclose(file);
    CU_ASSERT_EQUAL_FATAL(wf_nn_schedule_read(path, &s, &error), WF_OK);
    CU_ASSERT(s.kind == WF_NN_POINTS && s.points == 3);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 1), 1e-3f);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 15), 2e-3f);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 20), 3e-3f);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 29), 3e-4f);
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&s, 99), 0);
    wf_nn_schedule_free(&s);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        file = fopen(path, "w");
        fputs(wrong[i], file);
        fclose(file);
        CU_ASSERT_EQUAL(wf_nn_schedule_read(path, &s, &error), WF_EDATA);
        CU_ASSERT(!s.points && !s.point);
    }
    unlink(path);
    CU_ASSERT_EQUAL(wf_nn_schedule_read(path, &s, &error), WF_EIO);
    CU_ASSERT_EQUAL(wf_nn_schedule_read("inverse-sqrt", &s, &error), WF_OK);
    CU_ASSERT_EQUAL(s.kind, WF_NN_INVERSE_SQRT);
}

/* A warm-up as long as the run, or longer, never comes down. */
static void only_warming_up(void)
{
    const wf_nn_schedule full = {2, 1, 8, .steps = 8}, longer = {2, 1, 16, .steps = 8};

    for (int64_t step = 1; step <= 8; step++) {
        CU_ASSERT_EQUAL(wf_nn_schedule_at(&full, step), 0.25f * (float)step);
        CU_ASSERT_EQUAL(wf_nn_schedule_at(&longer, step), 0.125f * (float)step);
    }
    CU_ASSERT_EQUAL(wf_nn_schedule_at(&full, 9), 1);
}

int main(void)
{
    static const wf_test tests[] = {{"schedules", schedules},
                                    {"rows of schedules", rows_of_schedules},
                                    {"points of a file", points_of_a_file},
                                    {"only warming up", only_warming_up},
                                    {NULL, NULL}};

    return wf_test_main("schedule", tests);
}
