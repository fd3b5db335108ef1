/*
 * tests/bench/limits.c - what the machine could do at best, measured where the figures are that
 * are compared with it: multiply-adds that wait for nothing, and copies.
 *
 * A chain is an accumulator that needs its last value; enough of them keep all units busy, and
 * nothing is loaded or stored.
 */
#include "tests/bench/bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROUNDS = 20000 };

/* `rounds` multiply-adds of every chain; the sum keeps them from being left out. */
typedef struct fma_kind {
    const char *name;
    bool (*runs)(void);
    float (*chains)(int64_t rounds);
    double flops; /* FLOPs of a round */
} fma_kind;

#if defined(__x86_64__)

static bool runs_avx512(void)
{
    return __builtin_cpu_supports("avx512f");
}

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

enum { WIDE = 24, NARROW = 12 };

__attribute__((target("avx512f"))) static float chains_avx512(int64_t rounds)
{
    __m512 chain[WIDE], x = _mm512_set1_ps(1e-3f);

#pragma GCC unroll 24
    for (int i = 0; i < WIDE; i++)
        chain[i] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int i = 0; i < WIDE; i++)
            __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(chain[i]) : "v"(x));
    }
#pragma GCC unroll 24
    for (int i = 1; i < WIDE; i++)
        chain[0] = _mm512_add_ps(chain[0], chain[i]);
    return _mm512_reduce_add_ps(chain[0]);
}

__attribute__((target("avx2,fma"))) static float chains_avx2(int64_t rounds)
{
    __m256 chain[NARROW], x = _mm256_set1_ps(1e-3f);

#pragma GCC unroll 12
    for (int i = 0; i < NARROW; i++)
        chain[i] = _mm256_setzero_ps();
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < NARROW; i++)
            __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(chain[i]) : "x"(x));
    }
#pragma GCC unroll 12
    for (int i = 1; i < NARROW; i++)
        chain[0] = _mm256_add_ps(chain[0], chain[i]);
    return _mm256_cvtss_f32(chain[0]);
}

#endif

enum { PLAIN = 64 };

static bool runs_plain(void)
{
    return true;
}

/* Multiply, then add: what the compiler's own vectors do without fused instructions. */
static float chains_plain(int64_t rounds)
{
    float chain[PLAIN] = {0}, x = 1e-3f;

    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < PLAIN; i++)
            chain[i] = chain[i] * x + x;
    }
    for (int i = 1; i < PLAIN; i++)
        chain[0] += chain[i];
    return chain[0];
}

static const fma_kind *fma_here(void)
{
    static const fma_kind kinds[] = {
#if defined(__x86_64__)
        {"AVX-512", runs_avx512, chains_avx512, 2.0 * 16 * WIDE},
        {"AVX2", runs_avx2, chains_avx2, 2.0 * 8 * NARROW},
#endif
        {"plain C", runs_plain, chains_plain, 2.0 * PLAIN},
    };
    const fma_kind *kind = kinds;

    while (!kind->runs())
        kind++;
    return kind;
}

const char *bench_fma_name(void)
{
    return fma_here()->name;
}

double bench_fma_flops(const bench_workers *workers)
{
    return fma_here()->flops * ROUNDS * bench_workers_size(workers);
}

static void run_chains(void *arg, int index)
{
    int64_t *rounds = arg;
    volatile float sink = fma_here()->chains(*rounds);

    (void)sink, (void)index;
}

static void run_chains_alone(void *arg, int index)
{
    if (index == 0)
        run_chains(arg, index);
}

static double run_on(bench_workers *workers, void (*chains)(void *arg, int index),
                     int64_t repeat)
{
    int64_t rounds = ROUNDS * repeat;

    return bench_workers_run(workers, chains, &rounds);
}

static double run_fma(void *arg, int64_t repeat)
{
    return run_on(arg, run_chains, repeat);
}

static double run_fma_alone(void *arg, int64_t repeat)
{
    return run_on(arg, run_chains_alone, repeat);
}

bench_entrant bench_fma_alone(bench_workers *workers)
{
    return (bench_entrant){.run = run_fma_alone, .arg = workers};
}

bench_entrant bench_fma(bench_workers *workers)
{
    return (bench_entrant){.run = run_fma, .arg = workers};
}

/* Stores that do not fetch what they overwrite; bytes are a multiple of 64. */
static void copy_stream(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    const __m128i *in = from;
    __m128i *out = to;

    for (size_t i = 0; i < bytes / sizeof *in; i += 4) {
        __m128i a = _mm_load_si128(in + i), b = _mm_load_si128(in + i + 1),
                c = _mm_load_si128(in + i + 2), d = _mm_load_si128(in + i + 3);

        _mm_stream_si128(out + i, a);
        _mm_stream_si128(out + i + 1, b);
        _mm_stream_si128(out + i + 2, c);
        _mm_stream_si128(out + i + 3, d);
    }
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

void bench_copy_bytes(bench_store store, void *to, const void *from, size_t bytes)
{
    if (store == BENCH_STORE_STREAM)
        copy_stream(to, from, bytes);
    else
        memcpy(to, from, bytes);
    __asm__ volatile("" ::: "memory"); /* someone may read it */
}

static void copy_part(void *arg, int index)
{
    const bench_copy *c = arg;
    size_t n = (size_t)bench_workers_size(c->workers), lines = c->bytes / 64;
    size_t begin = lines * (size_t)index / n * 64, end = lines * (size_t)(index + 1) / n * 64;
    const char *from = c->from;
    char *to = c->to;

    for (int64_t r = 0; r < c->repeat; r++) {
        bench_copy_bytes(c->store, to + begin, from + begin, end - begin);
    }
}

static double run_copy(void *arg, int64_t repeat)
{
    bench_copy *c = arg;

    c->repeat = repeat;
    return bench_workers_run(c->workers, copy_part, c);
}

bench_entrant bench_copier(bench_copy *copy)
{
    return (bench_entrant){.run = run_copy, .arg = copy};
}

/* Adds up words, a cache line of independent sums at a time: the fastest read that there is. */
static void read_part(void *arg, int index)
{
    bench_read *b = arg;
    int64_t words = (int64_t)(b->bytes / sizeof(uint64_t)),
            size = bench_workers_size(b->workers);
    const uint64_t *word = b->data;

    for (int64_t r = 0; r < b->repeat; r++) {
        uint64_t sum[32] = {0}, all = 0;

        for (int64_t i = words * index / size / 32 * 32; i + 32 <= words * (index + 1) / size;
             i += 32)
            for (int j = 0; j < 32; j++)
                sum[j] += word[i + j];
        for (int j = 0; j < 32; j++)
            all += sum[j];
        b->sum += all;
    }
}

static double run_read(void *arg, int64_t repeat)
{
    bench_read *b = arg;

    b->repeat = repeat;
    return bench_workers_run(b->workers, read_part, b);
}

bench_entrant bench_reader(bench_read *read)
{
    return (bench_entrant){.run = run_read, .arg = read};
}

float *bench_memory_new(size_t bytes, wf_error *error)
{
    size_t huge = (size_t)2 << 20, size = (bytes + huge - 1) / huge * huge;
    float *memory = aligned_alloc(huge, size);
    uint32_t s = 1;

    if (!memory) {
        wf_error_set(error, WF_ENOMEM, "no memory for a buffer of %zu bytes", bytes);
        return NULL;
    }
    madvise(memory, size, MADV_HUGEPAGE);
    for (size_t i = 0; i < size / sizeof *memory; i++) {
        s = s * 1664525 + 1013904223;
        memory[i] = (float)(s >> 8) / (float)(1 << 24) - 0.5f;
    }
    return memory;
}

wf_context *bench_context(int threads, wf_error *error)
{
    wf_device *device = wf_cpu_device(threads, error);

    return device ? wf_context_open(device, NULL, error) : NULL;
}

wf_context *bench_gpu_context(bool exact_off, wf_error *error)
{
    wf_device *device = wf_cuda_count(false, error)
                            ? wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, error)
                            : NULL;
    const wf_context_options options = {.exact_off = exact_off};

    return device ? wf_context_open(device, &options, error) : NULL;
}
