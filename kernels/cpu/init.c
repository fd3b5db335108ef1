/* kernels/cpu/init.c - initialisation, a run of neighbours in the whole tensor at a time. */
#include "core/random.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pieces.h"
#include "kernels/shared.h"

typedef void generator(float *dst, int64_t n, uint64_t key, uint64_t stream, uint64_t first);

/* x = shift + factor * random(index in the whole) */
typedef struct job {
    const wf_tensor *t;
    const wf_init_attr *attr;
    generator *fill;
    float shift, factor;
} job;

static void random_piece(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    float *x = j->t->data;
    int64_t n;

    (void)worker;
    for (int64_t i = begin; i < end; i += n) {
        int64_t run, first = wf_global_index(j->t, 0, i, &run);

        n = wf_least(run, end - i);
        j->fill(x + i, n, j->attr->key, j->attr->stream, (uint64_t)first);
    }
    for (int64_t i = begin; i < end; i++)
        x[i] = j->shift + j->factor * x[i];
}

static void fill_piece(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    float *x = j->t->data;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        x[i] = j->shift;
}

static wf_status run_job(const wf_call *call, job *j,
                         void (*piece)(void *, int64_t, int64_t, int))
{
    j->t = call->in[0];
    j->attr = call->attr;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(j->t), WF_PIECE_ELEMENTS, piece,
                j);
    return WF_OK;
}

static wf_status init_fill(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    job j = {.shift = attr->a};

    (void)workspace;
    return run_job(call, &j, fill_piece);
}

static wf_status init_normal(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    job j = {.fill = wf_random_fill_normal, .shift = attr->a, .factor = attr->b};

    (void)workspace;
    return run_job(call, &j, random_piece);
}

static wf_status init_uniform(const wf_call *call, void *workspace)
{
    const wf_init_attr *attr = call->attr;
    job j = {.fill = wf_random_fill_uniform, .shift = attr->a, .factor = attr->b - attr->a};

    (void)workspace;
    return run_job(call, &j, random_piece);
}

const wf_kernel wf_cpu_init_fill = {.run = init_fill};
const wf_kernel wf_cpu_init_normal = {.run = init_normal};
const wf_kernel wf_cpu_init_uniform = {.run = init_uniform};
