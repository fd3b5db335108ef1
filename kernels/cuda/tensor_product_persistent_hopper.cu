/*
 * kernels/cuda/tensor_product_persistent_hopper.cu - tensor products by wgmma with workers that
 * take turns, for compute capability 9.0: while one multiplies, the other adds sums or stores
 * them. The bits are those of tensor_product_hopper.cu, whose pipeline it is
 * (hopper_pipeline_internal.h): which warpgroup makes a sum, and when, is all that differs.
 *
 * Where each node has one chunk, a worker makes all 128 x 128 elements of every second job.
 * Where sums of chunks wait for others, registers have room for 64 rows of them: workers share
 * the stages of every job, and take turns within its chunks.
 */
#include "kernels/cuda/hopper_launch_internal.h"

namespace
{

/* Rows of tiles that are made side by side: with as many columns they are what an H100's 66
   clusters make at once, which then read the fewest rows of both factors. */
enum { BAND = 8 };

/* STEPS times 16 terms of the next stage are being added to both halves of a job's rows, those
   of the stage before have been. */
template <bool A, bool B, int STEPS, class TURNS>
__device__ __forceinline__ void sum_both(float (&upper)[SUMS], float (&lower)[SUMS],
                                         uint32_t shared, wf_ring *now, bool other_is_read,
                                         TURNS *turn)
{
    uint32_t tile = shared + now->stage * STAGE;
    uint64_t a = wf_described<A>(tile), b = wf_described<B>(tile + OPERAND);

    turn->begin_stage();
    wf_wait_for(shared + AT_FULL + BARRIER * now->stage, now->phase);
    wf_sums_begin();
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        wf_multiply<A, B>(upper, a + wf_step_of<A>(step), b + wf_step_of<B>(step));
        wf_multiply<A, B>(lower, a + WF_TILE_BLOCK / 16 + wf_step_of<A>(step),
                          b + wf_step_of<B>(step));
    }
    wf_sums_commit();
    wf_sums_wait<1>();
    turn->end_stage();
    if (other_is_read)
        last_is_read(shared, *now);
    wf_ring_next(now);
}

/* The sums of all rows of a job become the result, 32 columns at a time, for which the others
   move up: unrolled over all, the loops would have no registers left beside 128 sums. */
template <class T, int N>
__device__ __forceinline__ void store_both(const mapped<N> &of, float (&sum)[SUMS],
                                           float (&lower)[SUMS], const wf_tile_job &job,
                                           char *boxes, int worker, int t)
{
    constexpr int PARTS = 4, PART = SUMS / PARTS;

#pragma unroll 1
    for (int part = 0; part < 2 * PARTS; part++) {
        if (part % PARTS == 0)
            boxes_are_read(worker);
        fill<T, PART>(of, sum, job, part / PARTS, part % PARTS * (TILE / PARTS), boxes, t);
        if (part % PARTS == PARTS - 1)
            store<T>(of, job, part / PARTS, boxes, worker, t);
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] = i + PART < SUMS ? sum[i + PART] : lower[i + PART - SUMS];
#pragma unroll
        for (int i = 0; i + PART < SUMS; i++)
            lower[i] = lower[i + PART];
    }
}

/* Every second job of the cluster, all of its rows; nodes have one chunk. */
template <bool A, bool B, class T, int N>
__device__ __forceinline__ void work_alone(const mapped<N> &of, uint32_t shared, char *boxes,
                                           int worker, int block, int t)
{
    const wf_tensor_product &p = of.p;
    float sum[SUMS], lower[SUMS];
    wf_ring now = {0, 0};
    turns<WF_WHOLE_CHUNK> turn = {shared + AT_TURN, worker, 0, 0, 0};
    const int clusters = (int)gridDim.x / CLUSTER;
    bool own = worker == 0; /* the first job is the first worker's */

    for (int j = (int)blockIdx.x / CLUSTER; j < jobs_of(p); j += clusters, own = !own) {
        wf_tile_job job = job_of<BAND>(p, j, block);
        int stages = of.stages[job.node];
        bool any = false;

        if (!own) {
            wf_ring_skip(&now, stages);
            continue;
        }
        wf_clear(sum);
        wf_clear(lower);
        turn.begin_chunk(stages);
#pragma unroll 1
        for (int q = job.first * p.members; q < (job.first + job.count) * p.members; q++) {
            int depth = (int)p.piece[q].depth;

#pragma unroll 1
            for (; depth > 0; depth -= WF_TILE_DEPTH, any = true) {
                if (depth > WF_TILE_DEPTH / 2)
                    sum_both<A, B, 4>(sum, lower, shared, &now, any, &turn);
                else
                    sum_both<A, B, 2>(sum, lower, shared, &now, any, &turn);
            }
        }
        turn.end_chunk(any);
        wf_sums_wait<0>();
        if (any)
            last_is_read(shared, now);
        store_both<T>(of, sum, lower, job, boxes, worker, t);
    }
    wf_stores_are_done();
}

/* ALONE: a worker has a job to itself. */
template <bool A, bool B, bool ALONE, class T, int N>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    persistent_kernel(const WF_GRID_CONSTANT mapped<N> of)
{
    WF_DYNAMIC_SHARED(char, unaligned);
    block_position at = begin_block(unaligned, ALONE ? 1 : WORKERS);
    int worker = at.group - 1;

    if (at.group == 0) {
        wf_give_registers<24>();
        if (at.t == 0)
            bring<A, B, BAND>(of, at.shared, at.block);
    } else {
        wf_take_registers<240>();
        if constexpr (ALONE)
            work_alone<A, B, T>(of, at.shared, (char *)aside_of(at), worker, at.block, at.t);
        else
            work<A, B, true, BAND, T>(of, at.shared, aside_of(at), worker, at.block, at.t,
                                      turns<WF_TURN>{at.shared + AT_TURN, worker, 0, 0, 0});
    }
    end_block();
}

template <bool ALONE, class T, int N>
cudaError_t launch(cudaStream_t stream, const mapped<N> &of, int processors)
{
    static void (*const kernel[])(const mapped<N>) = {
        persistent_kernel<false, false, ALONE, T, N>,
        persistent_kernel<false, true, ALONE, T, N>,
        persistent_kernel<true, false, ALONE, T, N>,
        persistent_kernel<true, true, ALONE, T, N>};

    return launch_clusters(kernel[2 * of.p.a_along + of.p.b_along], stream, of, processors);
}

template <class T, int N>
cudaError_t map_and_launch(cudaStream_t stream, const wf_tensor_product *p, int processors)
{
    mapped<N> of;

    /* results that are not aligned have a kernel of their own */
    if (!map_factors(&of, p) || !map_result<T>(&of, p))
        return wf_cuda_launch_tensor_product_hopper(stream, p, processors);
    if constexpr (N == FEW_PIECES)
        if (p->chunks <= 1 << p->levels)
            return launch<true, T, N>(stream, of, processors);
    return launch<false, T, N>(stream, of, processors);
}

template <class T>
cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p, int processors)
{
    return p->chunks * p->members <= FEW_PIECES
               ? map_and_launch<T, FEW_PIECES>(stream, p, processors)
               : map_and_launch<T, WF_TENSOR_PIECES>(stream, p, processors);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product_persistent(cudaStream_t stream,
                                                     const wf_tensor_product *p, int processors)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p, processors)
                                     : launch_any<float>(stream, p, processors);
}
