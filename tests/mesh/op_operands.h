/*
 * tests/mesh/op_operands.h - operands and attributes for any row of ops.def, made from its
 * signature, with small sizes that 2 and 3 ranks cut unevenly. A new row needs a line here only
 * where its letters are not enough.
 */
#ifndef WF_TESTS_MESH_OP_OPERANDS_H
#define WF_TESTS_MESH_OP_OPERANDS_H

#include "core/numerics/bits.h"
#include "kernels/attention_internal.h"
#include "kernels/conv_internal.h"
#include "kernels/dims_internal.h"
#include "kernels/moe_internal.h"
#include "kernels/ops.h"
#include "kernels/route_balance_internal.h"
#include "kernels/route_capacity_internal.h"
#include "kernels/row_ops_internal.h"
#include "kernels/shared_internal.h"
#include "tests/mesh/mesh_harness.h"

enum { ROWS = 7, HEAD_DIM = 4, SLICED = 5 };

typedef struct op_operand {
    wf_dtype dtype;
    int ndim;
    wf_dim dim[WF_MAX_DIMS];
} op_operand;

typedef union op_attr {
    wf_scale_attr scale;
    wf_dropout_attr dropout;
    wf_add_norm_attr add_norm;
    wf_rope_attr rope;
    wf_add_constant_attr add_constant;
    wf_attention_attr attention;
    wf_dim_attr dim;
    wf_permute_attr permute;
    wf_slice_attr slice;
    wf_matmul_attr matmul;
    wf_reshape_attr reshape;
    wf_patch_attr patch;
    wf_row_attr row;
    wf_route_options route;
    wf_capacity capacity;
    wf_balance balance;
    wf_experts_sum_attr sum;
    wf_moe_attr moe;
    float number[4]; /* ops by expression */
    int64_t count;   /* rows, split_heads, merge_heads */
    float eps;
} op_attr;

static inline bool op_is(const wf_op *op, const char *name)
{
    return strcmp(op->name, name) == 0;
}

/* Returns true where an attention has a mask and a bias. */
static inline bool op_is_general(const wf_op *op)
{
    return strncmp(op->name, "attention_general", 17) == 0;
}

/* Returns true where an attention is of some of the tokens t. */
static inline bool op_is_part(const wf_op *op)
{
    return strncmp(op->name, "attention_part", 14) == 0;
}

static inline wf_attention_attr attention_attr_of(const wf_op *op)
{
    return (wf_attention_attr){.step = 3,
                               .sequences = {2, 3, 5},
                               .key = 7,
                               .dropout = 0.3f,
                               .site = 5,
                               .bidirectional = op_is_general(op),
                               .part = op_is_part(op),
                               .masked = op_is_general(op),
                               .bias_dims = op_is_general(op) ? 4 : 0};
}

static inline wf_dim letter_dim(char letter)
{
    static const wf_dim dims[26] = {
        ['b' - 'a'] = {5, 1, WF_CHUNKS_EACH},     ['c' - 'a'] = {11, 1, WF_CHUNKS_1},
        ['d' - 'a'] = {6, 1, WF_CHUNKS_1},        ['t' - 'a'] = {18, 1, WF_CHUNKS_1},
        ['e' - 'a'] = {14, 1, WF_CHUNKS_EXPERTS}, ['f' - 'a'] = {3, 1, WF_CHUNKS_1},
        ['g' - 'a'] = {3, 1, WF_CHUNKS_8},        ['h' - 'a'] = {6, 1, WF_CHUNKS_8},
        ['k' - 'a'] = {11, 1, WF_CHUNKS_8},       ['l' - 'a'] = {5, 1, WF_CHUNKS_8},
        ['m' - 'a'] = {7, 1, WF_CHUNKS_8},        ['n' - 'a'] = {9, 1, WF_CHUNKS_8},
        ['p' - 'a'] = {9, 1, WF_CHUNKS_1},        ['r' - 'a'] = {3, 1, WF_CHUNKS_1},
        ['s' - 'a'] = {ROWS, 1, WF_CHUNKS_8},     ['v' - 'a'] = {11, 1, WF_CHUNKS_8}};

    return dims[letter - 'a'];
}

/* Heads of groups are cut between groups on 2 ranks, and inside of one on 3. */
static inline wf_dim op_letter_dim(const wf_op *op, char letter)
{
    wf_dim dim = letter_dim(letter == 't' && op_is_part(op) ? 's' : letter);

    if ((op->flags & WF_OP_GROUPS) && (letter == 'g' || letter == 'h'))
        dim.size = letter == 'g' ? 2 : 4;
    return dim;
}

/* Adds the dims of "...": tokens, with heads after them or nothing; and the batch before them
   where the signature has no letter for it. */
static inline void add_stored(op_operand *o, const char *signature, bool heads)
{
    if (!strchr(signature, 'b'))
        o->dim[o->ndim++] = letter_dim('b');
    o->dim[o->ndim++] = letter_dim(strchr(signature, 's') ? 'd' : 's');
    if (heads)
        o->dim[o->ndim++] = letter_dim('g');
}

static inline wf_dtype operand_type(const wf_op *op, int i)
{
    return op->integers >> i & 1 ? WF_I32 : WF_F32;
}

/* Returns the number of operands. */
static inline int op_operands(const wf_op *op, bool heads, op_operand *o)
{
    const char *signature = op->signature;
    int n = 0;

    o[0] = (op_operand){.dtype = operand_type(op, 0)};
    for (const char *s = signature; *s != '-'; s++) {
        if (*s == ',') {
            n++;
            o[n] = (op_operand){.dtype = operand_type(op, n)};
        } else if (*s == '.') {
            add_stored(&o[n], signature, heads);
            s += 2;
        } else if (*s != '!') {
            o[n].dim[o[n].ndim++] = op_letter_dim(op, *s);
        }
    }
    if (op_is(op, "split_heads") || op_is(op, "reshape"))
        o[0].dim[o[0].ndim - 1] = wf_dim_heads(letter_dim('h').size, HEAD_DIM);
    for (int i = 1; i <= 2 && strncmp(op->name, "linear3_rope", 12) == 0; i++)
        o[i].dim[0] = wf_dim_heads(o[i].dim[0].size, HEAD_DIM);
    if (op_is(op, "slice_grad"))
        o[1].dim[1] = (wf_dim){SLICED, 1, o[0].dim[1].chunks};
    if (op_is(op, "patches_grad")) { /* kernels of 3, every second index, one of padding */
        o[1].dim[1].size = (ROWS + 1) / 2;
        o[1].dim[1].chunks = o[0].dim[1].chunks;
        o[1].dim[3] = wf_dim_width(3);
    }
    if (op_is(op, "concat"))
        o[1].dim[1].chunks = o[0].dim[1].chunks;
    return n + 1;
}

static inline wf_reshape_attr reshape_to(int ndim, const wf_dim *dims)
{
    wf_reshape_attr a;

    memset(&a, 0, sizeof a);
    a.ndim = (int8_t)ndim;
    for (int d = 0; d < ndim; d++) {
        a.size[d] = dims[d].size;
        a.grain[d] = (int32_t)dims[d].grain;
        a.chunks[d] = (int8_t)dims[d].chunks;
    }
    return a;
}

/* Heads of the last dim, whose grain says how long they are. */
static inline wf_reshape_attr reshape_heads(const wf_tensor *x)
{
    wf_dim dims[WF_MAX_DIMS];
    const wf_dim *last = &x->dim[x->ndim - 1];

    memcpy(dims, x->dim, sizeof dims);
    dims[x->ndim - 1] = (wf_dim){last->size / last->grain, 1, last->chunks};
    dims[x->ndim] = wf_dim_width(last->grain);
    return reshape_to(x->ndim + 1, dims);
}

/* Returns the size; `x` is the first operand. */
static inline size_t op_attributes(const wf_op *op, const wf_tensor *x, op_attr *a)
{
    memset(a, 0, sizeof *a);
    if (op_is(op, "scale"))
        a->scale.factor = 1.5f;
    else if (op_is(op, "add_constant"))
        a->add_constant.value = 1.5f;
    else if (op_is(op, "dropout") || op_is(op, "dropout_add"))
        a->dropout = (wf_dropout_attr){
            .step = 3, .sequences = {2, 3, 5}, .key = 7, .p = 0.4f, .site = 5};
    else if (op_is(op, "add_layernorm") || op_is(op, "add_rmsnorm"))
        a->add_norm = (wf_add_norm_attr){
            .dropout = {.step = 3, .sequences = {2, 3, 5}, .key = 7, .p = 0.4f, .site = 5},
            .eps = 0.01f};
    else if (strstr(op->name, "rope"))
        a->rope = (wf_rope_attr){.options = {.base = 100}};
    else if (op->flags & WF_OP_GROUPS)
        a->attention = attention_attr_of(op);
    else if (op_is(op, "layernorm") || op_is(op, "rmsnorm"))
        a->eps = 0.01f;
    else if (op_is(op, "sum") || op_is(op, "sum_expand"))
        a->dim.dim = 1;
    else if (op_is(op, "permute"))
        a->permute = (wf_permute_attr){{0, 2, 1}};
    else if (op_is(op, "slice") || op_is(op, "slice_grad"))
        a->slice = (wf_slice_attr){.dim = 1, .first = 2, .count = SLICED};
    else if (op_is(op, "topk"))
        a->row.count = x->dim[x->ndim - 1].size / 2;
    else if (op_is(op, "one_hot"))
        a->row.count = letter_dim('n').size;
    else if (op_is(op, "concat") || op_is(op, "pad"))
        a->row =
            (wf_row_attr){.dim = 1, .first = 0, .count = 2 * op_is(op, "pad"), .value = 0.5f};
    else if (op_is(op, "pow") || op_is(op, "pow_grad"))
        a->number[0] = 1.5f;
    else if (strncmp(op->name, "leaky_relu", 10) == 0 || strncmp(op->name, "elu", 3) == 0)
        a->number[0] = 0.25f;
    else if (strncmp(op->name, "clamp", 5) == 0 || strncmp(op->name, "axpby", 5) == 0)
        a->number[0] = -0.5f, a->number[1] = 0.75f;
    else if (op_is(op, "route") || op_is(op, "route_grad"))
        a->route = (wf_route_options){.k = op_is(op, "route") ? 3 : letter_dim('k').size,
                                      .normalise = true};
    else if (op_is(op, "route_balance") || op_is(op, "route_losses"))
        a->balance = (wf_balance){.weight = 0.5, .z = 0.25, .sequences = 4};
    else if (op_is(op, "route_capacity"))
        a->capacity = (wf_capacity){.experts = 16, .most = 2};
    else if (op->id > 0 && wf_moe_is_staged(op))
        a->moe.scale = 0.75f;
    else if (op_is(op, "experts_sum"))
        a->sum.experts = letter_dim('e').size;
    else if (op_is(op, "rows"))
        a->count = ROWS;
    else if (op_is(op, "split_heads"))
        a->count = HEAD_DIM;
    else if (op_is(op, "patches") || op_is(op, "patches_grad"))
        a->patch = (wf_patch_attr){{1, 3}, {1, 2}, {0, 1}, {1, 1}};
    else if (op_is(op, "reshape"))
        a->reshape = reshape_heads(x);
    else if (op_is(op, "merge_heads"))
        a->count = x->dim[x->ndim - 1].size;
    return sizeof *a;
}

static inline uint64_t noise(int operand, int64_t index, int member)
{
    return wf_mix64((uint64_t)operand << 40 | (uint64_t)member << 32 | (uint64_t)index);
}

/* Returns true where operand i has to be above zero: a sum of exps, or the argument of a root
   or a logarithm. */
static inline bool op_is_positive(const wf_op *op, int i)
{
    static const char *const names[] = {"cross_entropy", "log", "sqrt", "rsqrt",
                                        "pow",           "div", "log1p"};

    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        size_t n = strlen(names[k]);

        if (strncmp(op->name, names[k], n) == 0 &&
            (!op->name[n] || strcmp(op->name + n, "_grad") == 0))
            return i == 0 || (k == 5 && i == 1);
    }
    return false;
}

/* Returns true where operand i has whole numbers, indices of a row or a mask, in a tensor of
   floats. */
static inline bool op_is_index(const wf_op *op, int i)
{
    return (i == 1 && (op_is(op, "gather") || op_is(op, "scatter"))) ||
           (i == 0 && (op_is(op, "one_hot") || op_is(op, "route_capacity"))) ||
           (i == 3 && op_is(op, "attention_general")) ||
           (i == 6 && op_is(op, "attention_general_grad"));
}

/* Returns true where operand i has experts of a token, in any order. */
static inline bool op_is_expert(const wf_op *op, int i)
{
    return i == 1 && strncmp(op->name, "route_", 6) == 0;
}

/* Returns true where operand i has the experts of a token, indices that ascend in each row. */
static inline bool op_is_choice(const wf_op *op, int i)
{
    if (op->id > 0 && wf_moe_is_staged(op))
        return i == (op_is(op, "experts_part_v")                                  ? 5
                     : op_is(op, "experts_part_u") || op_is(op, "experts_part_y") ? 3
                                                                                  : 4);
    return op_is_expert(op, i) || (i == 5 && strncmp(op->name, "experts", 7) == 0) ||
           (i == 1 && op_is(op, "experts_sum"));
}

/* Element `index` of operand i: a token, something positive (a sum of exps), or in [-1, 1]. */
static inline float operand_value(const wf_op *op, int i, int64_t index)
{
    uint64_t bits = noise(i, index, 0);

    if (operand_type(op, i) == WF_I32)
        return (float)(bits % (uint64_t)letter_dim('v').size);
    if (op_is_choice(op, i)) /* a row leaves out some of the first experts */
        return (float)(index % letter_dim('k').size +
                       (int64_t)(noise(i, index / letter_dim('k').size, 0) % 4));
    if (op_is_index(op, i))
        return (float)(bits % (uint64_t)letter_dim('n').size);
    if (op_is_positive(op, i))
        return 1 + (float)(bits % (1 << 20)) / (1 << 20);
    return (float)(int64_t)(bits % (1 << 24)) / (1 << 23) - 1;
}

/* The operand in a layout: partial shares add up to its values, without rounding, or have them
   as their maximum. */
static inline wf_tensor *operand_in(wf_mesh *mesh, const wf_op *op, int i, const op_operand *o,
                                    const wf_layout *layout)
{
    wf_tensor *t =
        wf_tensor_new(mesh->ctx, o->dtype, o->ndim, o->dim, layout, WF_MEMORY_ACTIVATION);
    int members = 1, member = 0;

    for (int axis = 0; axis < mesh->n_axes; axis++)
        if (wf_layout_is_partial(layout, axis)) {
            member = member * mesh->size[axis] + wf_mesh_coordinate(mesh, axis);
            members *= mesh->size[axis];
        }
    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++) {
        int64_t index = whole_index(t, e);
        float value = operand_value(op, i, index);
        int64_t top = index % members;

        if (layout && layout->max) {
            value -= member == top ? 0 : (float)(1 + noise(i, index, member) % 64) / 512;
        } else if (op->flags & WF_OP_PICKED) { /* a token's rows are one member's */
            int64_t rows = o->dim[o->ndim - 1].size * o->dim[o->ndim - 2].size;

            value = member == index / rows % members ? value : 0;
        } else if (member > 0) {
            value = (float)(noise(i, index, member) % 64) / 512;
        } else {
            for (int m = 1; m < members; m++)
                value -= (float)(noise(i, index, m) % 64) / 512;
        }
        put(o->dtype, t->data, e, value);
    }
    return t;
}

#endif
