/*
 * kernels/cuda/judge.cu - the judgment of a step (core/judgment.h) by one thread, with the bits
 * of the host: an exact sum has one value, and a root, a quotient and a product of doubles or
 * floats are rounded alike everywhere.
 */
#include "core/numerics/exact_value.h"
#include "kernels/cuda/launch_internal.h"

namespace
{

__device__ __forceinline__ bool is_finite(double x)
{
    return x - x == 0.0; /* an infinity less itself is no number */
}

__global__ void judge_kernel(const wf_judge a, wf_now *now)
{
    wf_exact_sum sum = *a.squares;
    const double norm = sqrt(wf_exact_take(&sum));
    const float loss = a.total[0] * a.weight;
    const bool held = !is_finite((double)loss) || !is_finite(norm) ||
                      (a.loss_above > 0.0f && loss > a.loss_above);

    a.judged->norm = norm;
    a.judged->loss = loss;
    a.judged->scale = wf_clip_scale(norm, a.clip);
    if (held)
        a.judged->held = 1;
    now->grad_scale = a.judged->scale;
    now->held = a.judged->held;
}

} // namespace

cudaError_t wf_cuda_launch_judge(cudaStream_t stream, const wf_judge *judge, wf_now *now)
{
    return wf_launch(judge_kernel, 1, 1, 0, stream, *judge, now);
}
