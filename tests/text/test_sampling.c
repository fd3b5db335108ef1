/*
 * tests/text/test_sampling.c - which tokens may be drawn: against definitions written down
 * plainly, over random logits with many that are equal; and that a draw has the probabilities
 * of what is kept.
 */
#include "parallel/generate/sampling.h"
#include "core/numerics/random.h"
#include "tests/harness.h"
#include <math.h>

enum { MOST = 300, ROWS = 100, DRAWS = 20000 };

static wf_gen_sampling_candidate room[MOST];

static double uniform(uint64_t stream, uint64_t index)
{
    return (double)wf_random_uniform(17, stream, index);
}

/* Steps of a quarter: equal ones are frequent. The spread is that of a model, now and then
   none. */
static int64_t row_of(uint64_t n, float *logits)
{
    int64_t size = 1 + (int64_t)(uniform(n, 0) * (MOST - 1));
    double spread = n % 5 == 0 ? 0 : 40 * uniform(n, 1);

    for (int64_t i = 0; i < size; i++)
        logits[i] = (float)(floor(4 * spread * (uniform(n, (uint64_t)i + 2) - 0.5)) / 4);
    return size;
}

/* Counts the logits that are greater than each. */
static void count_greater(const float *logits, int64_t size, int64_t *greater)
{
    for (int64_t i = 0; i < size; i++) {
        greater[i] = 0;
        for (int64_t j = 0; j < size; j++)
            greater[i] += logits[j] > logits[i];
    }
}

/* Filters token i as transformers do: the k best are kept and those as good; those before which
   less than top_p lies among the kept; those of at least min_p of the best. Equal ones are in
   the order of their ids. 1 kept, 0 not, -1 where rounding decides. */
static int plainly_kept(const wf_gen_sampling *s, const float *logits, int64_t size,
                        const int64_t *greater, int64_t i)
{
    double best = -INFINITY, sum = 0, before = 0;

    if (s->top_k && greater[i] >= s->top_k)
        return 0;
    for (int64_t j = 0; j < size; j++)
        best = fmax(best, (double)logits[j]);
    for (int64_t j = 0; j < size; j++) {
        double p = exp(((double)logits[j] - best) / s->temperature);

        if (s->top_k && greater[j] >= s->top_k)
            continue;
        sum += p;
        if (logits[j] > logits[i] || (logits[j] == logits[i] && j < i))
            before += p;
    }
    if (s->top_p < 1 && fabs(before - s->top_p * sum) < 1e-9 * sum)
        return -1;
    if (s->top_p < 1 && before >= s->top_p * sum)
        return 0;
    return exp(((double)logits[i] - best) / s->temperature) >= s->min_p;
}

static void kept_are_those_of_the_definition(void)
{
    static const wf_gen_sampling ways[] = {
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 1},
        {.temperature = 0.7, .top_p = 1, .repetition_penalty = 1, .top_k = 7},
        {.temperature = 1.3, .top_p = 0.9, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 0.05, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 0.9999999, .repetition_penalty = 1},
        {.temperature = 2, .top_p = 1, .min_p = 0.1, .repetition_penalty = 1},
        {.temperature = 0.9,
         .top_p = 0.95,
         .min_p = 0.02,
         .top_k = 40,
         .repetition_penalty = 1}};
    const wf_gen_sampling_text none = {NULL, 0, 0};
    float logits[MOST];
    int wrong = 0;

    for (uint64_t r = 0; r < ROWS; r++) {
        int64_t size = row_of(r, logits), greater[MOST];

        count_greater(logits, size, greater);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            int64_t n = wf_gen_sampling_filter(&ways[w], &none, logits, size, room);
            bool kept[MOST] = {false};

            for (int64_t i = 0; i < n; i++) {
                kept[room[i].id] = true;
                wrong += i > 0 && room[i].score > room[i - 1].score;
            }
            for (int64_t i = 0; i < size; i++) {
                int want = plainly_kept(&ways[w], logits, size, greater, i);

                wrong += want >= 0 && kept[i] != (want == 1);
            }
        }
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* Chi-squared over what is kept; nothing else is ever drawn. */
static void draws_follow_probabilities(void)
{
    static const wf_gen_sampling way = {
        .temperature = 1.5, .top_p = 0.9, .repetition_penalty = 1, .top_k = 20};
    const wf_gen_sampling_text none = {NULL, 0, 0};
    float logits[64];
    double p[64] = {0}, sum = 0, chi = 0;
    int64_t n, count[64] = {0};

    for (int i = 0; i < 64; i++)
        logits[i] = (float)(i % 9) - 4;
    n = wf_gen_sampling_filter(&way, &none, logits, 64, room);
    for (int64_t i = 0; i < n; i++)
        sum += p[room[i].id] = exp(room[i].score - room[0].score);
    for (uint64_t d = 0; d < DRAWS; d++)
        count[wf_gen_sampling_draw(&way, &none, logits, 64, uniform(9999, d), room)]++;
    for (int i = 0; i < 64; i++) {
        double want = DRAWS * p[i] / sum;

        CU_ASSERT(want > 0 || count[i] == 0);
        chi += want > 0 ? ((double)count[i] - want) * ((double)count[i] - want) / want : 0;
    }
    CU_ASSERT(chi < (double)n + 5 * sqrt(2.0 * (double)n));
}

/* Four tokens with a quarter each: a sum that just reaches a limit is enough, a token that is
   just so likely stays, and a number between two tokens is the second's. */
static void limits_that_are_met(void)
{
    const wf_gen_sampling half = {.temperature = 1, .top_p = 0.5, .repetition_penalty = 1};
    const wf_gen_sampling alike = {
        .temperature = 1, .top_p = 1, .min_p = 1, .repetition_penalty = 1};
    const wf_gen_sampling all = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    const wf_gen_sampling_text none = {NULL, 0, 0};
    const float logits[4] = {2, 2, 2, 2};

    CU_ASSERT_EQUAL(wf_gen_sampling_filter(&half, &none, logits, 4, room), 2);
    CU_ASSERT_EQUAL(wf_gen_sampling_filter(&alike, &none, logits, 4, room), 4);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(wf_gen_sampling_draw(&all, &none, logits, 4, i / 4.0, room), i);
}

static void the_likeliest(void)
{
    const wf_gen_sampling greedy = {.top_p = 1, .repetition_penalty = 1};
    const wf_gen_sampling_text none = {NULL, 0, 0};
    const float logits[] = {1, 3, -2, 3, 0};
    int32_t top[3];

    CU_ASSERT_EQUAL(wf_gen_sampling_draw(&greedy, &none, logits, 5, 0.99, room), 1);
    wf_gen_sampling_top(logits, 5, 3, top, room);
    CU_ASSERT_EQUAL(top[0], 1);
    CU_ASSERT_EQUAL(top[1], 3);
    CU_ASSERT_EQUAL(top[2], 0);
}

static void penalties(void)
{
    const wf_gen_sampling way = {.temperature = 1,
                                 .top_p = 1,
                                 .repetition_penalty = 2,
                                 .presence_penalty = 0.25,
                                 .frequency_penalty = 0.5};
    const int32_t ids[] = {0, 1, 1, 3, 1, 3, 77};
    const wf_gen_sampling_text text = {ids, 7, 2}; /* the first two are the prompt's */
    const float logits[] = {4, -1, 3, 2, 0.5F};
    const double want[] = {2, -2 - 0.25 - 2 * 0.5, 3, 1 - 0.25 - 2 * 0.5, 0.5};
    int64_t n = wf_gen_sampling_filter(&way, &text, logits, 5, room);

    CU_ASSERT_EQUAL(n, 5);
    for (int64_t i = 0; i < n; i++)
        CU_ASSERT_DOUBLE_EQUAL(room[i].score, want[room[i].id], 0);
}

int main(void)
{
    static const wf_test tests[] = {
        {"what is kept is what the definition says", kept_are_those_of_the_definition},
        {"draws follow probabilities", draws_follow_probabilities},
        {"limits that are just met", limits_that_are_met},
        {"the likeliest", the_likeliest},
        {"penalties", penalties},
        {NULL, NULL}};

    return wf_test_main("sampling", tests);
}
