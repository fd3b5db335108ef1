/* parallel/generate/score.c - see the header. */
#include "parallel/generate/score.h"
#include <math.h>

/* One question: requests from `begin` on to before `end`. */
static void count_question(const wf_gen_requests *all, const wf_gen_answer *answer,
                           int64_t begin, int64_t end, wf_gen_score *s)
{
    const double ln2 = 0.693147180559945309417;
    const wf_gen_request *r = all->list;
    int64_t best = begin, best_by_bytes = begin, right = r[begin].label;

    s->questions++;
    if (right < 0) /* not known; one that is none of them was refused (requests.c) */
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

bool wf_gen_answers_labelled(const wf_gen_requests *all)
{
    bool any = false;

    for (int64_t i = 0; i < all->count && !any; i++)
        any = all->list[i].label >= 0;
    return any;
}

wf_status wf_gen_answers_check(const wf_gen_requests *all, const wf_gen_answer *answer,
                               const char *path, wf_error *error)
{
    for (int64_t i = 0; i < all->count; i++)
        if (!isfinite(answer[i].logprob))
            return wf_error_set(
                error, WF_ENONFINITE,
                "the answer to line %lld of %s has log-probability %g: the "
                "model's weights, or what it makes of this text, are not finite",
                (long long)all->list[i].line, path, answer[i].logprob);
    return WF_OK;
}

wf_gen_score wf_gen_answers_score(const wf_gen_requests *all, const wf_gen_answer *answer)
{
    wf_gen_score s = {.questions = 0};

    for (int64_t begin = 0, end; begin < all->count; begin = end) {
        end = wf_gen_requests_next(all, begin);
        count_question(all, answer, begin, end, &s);
    }
    s.bits_per_byte = s.labelled ? s.bits_per_byte / (double)s.labelled : NAN;
    return s;
}
