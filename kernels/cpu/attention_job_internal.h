/*
 * kernels/cpu/attention_job_internal.h - a call of attention on the CPU, as its tasks see it:
 * sizes, a worker's memory, the heads.
 */
#ifndef WF_KERNELS_CPU_ATTENTION_JOB_INTERNAL_H
#define WF_KERNELS_CPU_ATTENTION_JOB_INTERNAL_H

#include "kernels/attention_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/simd_internal.h"

enum {
    WF_ATTENTION_BUFFERS = 5
}; /* a group's sum needs at most as many, with dk and dv each */

/* Rounds bytes up to lines of the cache. */
static inline size_t wf_attention_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

typedef struct wf_attention_job {
    const wf_call *call;
    const wf_simd *simd;
    bool bf16; /* operands are, but first and lse, and so is out or dq */
    int64_t tokens, keys, dim, heads, groups; /* this rank's */
    int64_t own, own_end; /* tokens of which it gives rows (wf_attention_own); own_end 0: all */
    int64_t per_group;    /* query heads of a group, globally */
    size_t block, bytes;  /* one head's scratch; a worker's whole space */
    int64_t packed;       /* floats of one head's packed dk, or dv */
    int buffers;          /* they hold dk and dv, packed, dv after dk */
    int chunks;
    int64_t chunk[WF_MAX_CHUNKS + 1]; /* local heads */
    size_t parts;                     /* offset of a worker's list of a sequence's parts */
    char *workspace;
} wf_attention_job;

/* Plans a worker's memory: the head's scratch, its lse, and (backward) buffers of dk and dv. */
wf_attention_job wf_attention_job_of(const wf_call *call, bool backward, void *workspace);

/* Runs its tasks on the workers: fn(job, begin, end, worker). */
wf_status wf_attention_job_run(wf_attention_job *j, int64_t tasks,
                               void (*fn)(void *, int64_t, int64_t, int));

/* Describes a head of a local sequence: all of its tokens, without rows to prefetch. */
wf_attention_head wf_attention_describe(const wf_attention_job *j, int64_t b, int64_t head);

/* Returns where the parts of a sequence begin, and its end: of heads that may be cut
   (wf_attention_is_cut). */
const int32_t *wf_attention_parts_of(const wf_attention_job *j, int64_t b, int worker);

/* Returns a worker's lse of a head. */
float *wf_attention_lse_of(const wf_attention_job *j, int worker);

/* Returns the offset of token 0 of a head in [b, s, h, d]; the number at an index of a tensor's
   data. */
int64_t wf_attention_head_at(const wf_attention_job *j, int64_t b, int64_t head);
void *wf_attention_number_at(const wf_tensor *t, int64_t index);

#endif
