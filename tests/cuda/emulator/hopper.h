/*
 * tests/cuda/emulator/hopper.h - what only Hopper has, as functions for kernels: barriers in
 * shared memory, boxes that are copied meanwhile, products of a warpgroup. An address in shared
 * memory is its distance from where the block's own begins. For C; products for C++.
 */
#ifndef WF_TESTS_EMULATOR_HOPPER_H
#define WF_TESTS_EMULATOR_HOPPER_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A barrier waits for `arrivals`, and for the bytes that are expected with one of them. */
void emulator_barrier_begin(uint32_t at, unsigned arrivals);
void emulator_barrier_arrive(uint32_t at, unsigned block);
void emulator_barrier_expect(uint32_t at, unsigned bytes);
void emulator_barrier_wait(uint32_t at, unsigned phase);

/* A box of a map of two dims goes to the shared memory of those blocks of the cluster that the
   mask has, and is counted at their barriers. */
void emulator_copy_box(uint32_t to, const CUtensorMap *map, uint32_t barrier, const int at[2],
                       unsigned blocks);
/* A box of a map of three dims is stored, at the latest when the thread waits for what it has
   committed. */
void emulator_store_box(const CUtensorMap *map, uint32_t from, const int at[3]);
void emulator_stores_commit(void);
void emulator_stores_wait(void);

void emulator_sync_cluster(void);
void emulator_sync_named(unsigned id, unsigned threads); /* barrier `id` of the block */
void emulator_wgmma_count(void);                         /* Counts a group of products. */
long emulator_wgmma_groups(void);                        /* Returns the number of these. */
unsigned emulator_block_in_cluster(void);
unsigned emulator_thread(void);
char *emulator_shared_of(unsigned block);

#ifdef __cplusplus
}

#include <cstring>
#include <vector>

/* Returns the bits of a number of a tile as the instruction finds it: groups of 8 lines, 128
   bytes each, swizzled by the address. */
template <bool ALONG>
static inline uint32_t emulator_wgmma_number(const char *shared, uint64_t descriptor, int row,
                                             int term)
{
    uint32_t at = (uint32_t)(descriptor & 0x3fff) << 4;
    uint32_t leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    int line = ALONG ? row : term, byte = 2 * (ALONG ? term : row % 64);
    uint16_t bits;

    at += (uint32_t)(line / 8) * stride + (uint32_t)(line % 8) * 128 + (uint32_t)byte;
    if (!ALONG)
        at += (uint32_t)(row / 64) * leading;
    at ^= (at >> 7 & 7) << 4;
    memcpy(&bits, shared + at, sizeof bits);
    return (uint32_t)bits << 16;
}

/* Adds 16 terms of a b^T, at once as an emulated mma.sync does, to this thread's SUMS of
   64 rows, or to 0. */
template <bool A, bool B, bool ADD, int SUMS>
static inline void emulator_wgmma_run(float *d, uint64_t a, uint64_t b)
{
    enum { TERMS = 16, ROWS = 2, COLUMNS = SUMS / ROWS };
    int t = (int)(emulator_thread() % 128), down = t / 32 * 16 + t % 32 / 4, across = t % 4 * 2;
    const char *shared = emulator_shared_of(emulator_block_in_cluster());
    float x[ROWS][TERMS], y[COLUMNS][TERMS];

    for (int k = 0; k < TERMS; k++) {
        for (int r = 0; r < ROWS; r++)
            x[r][k] = __uint_as_float(emulator_wgmma_number<A>(shared, a, down + 8 * r, k));
        for (int c = 0; c < COLUMNS; c++)
            y[c][k] = __uint_as_float(
                emulator_wgmma_number<B>(shared, b, across + c / 2 * 8 + c % 2, k));
    }
    for (int i = 0; i < SUMS; i++) {
        double terms = 0;

        for (int k = 0; k < TERMS; k++)
            terms += (double)x[i / 2 % 2][k] * (double)y[i / 4 * 2 + i % 2][k];
        d[i] = (float)((ADD ? (double)d[i] : 0.0) + terms);
    }
}

/* The same where a warp's 16 rows of a are a fragment in registers, which its lanes have shown:
   two terms of row lane / 4, of 8 rows below, and of 8 terms later both once more. */
struct emulator_fragment {
    uint32_t a[4];
};

static emulator_fragment emulator_fragments[2][1024];
static unsigned char emulator_fragment_half[1024];

template <bool B, int SUMS>
static inline void emulator_wgmma_run_rows(float *d, uint64_t a, uint64_t b)
{
    enum { TERMS = 16 };
    const unsigned thread = emulator_thread(), lane = thread % 32;
    emulator_fragment *shown =
        &emulator_fragments[emulator_fragment_half[thread] ^= 1][thread - lane];
    const char *shared = emulator_shared_of(emulator_block_in_cluster());

    memcpy(shown[lane].a, (const void *)(uintptr_t)a, sizeof shown->a);
    emulator_sync_warp(0xffffffffu);
    for (int i = 0; i < SUMS; i++) {
        const int row = i / 2 % 2, column = (int)lane % 4 * 2 + i / 4 * 8 + i % 2;
        double terms = 0;

        for (int k = 0; k < TERMS; k++) {
            const uint32_t pair = shown[lane / 4 * 4 + (unsigned)k % 8 / 2].a[row + k / 8 * 2];
            const float x = __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16);

            terms += (double)x *
                     (double)__uint_as_float(emulator_wgmma_number<B>(shared, b, column, k));
        }
        d[i] = (float)((double)d[i] + terms);
    }
}

/* Products that a thread has asked for; they are made when it waits for them. */
struct emulator_wgmma {
    void (*run)(float *d, uint64_t a, uint64_t b);
    float *d;
    uint64_t a, b;
    bool ends_group;
};

static std::vector<emulator_wgmma> emulator_asked[1024];

template <bool A, bool B, bool ADD, int SUMS>
static inline void emulator_wgmma_ask(float (&d)[SUMS], uint64_t a, uint64_t b)
{
    emulator_asked[emulator_thread()].push_back(
        {emulator_wgmma_run<A, B, ADD, SUMS>, d, a, b, false});
}

/* The registers of a are read when the product is made, too. */
template <bool B, int SUMS>
static inline void emulator_wgmma_ask_rows(float (&d)[SUMS], const uint32_t *a, uint64_t b)
{
    emulator_asked[emulator_thread()].push_back(
        {emulator_wgmma_run_rows<B, SUMS>, d, (uint64_t)(uintptr_t)a, b, false});
}

static inline void emulator_wgmma_commit(void)
{
    std::vector<emulator_wgmma> &asked = emulator_asked[emulator_thread()];

    emulator_wgmma_count();
    if (!asked.empty())
        asked.back().ends_group = true;
}

/* All but the last `groups` groups are made. */
static inline void emulator_wgmma_wait(int groups)
{
    std::vector<emulator_wgmma> &asked = emulator_asked[emulator_thread()];
    size_t end = asked.size();

    for (; end > 0; end--)
        if (asked[end - 1].ends_group && groups-- == 0)
            break;
    for (size_t i = 0; i < end; i++)
        asked[i].run(asked[i].d, asked[i].a, asked[i].b);
    asked.erase(asked.begin(), asked.begin() + (long)end);
}
#endif

#endif
