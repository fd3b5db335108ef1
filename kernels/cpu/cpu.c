/* kernels/cpu/cpu.c - the fp32 CPU device. */
#include "core/numerics/exact_sum.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/devices.h"
#include "kernels/shared_internal.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct sum_of_two {
    const wf_simd *simd;
    const wf_tensor *a, *b, *out;
} sum_of_two;

/* Adds bf16 by blocks: widened, added and narrowed. */
static void add_stored(const wf_simd *simd, const uint16_t *a, const uint16_t *b, uint16_t *out,
                       int64_t n)
{
    enum { BLOCK = 512 };
    float x[BLOCK], y[BLOCK];

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = n - i < BLOCK ? n - i : BLOCK;

        simd->widen(a + i, x, count);
        simd->widen(b + i, y, count);
        simd->add(x, y, x, count);
        simd->narrow(x, out + i, count);
    }
}

static void add_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const sum_of_two *j = arg;

    (void)worker;
    if (j->a->dtype == WF_BF16)
        add_stored(j->simd, (const uint16_t *)j->a->data + begin,
                   (const uint16_t *)j->b->data + begin, (uint16_t *)j->out->data + begin,
                   end - begin);
    else
        j->simd->add((const float *)j->a->data + begin, (const float *)j->b->data + begin,
                     (float *)j->out->data + begin, end - begin);
}

static void add(const wf_tensor *a, const wf_tensor *b, wf_tensor *out)
{
    wf_cpu *cpu = wf_context_device(a->ctx)->self;
    sum_of_two j = {cpu->simd, a, b, out};

    wf_thread_pool_run(cpu->pool, wf_tensor_local_count(a), WF_TASK_ELEMENTS, add_task, &j);
}

typedef struct change {
    const wf_simd *simd;
    const void *from;
    void *to;
} change;

static void narrow_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const change *j = arg;

    (void)worker;
    j->simd->narrow((const float *)j->from + begin, (uint16_t *)j->to + begin, end - begin);
}

static void widen_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const change *j = arg;

    (void)worker;
    j->simd->widen((const uint16_t *)j->from + begin, (float *)j->to + begin, end - begin);
}

static void narrow(const wf_device *device, const void *from, uint16_t *to, int64_t n)
{
    wf_cpu *cpu = device->self;
    change j = {cpu->simd, from, to};

    wf_thread_pool_run(cpu->pool, n, WF_TASK_ELEMENTS, narrow_task, &j);
}

static void widen(const wf_device *device, const uint16_t *from, void *to, int64_t n)
{
    wf_cpu *cpu = device->self;
    change j = {cpu->simd, from, to};

    wf_thread_pool_run(cpu->pool, n, WF_TASK_ELEMENTS, widen_task, &j);
}

typedef struct squares {
    const wf_simd *simd;
    const wf_tensor *t;
    wf_exact_sum *sum;
    pthread_mutex_t lock; /* guards sum; the order of arrival makes no difference */
} squares;

static void squares_task(void *arg, int64_t begin, int64_t end, int worker)
{
    squares *j = arg;
    wf_exact_sum partial;

    (void)worker;
    memset(&partial, 0, sizeof partial);
    wf_add_squares(j->t, begin, end, j->simd->sum_squares, &partial);
    pthread_mutex_lock(&j->lock);
    wf_exact_merge(j->sum, &partial);
    pthread_mutex_unlock(&j->lock);
}

static void sum_squares(int64_t n, wf_tensor *const *tensor, wf_exact_sum *sum)
{
    squares j = {.sum = sum, .lock = PTHREAD_MUTEX_INITIALIZER};

    for (int64_t i = 0; i < n; i++) {
        const wf_tensor *t = j.t = tensor[i];
        wf_cpu *cpu = wf_context_device(t->ctx)->self;

        j.simd = cpu->simd;
        wf_thread_pool_run(cpu->pool, wf_extent(t, 0, t->ndim < 1 ? 0 : 1),
                           wf_task_rows(wf_extent(t, 1, t->ndim)), squares_task, &j);
    }
    pthread_mutex_destroy(&j.lock);
}

static void close_device(wf_device *device)
{
    wf_cpu *cpu = device->self;

    wf_thread_pool_close(cpu->pool);
    free(cpu);
}

wf_device *wf_cpu_device(int threads, wf_error *error)
{
    const char *why = NULL;
    const wf_simd *simd = wf_cpu_simd(&why);
    wf_cpu *cpu;

    if (!simd || threads < 1) {
        wf_error_set(error, WF_EINVAL, "%s",
                     simd ? "a CPU device needs at least one thread" : why);
        return NULL;
    }
    cpu = calloc(1, sizeof *cpu);
    if (!cpu) {
        wf_error_set(error, WF_ENOMEM, "no memory for a device");
        return NULL;
    }
    cpu->simd = simd;
    wf_dynamic8_map_make(&cpu->dynamic8[0], wf_dynamic8_signed);
    wf_dynamic8_map_make(&cpu->dynamic8[1], wf_dynamic8_unsigned);
    cpu->device = (wf_device){.name = "cpu",
                              .dtype = WF_F32,
                              .allocator = wf_host_allocator(),
                              .kernel = wf_cpu_kernel,
                              .sum = simd->sum,
                              .maximum = simd->maximum,
                              .sum_to_all = simd->sum_to_all,
                              .copy_non_temporal = simd->copy_non_temporal,
                              .narrow_floats = simd->narrow,
                              .sum_squares = sum_squares,
                              .add = add,
                              .batch_sum = &wf_op_batch_sum,
                              .narrow = narrow,
                              .widen = widen,
                              .widen_nf4 = wf_cpu_widen_nf4,
                              .close = close_device,
                              .self = cpu};
    if (threads > 1) {
        cpu->pool = wf_thread_pool_open(threads, error);
        if (!cpu->pool) {
            free(cpu);
            return NULL;
        }
    }
    return &cpu->device;
}
