/*
 * kernels/cuda/rope_table.cu - cosines and sines of this rank's tokens, made in double and
 * rounded; they serve every sequence and head. Those of consecutive tokens are kept on the
 * device: queries and keys, all blocks and both passes want the same ones.
 */
#include "kernels/cuda/operands_internal.h"
#include "kernels/cuda/rope_table_internal.h"
#include <stdlib.h>
#include <string.h>

/* All that a table depends on; compared by its bytes. Divisors are those of each pair in texts
   up to the original length and in longer ones, of WF_ROPE_LONG; `how` is forward, and without
   its pointer to them. */
struct wf_rope_table_key {
    wf_rope_attr how;
    float divisor[2][WF_ROPE_PAIRS];
    int64_t first, tokens, half;
};

struct wf_cuda_rope_kept {
    wf_rope_table_key key;
    float *data;   /* [2][tokens][half] */
    bool in_graph; /* a captured kernel reads it: it stays until the device is closed */
    wf_cuda_rope_kept *next; /* the one that was wanted before it */
};

namespace
{
enum {
    KEPT_TABLES = 4,           /* beside those that graphs read */
    KEPT_TABLE_BYTES = 4 << 20 /* larger ones are made for each call, in its workspace */
};

/* at: NULL, or the position of each row of the tables. */
__global__ void __launch_bounds__(WF_BLOCK)
    table_kernel(const WF_GRID_CONSTANT wf_rope_table_key a, const int32_t *at,
                 wf_rope_range range, float *cosine, float *sine)
{
    const wf_rope_attr &how = a.how;
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;
    const bool lists = how.options.scaling.kind == WF_ROPE_LONG;
    const bool heats = how.options.scaling.kind == WF_ROPE_TEMPERATURE;

    for (int64_t k = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; k < a.tokens * a.half;
         k += step) {
        double angle =
                   pow(how.options.base, -2.0 * (double)(k % a.half) / (double)(2 * a.half)),
               s, c;

        const bool is_long = how.is_long || (at && at[k / a.half] < 0);

        const int64_t position = at ? wf_rope_position(at[k / a.half]) : a.first + k / a.half;
        const double factor = lists ? a.divisor[is_long][k % a.half]
                                    : pow(wf_rope_stretch(&how.options.scaling, position),
                                          wf_rope_slowed(k % a.half, 2 * a.half));

        const double warmth =
            range.attention *
            (1 + (heats ? how.options.scaling.factor *
                              log(wf_rope_warmth(&how.options.scaling, position))
                        : 0));

        angle = wf_rope_scaled(&how.options.scaling, range, factor, k % a.half, angle);
        sincos((double)position * angle, &s, &c);
        cosine[k] = (float)(c * warmth);
        sine[k] = (float)(s * warmth);
    }
}

double natural_log(double x)
{
    return log(x);
}

/* Tokens of a sequence, or of all where each has a position of its own. */
int64_t table_rows(const wf_call *call)
{
    const wf_tensor *x = call->in[0];

    return call->n_in > 1 ? x->local[0] * x->local[1] : x->local[1];
}

wf_rope_table_key table_key_of(const wf_call *call)
{
    const wf_rope_attr *attr = (const wf_rope_attr *)call->attr;
    const wf_tensor *x = call->in[0];
    wf_rope_table_key key;

    memset(&key, 0, sizeof key);
    memcpy(&key.how, attr, sizeof key.how);
    key.how.inverse = false;
    key.how.options.factors = NULL;
    key.first = x->start[1];
    key.tokens = table_rows(call);
    key.half = wf_rope_features(&attr->options, x->local[3]) / 2;
    for (int64_t i = 0; i < key.half && attr->options.scaling.kind == WF_ROPE_LONG; i++)
        for (int is_long = 0; is_long < 2; is_long++)
            key.divisor[is_long][i] = (float)wf_rope_factor(&attr->options, i, is_long);
    return key;
}

size_t table_bytes(const wf_rope_table_key &key)
{
    return (size_t)(key.tokens * key.half) * 2 * sizeof(float);
}

/* Returns the kept table of this key, now the newest; NULL: there is none. */
wf_cuda_rope_kept *find_table(wf_cuda *cuda, const wf_rope_table_key &key)
{
    for (wf_cuda_rope_kept **at = &cuda->rope_tables; *at; at = &(*at)->next) {
        wf_cuda_rope_kept *t = *at;

        if (memcmp(&t->key, &key, sizeof key) != 0)
            continue;
        *at = t->next;
        t->next = cuda->rope_tables;
        cuda->rope_tables = t;
        return t;
    }
    return NULL;
}

/* Frees tables beyond the newest few. */
void trim_tables(wf_cuda *cuda)
{
    wf_cuda_rope_kept **at = &cuda->rope_tables;

    for (int i = 0; *at;) {
        wf_cuda_rope_kept *t = *at;

        i += !t->in_graph;
        if (t->in_graph || i <= KEPT_TABLES) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        wf_cuda_note(cuda, cudaFreeAsync(t->data, cuda->stream), "a table of rope");
        free(t);
    }
}

/* Removes the newest table. */
void drop_table(wf_cuda *cuda)
{
    wf_cuda_rope_kept *t = cuda->rope_tables;

    cuda->rope_tables = t->next;
    cudaFreeAsync(t->data, cuda->stream);
    free(t);
}

/* Adds a table without contents. */
wf_cuda_rope_kept *add_table(wf_cuda *cuda, const wf_rope_table_key &key)
{
    wf_cuda_rope_kept *t = (wf_cuda_rope_kept *)malloc(sizeof *t);
    void *data = NULL;

    if (!t || cudaMallocAsync(&data, table_bytes(key), cuda->stream) != cudaSuccess) {
        cudaGetLastError(); /* the caller reports it */
        free(t);
        return NULL;
    }
    memcpy(&t->key, &key, sizeof key);
    t->data = (float *)data;
    t->in_graph = false;
    t->next = cuda->rope_tables;
    cuda->rope_tables = t;
    trim_tables(cuda);
    return t;
}

/* Returns true where the table of a call is kept, or will be when it runs. */
bool keeps_table(const wf_call *call, const wf_rope_table_key &key)
{
    wf_cuda *cuda = wf_cuda_of(call);

    return call->n_in == 1 && table_bytes(key) <= KEPT_TABLE_BYTES && table_bytes(key) > 0 &&
           (!cuda->capturing || find_table(cuda, key));
}

cudaError_t fill_table(const wf_call *call, const wf_rope_table_key &key, float *data)
{
    const int32_t *at = call->n_in > 1 ? (const int32_t *)call->in[1]->data : NULL;
    const wf_rope_range range = wf_rope_range_of(&((const wf_rope_attr *)call->attr)->options,
                                                 2 * key.half, natural_log);

    return wf_launch(table_kernel, wf_grid(key.tokens * key.half, WF_BLOCK), WF_BLOCK, 0,
                     wf_cuda_of(call)->stream, key, at, range, data,
                     data + key.tokens * key.half);
}
} // namespace

size_t wf_cuda_rope_table_bytes(const wf_call *call)
{
    const wf_rope_table_key key = table_key_of(call);

    return keeps_table(call, key) ? 0 : table_bytes(key);
}

cudaError_t wf_cuda_rope_table(const wf_call *call, void *workspace, wf_rope_rows *rows)
{
    const wf_rope_table_key key = table_key_of(call);
    wf_cuda *cuda = wf_cuda_of(call);
    const bool keep = keeps_table(call, key);
    wf_cuda_rope_kept *t = keep ? find_table(cuda, key) : NULL;
    float *data = t ? t->data : (float *)workspace;
    cudaError_t error = cudaSuccess;

    if (t) {
        t->in_graph = t->in_graph || cuda->capturing;
    } else {
        t = keep ? add_table(cuda, key) : NULL;
        if (keep && !t)
            return cudaErrorMemoryAllocation;
        data = t ? t->data : data;
        error = fill_table(call, key, data);
        if (t && error != cudaSuccess)
            drop_table(cuda);
    }
    *rows = {data, data + key.tokens * key.half, key.tokens, key.half};
    return error;
}

void wf_cuda_rope_close(wf_cuda *cuda)
{
    while (cuda->rope_tables)
        drop_table(cuda);
}
