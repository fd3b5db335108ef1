/*
 * mesh/array/sharding_rule.c - which layouts of operands are legal, and which layouts the
 * outputs then have.
 *
 * All follows from the signature, letter by letter:
 *   - the same letter is split by the same ordered axes in every operand;
 *   - a letter marked "!" is whole;
 *   - an axis that splits a contracted letter leaves the outputs partial over it, and may then
 *     split nothing else of the op (of an op that is a sum of terms: all contracted letters);
 *   - no output has one axis twice;
 *   - what the members of a group make is split by the same axes (WF_OP_MEMBERS): the gradient
 *     of their common operand is one sum over all of it.
 * Partial operands are legal where the op's flags say so. Letter g of an op with WF_OP_GROUPS
 * groups letter h: it may be whole where h is split, or be split by the same axis if every
 * rank's query heads use exactly its own groups.
 */
#include "mesh/array/array_internal.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { G = 'g' - 'a', H = 'h' - 'a' };

typedef struct letters {
    int8_t n[WF_LETTERS];
    int8_t axis[WF_LETTERS][WF_MAX_AXES];
    int owner[WF_LETTERS]; /* the operand that was seen first with it */
    uint8_t mask[WF_LETTERS];
} letters;

static char letter_name(int letter)
{
    return letter < 26 ? (char)('a' + letter) : '.';
}

/* Records WF_ELAYOUT: the op, its operands with their layouts, then the conflict and a
   remedy. */
static wf_status refuse(const wf_call *call, const char *format, ...) WF_PRINTF(2, 3);

static wf_status refuse(const wf_call *call, const char *format, ...)
{
    char why[192 + WF_PARTIAL_TEXT], operands[768] = "";
    size_t n = 0;
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    for (int i = 0; i < call->n_in && n < sizeof operands; i++) {
        const wf_tensor *t = call->in[i];
        char text[192];

        n += (size_t)snprintf(operands + n, sizeof operands - n, "%s%d: %s%s", i ? ", " : "", i,
                              wf_tensor_describe(t, text, sizeof text),
                              t->layout ? "" : " whole");
    }
    return wf_fail(call->ctx, WF_ELAYOUT, "%s (%s) of %s: %s", call->op->name, call->signature,
                   operands, why);
}

/* Refuses a split dim that the op sums and computes with afterwards: it has to be whole. */
static wf_status refuse_split(const wf_call *call, const wf_signature *sig, int letter,
                              int operand, int axis)
{
    const char *name = wf_mesh_axis_name(call->in[operand]->layout->mesh, axis);

    if (sig->contracted >> letter & 1)
        return refuse(call,
                      "dim '%c' of operand %d must be whole on each rank; redistribute it "
                      "first, or let a border sum the product alone, which is partial(%s)",
                      letter_name(letter), operand, name);
    return refuse(call,
                  "dim '%c' of operand %d must be whole on each rank; redistribute it first",
                  letter_name(letter), operand);
}

/* Reads the axes that split each letter; operands must agree. */
static wf_status read_inputs(const wf_call *call, const wf_signature *sig, letters *l)
{
    bool seen[WF_LETTERS] = {false};

    memset(l, 0, sizeof *l);
    for (int i = 0; i < call->n_in; i++) {
        const wf_layout *layout = call->in[i]->layout;

        for (int d = 0; d < sig->ndim[i]; d++) {
            int letter = sig->letter[i][d];
            int n = layout ? layout->n_axes[d] : 0;

            if (n && (sig->whole >> letter & 1))
                return refuse_split(call, sig, letter, i, layout->axis[d][0]);
            if (!seen[letter]) {
                seen[letter] = true;
                l->owner[letter] = i;
                l->n[letter] = (int8_t)n;
                for (int a = 0; a < n; a++) {
                    l->axis[letter][a] = layout->axis[d][a];
                    l->mask[letter] |= (uint8_t)(1u << layout->axis[d][a]);
                }
            } else if (n != l->n[letter] ||
                       (n && memcmp(l->axis[letter], layout->axis[d], (size_t)n) != 0)) {
                return refuse(call,
                              "dim '%c' is not split alike in operands %d and %d; redistribute "
                              "one of them so that both are split by the same axes",
                              letter_name(letter), l->owner[letter], i);
            }
        }
    }
    return WF_OK;
}

static unsigned axes_of_dim(const wf_layout *layout, int dim)
{
    unsigned axes = 0;

    for (int i = 0; layout && i < layout->n_axes[dim]; i++)
        axes |= 1u << layout->axis[dim][i];
    return axes;
}

/* Returns whether each rank's part of h is the heads of its own part of g. Ranks that differ on
   other axes than those which cut the heads have the same parts. */
bool wf_layout_groups_agree(const wf_tensor *q, const wf_tensor *k)
{
    const wf_mesh *mesh = wf_mesh_of(q->ctx);
    unsigned axes = axes_of_dim(q->layout, 2) | axes_of_dim(k->layout, 2);
    int64_t heads = q->dim[2].size, groups = k->dim[2].size;

    if (groups == 0 || heads % groups != 0)
        return false;
    for (int rank = 0; mesh && rank >= 0; rank = wf_mesh_next(mesh, rank, axes)) {
        int64_t h, h_n, g, g_n;

        wf_layout_part(mesh, q->layout, 2, &q->dim[2], rank, &h, &h_n);
        wf_layout_part(mesh, k->layout, 2, &k->dim[2], rank, &g, &g_n);
        if (h_n != g_n * (heads / groups) || (h_n && h != g * (heads / groups)))
            return false;
    }
    return true;
}

static wf_status check_groups(const wf_call *call, const letters *l)
{
    if (l->n[G] == 0 || wf_layout_groups_agree(call->in[0], call->in[1]))
        return WF_OK;
    return refuse(
        call,
        "query heads and key-value heads are cut differently, so that a rank's query heads "
        "need key-value heads of another; redistribute keys and values to be "
        "whole over that axis");
}

/* Checks the letters that no output has, over whose axes every output is partial. */
static wf_status check_contracted(const wf_call *call, const wf_signature *sig,
                                  const letters *l)
{
    bool terms = call->op->flags & WF_OP_TERMS;
    uint8_t all = 0, every = 0xff;
    uint32_t contracted = sig->contracted;

    if (call->op->flags & WF_OP_IN_PLACE)
        return WF_OK; /* no outputs */
    if (call->op->flags & WF_OP_GROUPS)
        contracted &= ~(1u << G);
    for (int letter = 0; letter < WF_LETTERS; letter++) {
        uint8_t mask = l->mask[letter];

        if (!(contracted >> letter & 1))
            continue;
        if ((all & mask) && !terms)
            return refuse(
                call,
                "one axis splits two summed dims, so that each rank would "
                "have products of its own pieces alone; redistribute so that it splits one");
        all |= mask;
        every &= mask;
    }
    if (terms && all != every)
        return refuse(call,
                      "the summed dims of all terms must be split by the same axes, or whole "
                      "terms would be added once per rank; redistribute the others alike");
    return WF_OK;
}

/* Checks the letters of outputs that their common operand, the first, has not. */
static wf_status check_members(const wf_call *call, const wf_signature *sig, const letters *l)
{
    uint32_t common = 0;
    int first = -1;

    for (int d = 0; d < sig->ndim[0]; d++)
        common |= 1u << sig->letter[0][d];
    for (int row = call->n_in; row < call->n_in + call->n_out; row++)
        for (int d = 0; d < sig->ndim[row]; d++) {
            int letter = sig->letter[row][d];

            if (common >> letter & 1)
                continue;
            if (first >= 0 && l->mask[letter] != l->mask[first])
                return refuse(
                    call,
                    "dim '%c' of operand %d and dim '%c' of operand %d are split by different "
                    "axes, but the gradient of operand 0 is one sum over both; "
                    "redistribute one so that the same axes split them, or make "
                    "each product by itself",
                    letter_name(first), l->owner[first], letter_name(letter), l->owner[letter]);
            first = first < 0 ? letter : first;
        }
    return WF_OK;
}

static wf_status refuse_partial(const wf_call *call, int i)
{
    char why[WF_PARTIAL_TEXT];

    if (call->in[i]->dtype != call->in[i]->rounds_to && call->op->keep_fp32)
        return refuse(
            call,
            "operand %d is a partial sum that is rounded to %s when it is complete, and the "
            "result is never rounded; redistribute it to whole or split first",
            i, wf_dtype_name(call->in[i]->rounds_to));
    return refuse(call, "nothing acts on a partial tensor like operand %d: %s", i,
                  wf_partial_explain(call->in[i], why, sizeof why));
}

/* Partial operands: the last one of a linear op; sums of which one term is picked; when
   inexact, all of a joint one together. */
static wf_status pass_partial(const wf_call *call, uint8_t *sum, uint8_t *max)
{
    bool linear = call->op->flags & WF_OP_LINEAR;
    bool joint = (call->op->flags & WF_OP_JOINT) && !wf_context_exact(call->ctx);
    bool alike = true, copies;
    int last = call->n_in - 1, partial = -1; /* the first one that is */

    *sum = *max = 0;
    for (int i = 0; i <= last; i++) {
        const wf_layout *layout = call->in[i]->layout;
        uint8_t s = layout ? layout->sum : 0, m = layout ? layout->max : 0;

        alike &= i == 0 || s == *sum;
        if ((s || m) && partial < 0)
            partial = i;
        *sum |= s;
        *max |= m;
    }
    /* a tensor that is never rounded is no copy of a sum that will be */
    copies = linear && partial == last &&
             (!call->op->keep_fp32 || call->in[last]->dtype == call->in[last]->rounds_to);
    if (partial >= 0 && !copies && !(joint && alike && !*max) && !wf_layout_is_picked(call))
        return refuse_partial(call, partial);
    if (call->op->flags & WF_OP_EXPERTS) /* outputs are sums over their axes by themselves */
        *sum = 0;
    return WF_OK;
}

/* Returns the axes that split what this output sums. Heads of a group that is split with them
   are the rank's own. */
static uint8_t summed_axes(const wf_call *call, const wf_signature *sig, const letters *l,
                           int o)
{
    uint32_t summed = wf_layout_summed(call, sig, o);
    uint8_t axes = 0;

    for (int letter = 0; letter < WF_LETTERS; letter++)
        if (summed >> letter & 1)
            axes |= l->mask[letter];
    return call->op->flags & WF_OP_GROUPS ? axes & (uint8_t)~l->mask[G] : axes;
}

static wf_status output_layout(const wf_call *call, const wf_signature *sig, const letters *l,
                               int o, uint8_t sum, uint8_t max, const wf_layout **out)
{
    wf_mesh *mesh = wf_mesh_of(call->ctx);
    wf_layout layout = wf_layout_copy(mesh, NULL);
    int row = call->n_in + o;
    uint8_t used = 0;

    for (int d = 0; d < sig->ndim[row]; d++) {
        int letter = sig->letter[row][d];

        if (used & l->mask[letter])
            return refuse(
                call,
                "one axis would split two dims of output %d; redistribute one of the operands "
                "so that it is whole there",
                o);
        used |= l->mask[letter];
        layout.n_axes[d] = l->n[letter];
        memcpy(layout.axis[d], l->axis[letter], (size_t)l->n[letter]);
    }
    if (call->op->flags & WF_OP_MAX)
        max |= summed_axes(call, sig, l, o);
    else
        sum |= summed_axes(call, sig, l, o);
    if (used & (sum | max))
        return refuse(
            call,
            "output %d would be split and partial over one axis; redistribute the partial "
            "operand, or what splits the summed dim",
            o);
    layout.sum = sum;
    layout.max = max;
    *out = wf_layout_intern(mesh, &layout);
    return wf_context_status(call->ctx);
}

wf_status wf_layout_rule(const wf_call *call, const wf_signature *sig, const wf_layout **out)
{
    uint8_t sum, max;
    wf_status status;
    bool any = false;
    letters l;

    for (int i = 0; i < call->n_in; i++)
        any |= call->in[i]->layout != NULL;
    if (!any)
        return WF_OK; /* whole in, whole out */
    status = read_inputs(call, sig, &l);
    if (status == WF_OK && (call->op->flags & WF_OP_GROUPS))
        status = check_groups(call, &l);
    if (status == WF_OK && (call->op->flags & WF_OP_MEMBERS))
        status = check_members(call, sig, &l);
    if (status == WF_OK)
        status = check_contracted(call, sig, &l);
    if (status == WF_OK)
        status = pass_partial(call, &sum, &max);
    if (status != WF_OK)
        return status;
    for (int o = 0; o < call->n_out && status == WF_OK; o++)
        status = output_layout(call, sig, &l, o, sum, max, &out[o]);
    if (status == WF_OK)
        wf_layout_report_sums(call, sig, out);
    return status;
}

/* Returns true where every rank's part of dim d of the operand is as much of the whole as its
   part of the view's dim; one part after the other, so that they begin at the same elements
   then. */
static bool same_parts(const wf_tensor *x, int d, const wf_layout *layout, int to,
                       const wf_dim *dim)
{
    const wf_mesh *mesh = wf_mesh_of(x->ctx);
    unsigned axes = axes_of_dim(x->layout, d);
    int64_t even = wf_layout_even_parts(x->layout, d, &x->dim[d]);

    if (even && even == wf_layout_even_parts(
                            layout, to, dim)) /* without a look at each rank of thousands */
        return true;
    for (int rank = 0; rank >= 0; rank = wf_mesh_next(mesh, rank, axes)) {
        int64_t start, n, view_n;

        wf_layout_part(mesh, x->layout, d, &x->dim[d], rank, &start, &n);
        wf_layout_part(mesh, layout, to, dim, rank, &start, &view_n);
        if (n * dim->size != view_n * x->dim[d].size)
            return false;
    }
    return true;
}

/* Returns the first axis of a dim that is cut finely. */
static const char *fine_axis(const wf_layout *layout, int dim)
{
    int i = 0;

    while (i + 1 < layout->n_axes[dim] && !(layout->mesh->fine >> layout->axis[dim][i] & 1))
        i++;
    return layout->mesh->name[layout->axis[dim][i]];
}

wf_status wf_layout_view(const wf_call *call, const wf_signature *sig, const wf_layout *layout,
                         const wf_dim *dims)
{
    const wf_tensor *x = call->in[0];

    for (int d = 0; d < x->ndim && layout->mesh->fine; d++) {
        int row = call->n_in, to = 0;

        while (to < sig->ndim[row] && sig->letter[row][to] != sig->letter[0][d])
            to++;
        if (x->layout && x->layout->n_axes[d] && to < sig->ndim[row] &&
            !same_parts(x, d, layout, to, &dims[to]))
            return refuse(call,
                          "axis %s cuts dim %d anywhere (wf_mesh_cut_finely), here not between "
                          "the %" PRId64
                          " parts that the view has of it; redistribute it to be "
                          "whole on %s first",
                          fine_axis(x->layout, d), d,
                          x->dim[d].size < dims[to].size ? x->dim[d].size : dims[to].size,
                          fine_axis(x->layout, d));
    }
    return WF_OK;
}
