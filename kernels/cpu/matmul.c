/* kernels/cpu/matmul.c - products of two tensors on the CPU: one GEMM after the other. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/dims_internal.h"
#include <stdlib.h>

/* The sum over k of both operands, in chunks [at[i], at[i + 1]) or one index each. */
typedef struct chunks {
    int64_t n, k;
    bool each;
    int64_t at[WF_MAX_CHUNKS + 1];
} chunks;

static chunks chunks_of(const wf_call *call)
{
    const wf_matmul_attr *attr = call->attr;
    const wf_tensor *a = call->in[0];
    int dim = a->ndim - (attr->transpose_a ? 2 : 1);
    chunks c = {.k = a->local[dim]};

    c.each = wf_is_batch(a, dim) && wf_context_exact(call->ctx);
    c.n = c.each ? c.k : wf_chunk_cuts(a, dim, c.at);
    return c;
}

/* Returns the bytes of the list of parts, which is at the start of the workspace. */
static size_t parts_bytes(const chunks *c)
{
    return ((size_t)(c->n > 0 ? c->n : 1) * sizeof(wf_gemm_part) + 63) / 64 * 64;
}

static char *elements(const wf_tensor *t, int64_t first)
{
    char *data = t->data;

    return data ? data + first * (int64_t)wf_dtype_size(t->dtype) : NULL;
}

/* Returns the product of one index of the batch. */
static wf_gemm product(const wf_call *call, const chunks *c, int64_t batch, wf_gemm_part *parts)
{
    const wf_matmul_attr *attr = call->attr;
    const wf_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    int64_t m = y->local[y->ndim - 2], n = y->local[y->ndim - 1], k = c->k;
    wf_gemm_part whole = {.a_row = attr->transpose_a ? 1 : k,
                          .a_k = attr->transpose_a ? m : 1,
                          .b_k = attr->transpose_b ? 1 : n,
                          .b_col = attr->transpose_b ? k : 1,
                          .chunk = true};

    for (int64_t l = 0; l < c->n; l++) {
        int64_t first = c->each ? l : c->at[l], end = c->each ? l + 1 : c->at[l + 1];

        parts[l] = whole;
        parts[l].a = elements(a, batch * m * k + first * whole.a_k);
        parts[l].b = elements(b, batch * k * n + first * whole.b_k);
        parts[l].k = end - first;
    }
    return (wf_gemm){.m = m,
                     .n = n,
                     .c = elements(y, batch * m * n),
                     .c_row = n,
                     .bf16 = a->dtype == WF_BF16,
                     .c_bf16 = y->dtype == WF_BF16,
                     .parts = parts,
                     .n_parts = c->n};
}

static size_t workspace_bytes(const wf_call *call)
{
    wf_cpu *cpu = wf_cpu_of(call);
    chunks c = chunks_of(call);
    size_t list = parts_bytes(&c), more;
    wf_gemm_part *parts = malloc(list); /* not the pool's memory: that of a dry run is none */
    wf_gemm g;

    if (!parts) {
        wf_fail(call->ctx, WF_ENOMEM, "%s: no memory for the list of %lld chunks",
                call->op->name, (long long)c.n);
        return 0;
    }
    g = product(call, &c, 0, parts);
    more = cpu->simd->gemm_workspace(&g, wf_thread_pool_size(cpu->pool));
    free(parts);
    return list + more;
}

static wf_status run(const wf_call *call, void *workspace)
{
    wf_cpu *cpu = wf_cpu_of(call);
    int64_t batch = wf_extent(call->out[0], 0, call->out[0]->ndim - 2);
    chunks c = chunks_of(call);

    for (int64_t i = 0; i < batch; i++) {
        wf_gemm g = product(call, &c, i, workspace);

        cpu->simd->gemm(cpu->pool, &g, (char *)workspace + parts_bytes(&c));
    }
    return WF_OK;
}

const wf_kernel wf_cpu_matmul = {.run = run,
                                 .workspace = workspace_bytes,
                                 .mixed_ok = WF_OUT(0),
                                 .all_bf16 = WF_IN(0) | WF_IN(1)};
