/* kernels/cuda/hopper_emulated_internal.h - the instructions of hopper_internal.h on the
   emulated device. For that file. */
#ifndef WF_KERNELS_CUDA_HOPPER_EMULATED_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_EMULATED_INTERNAL_H

#include <hopper.h> /* the emulator's */

static inline void wf_barrier_begin(uint32_t at, int arrivals)
{
    emulator_barrier_begin(at, (unsigned)arrivals);
}

static inline void wf_barriers_have_begun(void)
{
}

static inline void wf_arrive(uint32_t at)
{
    emulator_barrier_arrive(at, emulator_block_in_cluster());
}

static inline void wf_arrive_everywhere(uint32_t at)
{
    for (unsigned block = 0; block < WF_CLUSTER; block++)
        emulator_barrier_arrive(at, block);
}

static inline void wf_expect(uint32_t at, int bytes)
{
    emulator_barrier_expect(at, (unsigned)bytes);
}

static inline void wf_wait_for(uint32_t at, int phase)
{
    emulator_barrier_wait(at, (unsigned)phase);
}

static inline void wf_sync_cluster(void)
{
    emulator_sync_cluster();
}

static inline int wf_block_in_cluster(void)
{
    return (int)emulator_block_in_cluster();
}

template <int THREADS> static inline void wf_sync_threads(int barrier)
{
    emulator_sync_named((unsigned)barrier, THREADS);
}

template <int COUNT> static inline void wf_give_registers(void)
{
}

template <int COUNT> static inline void wf_take_registers(void)
{
}

static inline void wf_copy_box(uint32_t to, const CUtensorMap *map, uint32_t full, int x, int y,
                               bool to_all)
{
    const int at[] = {x, y};

    emulator_copy_box(to, map, full, at,
                      to_all ? (1u << WF_CLUSTER) - 1 : 1u << emulator_block_in_cluster());
}

static inline void wf_store_box(const CUtensorMap *map, uint32_t from, int x, int y, int z)
{
    const int at[] = {x, y, z};

    emulator_store_box(map, from, at);
}

static inline void wf_boxes_are_written(void)
{
}

static inline void wf_stores_commit(void)
{
    emulator_stores_commit();
}

static inline void wf_stores_have_read(void)
{
    emulator_stores_wait();
}

static inline void wf_stores_are_done(void)
{
    emulator_stores_wait();
}

static inline void wf_sums_begin(void)
{
}

static inline void wf_sums_commit(void)
{
    emulator_wgmma_commit();
}

template <int N> static inline void wf_sums_wait(void)
{
    emulator_wgmma_wait(N);
}

template <bool A, bool B, bool ADD = true, int SUMS>
static inline void wf_multiply(float (&d)[SUMS], uint64_t a, uint64_t b)
{
    emulator_wgmma_ask<A, B, ADD, SUMS>(d, a, b);
}

template <bool B, int SUMS>
static inline void wf_multiply_rows(float (&d)[SUMS], const uint32_t *a, uint64_t b)
{
    emulator_wgmma_ask_rows<B, SUMS>(d, a, b);
}

#endif
