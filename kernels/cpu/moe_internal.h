/*
 * kernels/cpu/moe_internal.h - experts on the CPU, forward and backward: the tokens of each
 * expert as a list, one expert after the other, each a few products that the thread pool
 * shares. A product's row depends on no other row, so lists of any length give the same bits.
 *
 * All memory is of sizes that no routing changes: the workspace holds the rows that one expert
 * may have, and those that all of this rank may (wf_experts_room); or, with a buffer, as many
 * as that says of one expert and of all. A wave is a run of chunks of tokens (wf_token_cuts)
 * whose rows fit: rows are computed wave by wave, those of an expert in pieces. Gradients of
 * matrices are sums over all chunks; where there are several waves, they are made expert by
 * expert after them.
 */
#ifndef WF_KERNELS_CPU_MOE_INTERNAL_H
#define WF_KERNELS_CPU_MOE_INTERNAL_H

#include "kernels/cpu/rows_internal.h"
#include "kernels/moe_internal.h"

/* The gradient of an expert's matrix [m, n], from rows a [.., m] and b [.., n]. */
typedef struct wf_moe_outer {
    const void *a, *b;
    int64_t m, n;
    int out; /* the number of the output */
} wf_moe_outer;

typedef struct wf_moe_job {
    const wf_call *call; /* its operands where experts, or experts_adapted_grad, have them */
    wf_cpu *cpu;
    wf_moe_sizes s;
    bool bf16;     /* products are those of bf16 operands */
    bool part;     /* results are rows of floats, of a part of their features, not their sum */
    int matrices;  /* outputs that are gradients of matrices, the first ones */
    int64_t bytes; /* the size of a number that products take */
    /* In the workspace; NULL where only its size is asked for. */
    int64_t room, most; /* rows at work at a time, at most: of all experts, of one */
    int64_t one;        /* rows that an expert has at most */
    int64_t *begin;     /* [experts + 1]: the rows of expert e are begin[e] .. begin[e + 1] */
    int64_t *next;      /* [experts]: its first row that no wave has had */
    int64_t *load;      /* [chunks]: rows of each chunk of tokens */
    int32_t *token;     /* [tokens k]: of each row; sequences ascend in an expert's rows */
    int32_t *choice;    /* [tokens k]: of each row, among the choices of all tokens */
    /* [tokens k]: the slot in `rows` of each choice's row, while its wave is at work; -1: its
       expert is another rank's */
    int32_t *row;
    wf_gemm_part *parts; /* [chunks], at least WF_MOE_PARTS */
    int cuts;            /* chunks of features, of which sums over these are trees, and where */
    int64_t cut[WF_MAX_CHUNKS + 1];
    void *x, *gate, *up, *h; /* rows of an expert: [most, d] and [most, f] */
    /* NULL, or gate and up of all rows, which are then no part of the workspace */
    void *kept[WF_MOE_KEPT];
    void *rows;     /* [room, d]: what experts give; floats of a part of their features */
    float *scratch; /* a worker's: of scratch_size floats */
    int64_t scratch_size;
    void *gemm;
    size_t gemm_bytes;
    /* backward alone: rows of dy, of w dy and of c (floats); dgate and dup; a row's dw */
    void *dy, *wdy, *dgate, *dup;
    float *c;
    float *terms[2];   /* NULL, or where c and h of each choice go, for its weight's gradient */
    float *sums;       /* open sums of gradients of matrices, one after the other; or NULL */
    int64_t sums_size; /* floats of one */
    wf_moe_outer outer[WF_MOE_FACTORS]; /* the gradients of matrices */
    void (*make)(struct wf_moe_job *j); /* makes the rows at work that these are of */
    /* The expert whose rows are at work, and these among all rows; the slot of their results
       in `rows`. */
    int64_t expert, first, count, slot;
    /* NULL where there are no adapters, which all that follows is of */
    wf_tensor *const *factors;
    int64_t rank;
    float scale;
    bool last; /* sums over features end with a pair of `rank` terms here */
    /* rows [most, rank]: a product before it is scaled and rounded; u = scale A x, scale A
       h */
    float *low;
    void *u_in, *u_out;
    /* backward alone: v = scale B^T dy, w v, and scale B^T of dgate and dup */
    void *v_out, *wv_out, *v_in;
} wf_moe_job;

/* Lays a job's parts out in the workspace; *used: its bytes. */
wf_moe_job wf_moe_job_of(const wf_call *call, void *workspace, size_t *used);

/* Returns the bytes of a call's workspace. */
size_t wf_moe_workspace(const wf_call *call);

/* Checks the indices and lists each expert's rows. */
wf_status wf_moe_list(wf_moe_job *j);

/* Chunks of tokens. */
typedef struct wf_moe_wave {
    int64_t first, end;
    int64_t slot; /* rows of the experts that have been at work */
} wf_moe_wave;

/* Advances to the next wave, the first one after {0}; false: there is none. */
bool wf_moe_next(wf_moe_job *j, wf_moe_wave *w);

/* Returns the first token of a chunk, or of the one after the last. */
static inline int64_t wf_moe_token(const wf_moe_job *j, int64_t chunk)
{
    return chunk < wf_token_chunks_of(&j->s.cuts) ? wf_token_chunk_at(&j->s.cuts, chunk)
                                                  : j->s.tokens;
}

/* Copies the rows of x, or dy, that the expert at work has. */
void wf_moe_take(wf_moe_job *j, const wf_tensor *from, void *to);

/* Returns row r of rows that have n numbers of the products' type. */
static inline void *wf_moe_row(const wf_moe_job *j, const void *rows, int64_t r, int64_t n)
{
    return (char *)rows + r * n * j->bytes;
}

/* Returns where the results of the expert at work go. */
static inline void *wf_moe_results(const wf_moe_job *j)
{
    return j->part ? (float *)j->rows + j->slot * j->s.d
                   : wf_moe_row(j, j->rows, j->slot, j->s.d);
}

/* Puts rows first .. first + count - 1, of an expert, to work; there are some. */
static inline void wf_moe_begin(wf_moe_job *j, int64_t expert, int64_t first, int64_t count)
{
    j->expert = expert;
    j->first = first;
    j->count = count;
    j->slot = j->row[j->choice[first]];
    if (!j->kept[0])
        return;
    j->gate = wf_moe_row(j, j->kept[0], first, j->s.f);
    j->up = wf_moe_row(j, j->kept[1], first, j->s.f);
}

/* Gives slots to the rows that an expert has in a wave, which end before next[expert]; returns
   their number. */
int64_t wf_moe_slots(wf_moe_job *j, wf_moe_wave *w, int64_t expert);

/* Runs a function with an expert's rows of a wave at work, a piece after the other. */
void wf_moe_pieces(wf_moe_job *j, wf_moe_wave *w, int64_t expert, void (*run)(wf_moe_job *j));

/* Computes u = scale gate_up_a x of the expert at work from its rows of x. */
void wf_moe_gate_up_low(wf_moe_job *j);

/* Computes gate and up of the expert at work from its rows of x, and u before. */
void wf_moe_gate_up(wf_moe_job *j);

/* Computes h of the expert at work from its gate and up. */
void wf_moe_act(wf_moe_job *j);

/* c[m, n] = a[m, k] b, whose element (p, j) is b[p b_k + j b_col]; to c added where `add`; c is
   floats or of the type of products. */
typedef struct wf_moe_product {
    int64_t m, n, k;
    const void *a, *b;
    int64_t b_k, b_col;
    const void *a2, *b2; /* NULL, or a second pair, in the same chains */
    void *c;
    bool floats;
    bool features; /* k are features, which have chunks; else the sum is one chain */
    /* NULL, or a pair of `rank` terms, which the last chain ends with */
    const void *low_a, *low_b;
    int64_t low_b_k, low_b_col;
} wf_moe_product;

void wf_moe_multiply(wf_moe_job *j, const wf_moe_product *p);

enum { WF_MOE_PARTS = 2 * WF_MAX_CHUNKS + 1 }; /* a product's, at most */

/* Sets up the parts of a product: of each chunk of k a chain through one pair of operands, or
   through two, and the pair of `rank` terms. Returns their number. */
int wf_moe_lay_parts(const wf_moe_job *j, const wf_moe_product *p, wf_gemm_part *parts);

/* Computes rows of u or v, scale a factor: of n features from rows of k numbers. The product's
   n and c are set here. */
void wf_moe_multiply_low(wf_moe_job *j, wf_moe_product p, void *to);

/* Computes u = scale down_a h of the expert at work from its rows of h. */
void wf_moe_down_low(wf_moe_job *j);

/* Return the products, without scale, that u of down and v of gate and up are. */
wf_moe_product wf_moe_u_of_down(const wf_moe_job *j);
wf_moe_product wf_moe_v_of_gate_up(const wf_moe_job *j);

/* Computes the expert's rows of results from h, and u where it has adapters. */
void wf_moe_run_down(wf_moe_job *j);

/* Computes v = scale down_b^T dy of the expert at work. */
void wf_moe_down_v(wf_moe_job *j);

/* Computes dgate and dup of the expert at work, and w dy and w v, from its rows of x and dy;
   puts out gradients of weights, or their terms. */
void wf_moe_make_gradients(wf_moe_job *j);

/* Runs a gradient whose job has outer and make set: rows of dx, or none where that is NULL, and
   matrices. */
wf_status wf_moe_run_gradient(wf_moe_job *j, wf_tensor *dx);

/* Returns a factor of the expert at work. */
static inline const void *wf_moe_factor(const wf_moe_job *j, int which)
{
    const wf_tensor *t = j->factors[which];

    return (const char *)t->data + j->expert * t->local[1] * t->local[2] * j->bytes;
}

/* Runs a product in the room of the workspace, in pieces where all of it needs more. */
void wf_moe_gemm(wf_moe_job *j, wf_gemm *g);

/* y of a wave's tokens = tree over their experts of weight * row; weights NULL: of rows. */
void wf_moe_combine(wf_moe_job *j, const wf_moe_wave *w, const float *weights, wf_tensor *y);

/* Rows of experts that are summed as a tree over these, of tokens [first, first + n). */
typedef struct wf_moe_combination {
    const wf_moe_job *j;
    const float *weights, *index; /* weights: NULL, or factors of rows */
    wf_tensor *y;
    int64_t first; /* the first token */
    bool round;    /* rows of floats are rounded to bf16 first */
} wf_moe_combination;

/* Sums tokens [first + begin, first + end): a task of the thread pool. */
void wf_moe_combine_task(void *arg, int64_t begin, int64_t end, int worker);

/* Runs the ops of experts, forward and backward. */
wf_status wf_moe_forward(const wf_call *call, void *workspace);
wf_status wf_moe_gradient(const wf_call *call, void *workspace);

/* Copies the results of a wave to y, a row for each choice; zeros of other ranks' experts. */
void wf_moe_spread(wf_moe_job *j, const wf_moe_wave *w, wf_tensor *y);

/* Returns the matrix of the expert at work. */
static inline const void *wf_moe_matrix(const wf_moe_job *j, int operand)
{
    return (const char *)j->call->in[operand]->data + j->expert * j->s.d * j->s.f * j->bytes;
}

#endif
