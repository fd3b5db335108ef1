/*
 * kernels/cpu/isa.c - which of the builds of kernels/cpu/simd/ this machine runs. The processor
 * is asked at run time, so one library serves every machine; the environment can ask for less.
 */
#include "kernels/cpu/isa_internal.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

typedef struct isa {
    const char *name;
    const wf_simd *simd;
    bool (*runs)(void);
    const char *lacking;
} isa;

extern const wf_simd wf_simd_portable;

static bool runs_portable(void)
{
    return true;
}

#if defined(__x86_64__)
extern const wf_simd wf_simd_avx2, wf_simd_avx512;

#if defined(WEFT_HAVE_AVX2) || defined(WEFT_HAVE_AVX512)
/* Returns whether AVX2 runs: the compiler's check also asks whether the operating system keeps
   the wide registers. */
static bool runs_avx2(void)
{
    unsigned a, b, c, d;

    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

#if defined(WEFT_HAVE_AVX512)
static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}
#endif
#endif

#if defined(WEFT_HAVE_NEON)
extern const wf_simd wf_simd_neon;

/* Returns whether NEON runs: every AArch64 processor has it. */
static bool runs_neon(void)
{
    return true;
}
#endif

#if defined(WEFT_HAVE_AMX)
extern const wf_simd wf_simd_tiles_avx512, wf_simd_attention_tiles_avx512;

static pthread_once_t amx_once = PTHREAD_ONCE_INIT;
static wf_simd amx; /* the table of AVX-512 but for products */
static bool amx_runs;

/* Asks Linux for the state of tiles: it is large, so it is kept only for processes that have
   asked. */
static bool system_permits_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void make_amx(void)
{
    enum { BF16 = 1 << 22, TILES = 1 << 24 };
    unsigned a, b, c, d;

    amx = wf_simd_avx512;
    amx.name = wf_simd_tiles_avx512.name;
    amx.gemm_workspace = wf_simd_tiles_avx512.gemm_workspace;
    amx.gemm = wf_simd_tiles_avx512.gemm;
    amx.attention = wf_simd_attention_tiles_avx512.attention;
    amx.attention_grad = wf_simd_attention_tiles_avx512.attention_grad;
    amx_runs = runs_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16) &&
               (d & TILES) && system_permits_tiles();
}

static bool runs_amx(void)
{
    pthread_once(&amx_once, make_amx);
    return amx_runs;
}
#endif

/* Best first. */
static const isa isas[] = {
#if defined(WEFT_HAVE_AMX)
    {"amx", &amx, runs_amx,
     "WEFT_CPU_ISA=amx, but this machine lacks AMX-TILE, AMX-BF16 or AVX-512, or its system "
     "does "
     "not let this process use them: use avx512, avx2 or portable, or leave it unset"},
#endif
#if defined(WEFT_HAVE_AVX512)
    {"avx512", &wf_simd_avx512, runs_avx512,
     "WEFT_CPU_ISA=avx512, but this machine lacks AVX-512 F, DQ, BW or VL: use avx2 or "
     "portable, "
     "or leave it unset"},
#endif
#if defined(WEFT_HAVE_AVX2)
    {"avx2", &wf_simd_avx2, runs_avx2,
     "WEFT_CPU_ISA=avx2, but this machine lacks AVX2, FMA or F16C: use portable, or leave it "
     "unset"},
#endif
#if defined(WEFT_HAVE_NEON)
    {"neon", &wf_simd_neon, runs_neon, ""},
#endif
    {"portable", &wf_simd_portable, runs_portable, ""},
};

enum { ISAS = sizeof isas / sizeof isas[0] };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const wf_simd *chosen;
static const char *reason = "";

const wf_simd *wf_cpu_simd_named(const char *name, const char **why)
{
    const char *text =
        "WEFT_CPU_ISA is none of portable, neon, avx2, avx512 and amx, or is not built for "
        "this processor: leave it unset to get the best";

    for (int i = 0; i < ISAS; i++) {
        if (strcmp(name, isas[i].name) != 0)
            continue;
        if (isas[i].runs())
            return isas[i].simd;
        text = isas[i].lacking;
    }
    if (why)
        *why = text;
    return NULL;
}

static void choose(void)
{
    const char *asked = getenv("WEFT_CPU_ISA");

    if (asked && *asked) {
        chosen = wf_cpu_simd_named(asked, &reason);
        return;
    }
    for (int i = 0; !chosen; i++) {
        if (isas[i].runs())
            chosen = isas[i].simd;
    }
}

const wf_simd *wf_cpu_simd(const char **why)
{
    pthread_once(&once, choose);
    if (!chosen && why)
        *why = reason;
    return chosen;
}
