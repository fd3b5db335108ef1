/* kernels/cpu/moe_lists.c - the tokens of each expert as a list, and rows of them. */
#include "kernels/cpu/moe_internal.h"
#include <string.h>

static double as_float(const void *data, int64_t e)
{
    return (double)((const float *)data)[e];
}

wf_status wf_moe_list(wf_moe_job *j)
{
    const float *index = j->call->in[WF_MOE_INDEX]->data;
    const int64_t choices = j->s.tokens * j->s.k;
    int64_t before = 0;

    if (wf_context_status(j->call->ctx) != WF_OK || wf_moe_check(j->call, as_float) != WF_OK)
        return WF_EINVAL;
    if (choices > INT32_MAX)
        return wf_fail(j->call->ctx, WF_ESHAPE,
                       "%s: %lld choices of a rank's tokens, at most %lld: take smaller "
                       "micro-batches",
                       j->call->op->name, (long long)choices, (long long)INT32_MAX);
    memset(j->begin, 0, (size_t)(j->s.experts + 1) * sizeof *j->begin);
    for (int64_t c = 0; c < choices; c++) {
        int64_t e = (int64_t)index[c] - j->s.first;

        if (e >= 0 && e < j->s.experts)
            j->begin[e]++;
    }
    /* the beginnings, which move up as rows are listed */
    for (int64_t e = 0; e <= j->s.experts; e++) {
        int64_t count = j->begin[e];

        j->begin[e] = before;
        before += count;
    }
    for (int64_t c = 0; c < choices; c++) {
        int64_t e = (int64_t)index[c] - j->s.first, r;

        j->row[c] = -1;
        if (e < 0 || e >= j->s.experts)
            continue;
        r = j->begin[e]++;
        j->row[c] = (int32_t)r;
        j->token[r] = (int32_t)(c / j->s.k);
        j->choice[r] = (int32_t)c;
    }
    for (int64_t e = j->s.experts; e > 0; e--) /* back to the beginnings */
        j->begin[e] = j->begin[e - 1];
    j->begin[0] = 0;
    return WF_OK;
}

typedef struct copy {
    const wf_moe_job *j;
    const char *from;
    char *to;
    size_t bytes;
} copy;

static void copy_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const copy *c = arg;
    const int32_t *token = c->j->token + c->j->begin[c->j->expert];

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        memcpy(c->to + (size_t)r * c->bytes, c->from + (size_t)token[r] * c->bytes, c->bytes);
}

void wf_moe_take(wf_moe_job *j, const wf_tensor *from, void *to)
{
    copy c = {j, from->data, to, (size_t)(j->s.d * j->bytes)};

    wf_thread_pool_run(j->cpu->pool, wf_moe_rows(j), wf_task_rows(j->s.d), copy_task, &c);
}
