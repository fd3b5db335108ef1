/*
 * tests/differential/promise.c - sums over ranks that must have the bits of one rank.
 *
 * The context reports every sum that has not (wf_context_inexact); all else is compared bit for
 * bit. So that it does not report everything, these it must not report: 2, 4 or 8 parts, by
 * axes in the order of the mesh, of a dim that has 8 chunks, or of a batch whose halves are the
 * ranks'.
 */
#include "tests/differential/program.h"

/* Returns true where ranks [rank, rank + ranks) of p hold the nodes of the midpoint tree over
   chunks [chunk, chunk + n). */
static bool halves_agree(int64_t size, int p, int64_t chunk, int64_t n, int rank, int ranks)
{
    if (ranks == 1 || n <= 1)
        return true;
    return wf_cut(size, 1, p, rank + ranks / 2) == chunk + n / 2 &&
           halves_agree(size, p, chunk, n / 2, rank, ranks / 2) &&
           halves_agree(size, p, chunk + n / 2, n - n / 2, rank + ranks / 2, ranks - ranks / 2);
}

/* Returns how many parts the axes cut a dim in; 0 where that is not promised for any sum. */
static int promised_parts(const wf_tensor *t, int dim)
{
    const wf_layout *layout = t->layout;
    int p = 1;

    for (int i = 0; i < layout->n_axes[dim]; i++) {
        if (t->dim[dim].grain > 1 && layout->mesh->fine >> layout->axis[dim][i] & 1)
            return 0;
        if (i && layout->axis[dim][i] < layout->axis[dim][i - 1])
            return 0;
        p *= layout->mesh->size[layout->axis[dim][i]];
    }
    return p == 2 || p == 4 || p == 8 ? p : 0;
}

/* A sum over dim d of operand t, which has the letter. */
static bool sum_promised(const wf_call *call, const wf_tensor *t, int d, int letter)
{
    int p = promised_parts(t, d), chunks = t->dim[d].chunks;
    bool of_rows = op_is(call->op, "linear_dw") || op_is(call->op, "embedding_dw") ||
                   op_is(call->op, "experts_grad") || op_is(call->op, "experts_adapted_grad");

    if (!p)
        return false;
    if (call->op->flags & WF_OP_EXPERTS && t == call->in[0] && d == 0)
        return halves_agree(t->dim[d].size, p, 0, t->dim[d].size, 0, p);
    if (letter == 'b' - 'a' && chunks == WF_CHUNKS_EACH)
        return halves_agree(t->dim[d].size, p, 0, t->dim[d].size, 0, p);
    if (letter == 'b' - 'a')
        return op_is(call->op, "batch_sum") && chunks == WF_CHUNKS_8;
    if (letter >= 26) /* tokens, where there are no heads behind them */
        return d == 1 && t->ndim <= (op_is(call->op, "token_sum") ? 2 : 3) &&
               chunks == WF_CHUNKS_8 && !of_rows;
    return chunks == WF_CHUNKS_8;
}

/* The letters that an output has. */
static uint32_t letters_of_row(const wf_signature *sig, int row)
{
    uint32_t letters = 0;

    for (int d = 0; d < sig->ndim[row]; d++)
        letters |= 1u << sig->letter[row][d];
    return letters;
}

/* The letters that are summed: beside those of the signature, what the last output lacks of the
   first, what each lacks that sums its own, and heads whose groups are whole. */
static uint32_t summed_letters(const wf_call *call, const wf_signature *sig)
{
    uint32_t summed = sig->contracted, all = 0;
    int row = call->n_in, end = row + call->n_out - 1;

    if (call->op->flags & WF_OP_SUM_LAST)
        summed |= letters_of_row(sig, row) & ~letters_of_row(sig, end);
    for (int i = 0; i < call->n_in && (call->op->flags & WF_OP_OWN_SUMS); i++)
        all |= letters_of_row(sig, i);
    for (int o = row; o <= end; o++)
        summed |= all & ~letters_of_row(sig, o);
    if ((call->op->flags & WF_OP_GROUPS) && call->n_out >= 3)
        summed |= 1u << ('h' - 'a');
    return summed;
}

bool certainly_exact(const wf_call *call)
{
    wf_signature sig;
    uint32_t summed, seen = 0;
    int split = 0;

    if (!wf_context_exact(call->ctx))
        return false;
    if (wf_signature_match(call, &sig) != WF_OK || (call->op->flags & WF_OP_MAX))
        return true;
    summed = summed_letters(call, &sig);
    for (int i = 0; i < call->n_in; i++)
        for (int d = 0; d < sig.ndim[i]; d++) {
            int letter = sig.letter[i][d];
            const wf_layout *layout = call->in[i]->layout;

            if (!(summed >> letter & 1) || (seen >> letter & 1) || !layout ||
                !layout->n_axes[d])
                continue;
            seen |= 1u << letter;
            split++;
            if (!sum_promised(call, call->in[i], d, letter))
                return false;
        }
    return split <= 1 || (call->op->flags & WF_OP_TERMS);
}

/* Ranks are summed in their tree where an axis is summed after all that lie inside of it. */
bool move_keeps_bits(const wf_layout *from, const wf_layout *to)
{
    unsigned before = from ? from->sum : 0, left = before & (to ? to->sum : 0);

    for (int a = 0; a < WF_MAX_AXES; a++)
        if ((before & ~left) >> a & 1 && left >> (a + 1))
            return false;
    return true;
}
