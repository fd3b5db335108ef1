/* kernels/cpu/moe_lists.c - the tokens of each expert as a list, and rows of them. */
#include "kernels/cpu/moe_internal.h"
#include <string.h>

static double as_float(const void *data, int64_t e)
{
    return (double)((const float *)data)[e];
}

/* Checks that no expert, and no chunk of tokens, has more rows than there is room for, which
   begin[] and load[] count. */
static wf_status check_room(const wf_moe_job *j)
{
    const wf_moe_attr *attr = j->call->attr;
    const int64_t chunks = wf_token_chunks_of(&j->s.cuts);
    int64_t most = 0, rows = 0;

    for (int64_t e = 0; e < j->s.experts; e++)
        most = j->begin[e] > most ? j->begin[e] : most;
    for (int64_t i = 0; i < chunks; i++)
        rows = j->load[i] > rows ? j->load[i] : rows;
    return most <= j->one && rows <= j->room
               ? WF_OK
               : wf_fail(j->call->ctx, WF_EINVAL,
                         "%s: an expert has %lld rows, and a wave %lld, with room for %lld and "
                         "%lld, since an expert takes %lld tokens of a sequence at most: give "
                         "it indices of wf_route_capacity, or say that it takes all",
                         j->call->op->name, (long long)most, (long long)rows, (long long)j->one,
                         (long long)j->room, (long long)(attr ? attr->taken : 0));
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
    memset(j->load, 0, (size_t)wf_token_chunks_of(&j->s.cuts) * sizeof *j->load);
    for (int64_t c = 0; c < choices; c++) {
        int64_t e = (int64_t)index[c] - j->s.first;

        if (e < 0 || e >= j->s.experts)
            continue;
        j->begin[e]++;
        j->load[wf_token_chunk_with(&j->s.cuts, c / j->s.k)]++;
    }
    if (check_room(j) != WF_OK)
        return WF_EINVAL;
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
        j->token[r] = (int32_t)(c / j->s.k);
        j->choice[r] = (int32_t)c;
    }
    for (int64_t e = j->s.experts; e > 0; e--) /* back to the beginnings */
        j->begin[e] = j->begin[e - 1];
    j->begin[0] = 0;
    memcpy(j->next, j->begin, (size_t)j->s.experts * sizeof *j->next);
    return WF_OK;
}

bool wf_moe_next(wf_moe_job *j, wf_moe_wave *w)
{
    const int64_t chunks = wf_token_chunks_of(&j->s.cuts);
    int64_t rows = 0;

    w->first = w->end;
    w->slot = 0;
    while (w->end < chunks && rows + j->load[w->end] <= j->room)
        rows += j->load[w->end++];
    return w->end > w->first;
}

int64_t wf_moe_slots(wf_moe_job *j, wf_moe_wave *w, int64_t expert)
{
    const int64_t first = j->next[expert], end = wf_moe_token(j, w->end);
    int64_t r = first;

    for (; r < j->begin[expert + 1] && j->token[r] < end; r++)
        j->row[j->choice[r]] = (int32_t)w->slot++;
    j->next[expert] = r;
    return r - first;
}

void wf_moe_pieces(wf_moe_job *j, wf_moe_wave *w, int64_t expert, void (*run)(wf_moe_job *j))
{
    const int64_t rows = wf_moe_slots(j, w, expert), end = j->next[expert];

    for (int64_t first = end - rows; first < end; first += j->most) {
        wf_moe_begin(j, expert, first, wf_least(j->most, end - first));
        run(j);
    }
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
    const int32_t *token = c->j->token + c->j->first;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        memcpy(c->to + (size_t)r * c->bytes, c->from + (size_t)token[r] * c->bytes, c->bytes);
}

void wf_moe_take(wf_moe_job *j, const wf_tensor *from, void *to)
{
    copy c = {j, from->data, to, (size_t)(j->s.d * j->bytes)};

    wf_thread_pool_run(j->cpu->pool, j->count, wf_task_rows(j->s.d), copy_task, &c);
}
