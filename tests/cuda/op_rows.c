/* tests/cuda/op_rows.c - the checks of op_rows.h. */
#include "tests/cuda/op_rows.h"
#include "core/numerics/random.h"
#include "kernels/op_table_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/sanitizer.h"
#include <stdlib.h>
#include <string.h>

const row_shape row_shapes[ROW_SHAPES] = {{5, 1, 1, 1, 1, 2, 1},
                                          {3, 21, 31, 33, 5, 6, 257},
                                          {2, 9, 33, 64, 3, 8, 5},
                                          {2, 3, 1000, 24, 2, 16, 2059},
                                          {8, 17, 64, 137, 4, 34, 96}};
static wf_dim dim_of(const row_shape *s, char letter)
{
    switch (letter) {
    case 'b':
        return wf_dim_batch(s->b);
    case 's':
        return wf_dim_chunked(s->s);
    case 'd':
        return wf_dim_width(s->d);
    case 'n':
        return wf_dim_chunked(s->n);
    case 'h':
        return wf_dim_chunked(s->h);
    case 'e':
        return wf_dim_width(s->e);
    case 'v':
        return wf_dim_chunked(s->v);
    case 'q':
        return wf_dim_width(2 * (s->s + 3));
    case '1':
        return wf_dim_width(1);
    case '3':
        return wf_dim_width(3);
    default:
        return wf_dim_width(s->s + 3);
    }
}

static wf_dtype dtype_of(char kind, bool bf16)
{
    return kind == 'i' || kind == 't'   ? WF_I32
           : kind == 'a' || kind == 'v' ? (bf16 ? WF_BF16 : WF_F32)
           : kind == 'w'                ? (bf16 ? WF_F32 : WF_BF16)
                                        : WF_F32;
}

/* One of the words of a description, without numbers; what follows it, or NULL. */
static const char *describe(const char *word, const row_shape *s, bool bf16, numbers *n)
{
    wf_dim dims[WF_MAX_DIMS];
    int ndim = 0;
    const char *at = word + 2;

    for (; *at && *at != ' '; at++)
        dims[ndim++] = dim_of(s, *at);
    *n = numbers_of(ndim, dims, dtype_of(word[0], bf16));
    return *at ? at + 1 : NULL;
}

static void draw(numbers *n, char kind, int64_t below)
{
    numbers r;

    if (kind == 'i' || kind == 't') {
        for (int64_t i = 0; i < wf_tensor_local_count(&n->t); i++)
            ((int32_t *)n->host)[i] =
                kind == 't' && i % 3 == 1
                    ? -1
                    : (int32_t)wf_random_below(3, 1, (uint64_t)i, (uint64_t)below);
        return;
    }
    r = random_numbers(n->t.ndim, n->t.dim, n->t.dtype);
    memcpy(n->host, r.host, bytes_of(&r.t));
    free(r.host);
    for (int64_t i = 0; (kind == 'p' || kind == 'z') && i < wf_tensor_local_count(&n->t); i++)
        ((float *)n->host)[i] = kind == 'z' && i % 3 == 1
                                    ? 0
                                    : 0.25F + ((float *)n->host)[i] * ((float *)n->host)[i];
}

/* The dim of a word that has this letter, WHOLE where none has. */
static int index_of(const char *words, int index, char letter)
{
    for (; index > 0; index--)
        words = strchr(words, ' ') + 1;
    for (int d = 0; words[2 + d] && words[2 + d] != ' '; d++)
        if (words[2 + d] == letter)
            return d;
    return WHOLE;
}

/* Split over one letter; outputs without it are partial, which only floats can be. 8 ranks nest
   in the chunks, and have parts that are empty; 3 have parts that do not. */
static bool split_over(const op_row *r, char letter, const wf_call *call, const numbers *out,
                       split *s)
{
    bool partial = false;

    *s = (split){.name = r->op, .parts = 1u << 3};
    for (int i = 0; i < call->n_in; i++)
        s->in[i] = index_of(r->in, i, letter);
    for (int o = 0; o < call->n_out; o++) {
        s->out[o] = index_of(r->out, o, letter);
        if (s->out[o] == WHOLE) {
            s->out[o] = call->op->flags & WF_OP_MAX ? MAX : SUM;
            partial = true;
            if (out[o].t.dtype != WF_F32)
                return false;
        }
    }
    if (partial && !(call->op->flags & WF_OP_MAX))
        s->parts = 1u << 8;
    return true;
}

static bool same(const numbers *a, const numbers *b)
{
    return memcmp(a->host, b->host, bytes_of(&a->t)) == 0;
}

/* Neither another run nor another address shows in the bits. */
static void check_again(const wf_call *call, numbers *in, const numbers *out)
{
    for (size_t shift = 0; shift <= 1; shift++) {
        numbers again[WF_MAX_OUTPUTS];

        for (int o = 0; o < call->n_out; o++)
            again[o] = numbers_of(out[o].t.ndim, out[o].t.dim, out[o].t.dtype);
        shift_to(shift);
        run_on_device(call, in, again, false);
        shift_to(0);
        for (int o = 0; o < call->n_out; o++) {
            bool alike = same(&again[o], &out[o]);

            CU_ASSERT(alike);
            if (!alike)
                printf(
                    "\n%s: other bits of output %d at %zu elements from an aligned address\n",
                    call->op->name, o, shift);
            free(again[o].host);
        }
    }
}

static bool tried[WF_ID_count];

void row_is_tried(int id)
{
    tried[id] = true;
}

bool row_was_tried(int id)
{
    return tried[id];
}

/* Fills in operands, and returns how many there are. */
static int draw_operands(const op_row *r, const row_shape *s, bool bf16, numbers *in)
{
    int n = 0;

    for (const char *at = r->in; at; n++) {
        char kind = at[0];

        at = describe(at, s, bf16, &in[n]);
        draw(&in[n], kind, s->v);
    }
    return n;
}

void try_row(const op_row *r, const row_shape *s, bool bf16, bool parts_too)
{
    wf_call call = {.op = wf_op_find(r->op), .attr = r->attr, .attr_size = r->attr_size};
    numbers in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    split parts;

    CU_ASSERT_PTR_NOT_NULL_FATAL(call.op);
    tried[call.op->id] = true;
    call.n_in = draw_operands(r, s, bf16, in);
    for (const char *at = r->out; at; call.n_out++)
        at = describe(at, s, bf16, &out[call.n_out]);
    check(&call, in, out, &(split){.name = r->op}, false);
    check_again(&call, in, out);
    for (const char *letter = r->splits; *letter && parts_too; letter++)
        if (split_over(r, *letter, &call, out, &parts))
            check(&call, in, out, &parts, true);
    for (int i = 0; i < call.n_in; i++)
        free(in[i].host);
    for (int o = 0; o < call.n_out; o++)
        free(out[o].host);
}

/* Returns true where a build tries the shape: a sanitizer's looks at the first and at one of
   the others, in turns, in the number type that is split there as well. */
static bool shape_is_tried(int row, int shape, int bf16)
{
    bool in_turn = shape == 0 || shape == 1 + row % (ROW_SHAPES - 1);

    return !UNDER_SANITIZER || (in_turn && shape % 2 == bf16);
}

/* Draws what is not tried: what comes after has the numbers that it has in all builds. */
static void leave_out(const op_row *r, const row_shape *s, bool bf16)
{
    numbers in[WF_MAX_INPUTS];

    for (int n = draw_operands(r, s, bf16, in); n-- > 0;)
        free(in[n].host);
}

void try_rows(const op_row *rows)
{
    open_context(false);
    for (const op_row *r = rows; r->op; r++)
        for (int s = 0; s < ROW_SHAPES; s++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                if (shape_is_tried((int)(r - rows), s, bf16))
                    try_row(r, &row_shapes[s], bf16, s % 2 == bf16);
                else
                    leave_out(r, &row_shapes[s], bf16);
    close_context();
}
