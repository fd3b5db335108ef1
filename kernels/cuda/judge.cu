/*
 * kernels/cuda/judge.cu - the judgment of a step (core/judgment.h), with the bits of the host:
 * an exact sum has one value, and a root, a quotient and a product of doubles or floats are
 * rounded alike everywhere. What ranks bring is words that are joined one by one, each by a
 * thread, so every rank's GPU has the same numbers.
 */
#include "core/numerics/exact_value.h"
#include "kernels/cuda/launch_internal.h"
#include <stddef.h>

namespace
{

enum { BYTES = sizeof(int64_t), WORDS = sizeof(wf_judged_part) / BYTES, BLOCK = 96 };

/* Words of a part that are not added. */
enum {
    NOT_FINITE = offsetof(wf_judged_part, squares.not_finite) / BYTES,
    STEP = offsetof(wf_judged_part, step) / BYTES,
    HELD = offsetof(wf_judged_part, held) / BYTES,
    INEXACT = offsetof(wf_judged_part, inexact) / BYTES
};

static_assert((int)WORDS <= (int)BLOCK, "a thread has one word of a part");

__device__ __forceinline__ bool is_finite(double x)
{
    return x - x == 0.0; /* an infinity less itself is no number */
}

/* Carries run from limb to limb: in shared memory, by one thread. */
__global__ void __launch_bounds__(BLOCK)
    part_kernel(const wf_exact_sum *squares, const wf_now *now, wf_judged_part *part)
{
    WF_SHARED(wf_judged_part, mine, 1);
    const int i = (int)threadIdx.x;

    if (i < (int)(sizeof *squares / BYTES))
        ((int64_t *)mine)[i] = ((const int64_t *)squares)[i];
    __syncthreads();
    if (i == 0) {
        wf_exact_settle(&mine->squares);
        mine->step = now->step;
        mine->alike = now->alike;
        mine->held = now->held;
        mine->inexact = now->inexact;
    }
    __syncthreads();
    if (i < WORDS)
        ((int64_t *)part)[i] = ((const int64_t *)mine)[i];
}

/* Returns what two ranks' words are together; a step that differs is none. */
__device__ __forceinline__ int64_t join(int word, int64_t a, int64_t b)
{
    switch (word) {
    case NOT_FINITE:
    case HELD:
        return a | b;
    case STEP:
        return a == b ? a : -1;
    case INEXACT:
        return a < b ? a : b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

__device__ __forceinline__ void judge(const wf_judge &a, wf_judged_part *all, wf_now *now)
{
    const double norm = sqrt(wf_exact_take(&all->squares));
    const float loss = a.total[0] * a.weight;
    const bool held = !is_finite((double)loss) || !is_finite(norm) ||
                      (a.loss_above > 0.0f && loss > a.loss_above) || all->held ||
                      all->alike != 0 || all->step != now->step;

    a.judged->norm = norm;
    a.judged->loss = loss;
    a.judged->scale = wf_clip_scale(norm, a.clip);
    a.judged->inexact = all->inexact;
    if (held)
        a.judged->held = 1;
    now->grad_scale = a.judged->scale;
    now->held = a.judged->held;
}

__global__ void __launch_bounds__(BLOCK) judge_kernel(const wf_judge a, wf_now *now)
{
    WF_SHARED(wf_judged_part, all, 1);
    const int i = (int)threadIdx.x;

    if (i < WORDS) {
        int64_t word = ((const int64_t *)a.part)[i];

        for (int rank = 1; rank < a.parts; rank++)
            word = join(i, word, ((const int64_t *)(a.part + rank))[i]);
        ((int64_t *)all)[i] = word;
    }
    __syncthreads();
    if (i == 0)
        judge(a, all, now);
}

} // namespace

cudaError_t wf_cuda_launch_judge_part(cudaStream_t stream, const wf_exact_sum *squares,
                                      const wf_now *now, wf_judged_part *part)
{
    return wf_launch(part_kernel, 1, BLOCK, 0, stream, squares, now, part);
}

cudaError_t wf_cuda_launch_judge(cudaStream_t stream, const wf_judge *judge, wf_now *now)
{
    return wf_launch(judge_kernel, 1, BLOCK, 0, stream, *judge, now);
}
