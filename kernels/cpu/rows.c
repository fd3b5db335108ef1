/* kernels/cpu/rows.c - see the header. */
#include "kernels/cpu/rows_internal.h"

enum { OPERANDS = WF_MAX_INPUTS + WF_MAX_OUTPUTS, LINE = 16 /* floats */ };

typedef struct job {
    const wf_call *call;
    wf_row_loop *loop;
    const void *with;
    unsigned by_rows;
    int64_t step;            /* rows at a time */
    int64_t width[OPERANDS]; /* elements of a row: of inputs, then of outputs */
    float *room;             /* [workers][of_worker] */
    int64_t of_worker, at[OPERANDS];
} job;

static const wf_tensor *operand(const wf_call *call, int i)
{
    return i < WF_MAX_INPUTS ? call->in[i] : call->out[i - WF_MAX_INPUTS];
}

/* Returns the number of the operand after i that a call has, from -1 on; OPERANDS: none. */
static inline int next_given(const wf_call *call, int i)
{
    i += 1;
    if (i >= call->n_in && i < WF_MAX_INPUTS)
        i = WF_MAX_INPUTS;
    return i < WF_MAX_INPUTS + call->n_out ? i : OPERANDS;
}

static bool is_by_rows(const job *j, int i)
{
    return j->by_rows & (i < WF_MAX_INPUTS ? WF_IN(i) : WF_OUT(i - WF_MAX_INPUTS));
}

/* Operand i's room; NULL: it has none. */
static float *room_of(const job *j, float *room, int i)
{
    return operand(j->call, i)->dtype == WF_BF16 ? room + j->at[i] : NULL;
}

static void run_some(const job *j, float *room, int64_t first, int64_t n)
{
    const wf_simd *simd = wf_cpu_of(j->call)->simd;
    wf_row_run rows = {.call = j->call, .simd = simd, .with = j->with, .first = first, .n = n};

    for (int i = 0; i < j->call->n_in; i++)
        rows.in[i] = is_by_rows(j, i)
                         ? wf_as_floats(simd, operand(j->call, i), first * j->width[i],
                                        n * j->width[i], room_of(j, room, i))
                         : j->call->in[i]->data;
    for (int o = 0, i = WF_MAX_INPUTS; o < j->call->n_out; o++, i++)
        rows.out[o] = is_by_rows(j, i) ? wf_floats_for(operand(j->call, i), first * j->width[i],
                                                       room_of(j, room, i))
                                       : j->call->out[o]->data;
    j->loop(&rows);
    for (int o = 0, i = WF_MAX_INPUTS; o < j->call->n_out; o++, i++)
        if (is_by_rows(j, i))
            wf_floats_done(simd, operand(j->call, i), first * j->width[i], n * j->width[i],
                           room_of(j, room, i));
}

static void task(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    float *room = j->room ? j->room + worker * j->of_worker : NULL;

    for (int64_t n; begin < end; begin += n) {
        n = wf_least(j->step, end - begin);
        run_some(j, room, begin, n);
    }
}

wf_status wf_cpu_run_rows(const wf_call *call, void *workspace, int64_t rows, unsigned by_rows,
                          wf_row_loop *loop)
{
    return wf_cpu_run_rows_with(call, workspace, rows, by_rows, loop, NULL);
}

wf_status wf_cpu_run_rows_with(const wf_call *call, void *workspace, int64_t rows,
                               unsigned by_rows, wf_row_loop *loop, const void *with)
{
    job j = {.call = call, .loop = loop, .with = with, .by_rows = by_rows, .room = workspace};
    int64_t widest = 0;

    if (rows <= 0)
        return WF_OK;
    for (int i = next_given(call, -1); i < OPERANDS; i = next_given(call, i)) {
        if (!is_by_rows(&j, i))
            continue;
        j.width[i] = wf_tensor_local_count(operand(call, i)) / rows;
        j.at[i] = j.of_worker;
        if (operand(call, i)->dtype == WF_BF16)
            j.of_worker += (wf_block_elements(j.width[i]) + LINE - 1) / LINE * LINE;
        widest = j.width[i] > widest ? j.width[i] : widest;
    }
    j.step = with && j.of_worker == 0 ? rows : wf_block_rows(widest);
    wf_thread_pool_run(wf_cpu_of(call)->pool, rows, wf_task_rows(widest), task, &j);
    return WF_OK;
}

size_t wf_cpu_rows_bytes(const wf_call *call, int64_t width)
{
    int64_t of_one = (wf_block_elements(width) + LINE - 1) / LINE * LINE, stored = 0;

    for (int i = next_given(call, -1); i < OPERANDS; i = next_given(call, i))
        stored += operand(call, i)->dtype == WF_BF16;
    return (size_t)(stored * of_one * wf_thread_pool_size(wf_cpu_of(call)->pool)) *
           sizeof(float);
}

size_t wf_cpu_rows_workspace(const wf_call *call)
{
    const wf_tensor *x = call->in[0];

    return wf_cpu_rows_bytes(call, x->ndim ? x->local[x->ndim - 1] : 1);
}
