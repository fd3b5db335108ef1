/* apps/gpt_eval/score.c - see the header. */
#include "apps/gpt_eval/score.h"

int64_t app_answers_next(const app_requests *all, int64_t begin)
{
    int64_t end = begin + 1;

    while (end < all->count && all->list[end].doc == all->list[begin].doc)
        end++;
    return end;
}

/* One question: requests from `begin` on to before `end`. */
static void count_question(const app_requests *all, const app_answer *answer, int64_t begin,
                           int64_t end, app_score *s)
{
    const double ln2 = 0.693147180559945309417;
    const app_request *r = all->list;
    int64_t best = begin, best_by_bytes = begin, right = r[begin].label;

    s->questions++;
    if (right < 0 || right >= end - begin)
        return;
    for (int64_t i = begin; i < end; i++) {
        const double *best_logprob = &answer[best].logprob;

        best = answer[i].logprob > *best_logprob ? i : best;
        if (answer[i].logprob / (double)r[i].bytes >
            answer[best_by_bytes].logprob / (double)r[best_by_bytes].bytes)
            best_by_bytes = i;
    }
    s->labelled++;
    s->right += best == begin + right;
    s->right_by_bytes += best_by_bytes == begin + right;
    s->bits_per_byte -= answer[begin + right].logprob / ln2 / (double)r[begin + right].bytes;
}

app_score app_answers_score(const app_requests *all, const app_answer *answer)
{
    app_score s = {.questions = 0};

    for (int64_t begin = 0, end; begin < all->count; begin = end) {
        end = app_answers_next(all, begin);
        count_question(all, answer, begin, end, &s);
    }
    if (s.labelled)
        s.bits_per_byte /= (double)s.labelled;
    return s;
}
