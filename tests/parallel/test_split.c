/* tests/parallel/test_split.c - cuts of a chain: by cost, against all cuts that there are; by
 * counts and by paths; refusals. */
#include "parallel/pipeline/split.h"
#include "core/numerics/bits.h"
#include "tests/harness.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 8, MOST_STAGES = 5, TRIALS = 300 };

/* The merit of a cut: by these two, in this order; then the shorter first stages. */
typedef struct merit {
    double most, squares;
    int64_t first[MOST_STAGES + 1];
} merit;

static merit merit_of(const wf_pipe_chain *chain, int stages, const int64_t *first)
{
    merit m = {.most = 0};

    for (int s = 0; s < stages; s++) {
        double cost = s == stages - 1 ? chain->end : 0;

        for (int64_t i = first[s]; i < first[s + 1]; i++)
            cost += chain->cost[i];
        m.most = fmax(m.most, cost);
        m.squares += cost * cost;
    }
    memcpy(m.first, first, ((size_t)stages + 1) * sizeof *first);
    return m;
}

static bool better(const merit *a, const merit *b, int stages)
{
    if (a->most != b->most)
        return a->most < b->most;
    if (a->squares != b->squares)
        return a->squares < b->squares;
    for (int s = 0; s <= stages; s++)
        if (a->first[s] != b->first[s])
            return a->first[s] < b->first[s];
    return false;
}

/* The best of all cuts, one after the other. */
static void search(const wf_pipe_chain *chain, int stages, int s, int64_t *first, merit *best)
{
    if (s == stages) {
        merit m;

        first[s] = chain->steps;
        m = merit_of(chain, stages, first);
        if (better(&m, best, stages))
            *best = m;
        return;
    }
    for (first[s] = first[s - 1] + (s == 1 && chain->steps > 0); first[s] <= chain->steps;
         first[s]++)
        search(chain, stages, s + 1, first, best);
}

static void best_of_all_cuts(void)
{
    int64_t uneven = 0, empty = 0;

    for (uint64_t t = 0; t < TRIALS; t++) {
        double cost[MOST_STEPS];
        wf_pipe_chain chain = {.steps = (int64_t)(wf_mix64(t) % (MOST_STEPS + 1)),
                               .cost = cost};
        int stages = 1 + (int)(wf_mix64(t + 1000) % MOST_STAGES);
        int64_t first[MOST_STAGES + 1] = {0}, found[MOST_STAGES + 1];
        merit best = {.most = INFINITY};
        wf_error error = {WF_OK, ""};

        for (int64_t i = 0; i < chain.steps;
             i++) /* small integers: sums and squares are exact */
            cost[i] = (double)(wf_mix64(t * 100 + (uint64_t)i) % 7);
        chain.end = (double)(wf_mix64(t + 5000) % 9);
        search(&chain, stages, 1, first, &best);
        CU_ASSERT_EQUAL(wf_pipe_split(&chain, "auto", stages, found, &error), WF_OK);
        CU_ASSERT_EQUAL(memcmp(found, best.first, ((size_t)stages + 1) * sizeof *found), 0);
        for (int s = 0; s < stages; s++) {
            empty += found[s + 1] == found[s];
            uneven += found[s + 1] - found[s] != found[1] - found[0];
        }
    }
    CU_ASSERT(uneven > 0 && empty > 0);
}

/* Head and table of a small model cost as much as several blocks: the ends get fewer of
   them. */
static void head_is_counted(void)
{
    double cost[14];
    wf_pipe_chain chain = {.steps = 14, .cost = cost, .end = 3};
    int64_t first[5];
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < 14; i++)
        cost[i] = i == 0 || i == 13 ? 0.25 : 1;
    CU_ASSERT_EQUAL(wf_pipe_split_auto(&chain, 4, first, &error), WF_OK);
    CU_ASSERT_EQUAL(first[4] - first[3], 2); /* one block, the norm and the head */
    CU_ASSERT_EQUAL(first[1] - first[0], 4); /* the table and three blocks */
}

static const wf_pipe_module modules[] = {{"embed", 0},   {"position", 0}, {"block.0", 1},
                                         {"block.1", 2}, {"block.2", 3},  {"norm", 4},
                                         {"head", 5},    {"loss", 5}};
static const wf_pipe_chain gpt = {.steps = 5, .modules = 8, .module = modules};

static void as_a_user_says(void)
{
    static const struct {
        const char *text;
        int stages;
        int64_t first[4];
    } rows[] = {{"2,2,1", 3, {0, 2, 4, 5}},
                {"2 0\n3", 3, {0, 2, 2, 5}},
                {"5", 1, {0, 5}},
                {"", 1, {0, 5}},
                {"block.0,norm", 3, {0, 1, 4, 5}},
                {"block.2\nblock.2\n", 3, {0, 3, 3, 5}},
                {"block.0, block.1", 3, {0, 1, 2, 5}}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t first[4];
        wf_error error = {WF_OK, ""};

        CU_ASSERT_EQUAL(wf_pipe_split(&gpt, rows[i].text, rows[i].stages, first, &error),
                        WF_OK);
        CU_ASSERT_EQUAL(
            memcmp(first, rows[i].first, ((size_t)rows[i].stages + 1) * sizeof *first), 0);
    }
}

static void refusals(void)
{
    static const struct {
        const char *text;
        int stages;
        const char *words;
    } rows[] = {
        {"0,5", 2, "leaves stage 0 without a step"},
        {"embed", 2, "leaves stage 0 without a step"},
        {"2,2", 2, "sum up to 4, but the model has 5 steps: add 1"},
        {"4,4", 2, "sum up to 8, but the model has 5 steps: take away 3"},
        {"2,3", 3, "has 2 counts and there are 3 stages"},
        {"2,-1,4", 3, "gives stage 1 '-1' steps: give a number from 0 to 5"},
        {"2,99999999999999999999,4", 3, "gives stage 1 '99999999999999999999' steps"},
        {"2,1x,2", 3, "gives stage 1 '1x' steps"},
        {"blok.1", 2,
         "no step of the model begins with module 'blok.1': the 5 steps begin with "
         "embed to norm"},
        {"position", 2, "'position' is not the first of step 0, which begins with embed"},
        {"block.1.attn", 2,
         "'block.1.attn' is not the first of step 2, which begins with block.1"},
        {"head", 2, "'head' is of the head, which the last stage has after its steps"},
        {"block.2,block.0", 3, "stage 2 begin with block.0, which runs before block.2"},
        {"block.1", 3, "has 1 module paths and there are 3 stages: give 2"},
        {"auto", 0, "cannot be cut into 0 stages"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t first[4];
        wf_error error = {WF_OK, ""};

        CU_ASSERT_EQUAL(wf_pipe_split(&gpt, rows[i].text, rows[i].stages, first, &error),
                        WF_EINVAL);
        CU_ASSERT(strstr(error.text, rows[i].words) != NULL);
        if (!strstr(error.text, rows[i].words))
            printf("\n    '%s': %s\n", rows[i].text, error.text);
    }
}

static void costs_refused(void)
{
    static const double bad[] = {-1, NAN, INFINITY};

    for (int i = 0; i < 3; i++) {
        const double cost[] = {1, bad[i]};
        wf_pipe_chain chain = {.steps = 2, .cost = cost};
        int64_t first[3];
        wf_error error = {WF_OK, ""};

        CU_ASSERT_EQUAL(wf_pipe_split_auto(&chain, 2, first, &error), WF_EINVAL);
        CU_ASSERT(strstr(error.text, "step 1 of a chain costs") != NULL);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"auto is the best of all cuts", best_of_all_cuts},
                                    {"the head is counted", head_is_counted},
                                    {"counts and paths", as_a_user_says},
                                    {"what is refused, and how", refusals},
                                    {"costs that are none", costs_refused},
                                    {NULL, NULL}};

    return wf_test_main("split", tests);
}
