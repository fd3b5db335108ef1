/* core/made_by.c - which ops have made the values of a tensor, as its tape records them. */
#include "core/tape_internal.h"

enum { MOST_NESTED = 6 }; /* sums inside of sums that are looked into */

static bool lists(const wf_op *const *ops, const wf_op *op)
{
    while (*ops && *ops != op)
        ops++;
    return *ops != NULL;
}

static const node *find(const node *n, int output, const wf_op *const *ops, const wf_op *sum,
                        int nested)
{
    const node *found;

    while (n && !lists(ops, n->op)) {
        bool copies = n->op->flags & (WF_OP_VIEW | WF_OP_LINEAR) && n->n_in == 1;

        if (n->op == sum && nested < MOST_NESTED) {
            found = find(n->from[0].made_by, n->from[0].output, ops, sum, nested + 1);
            return found && find(n->from[1].made_by, n->from[1].output, ops, sum, nested + 1)
                       ? found
                       : NULL;
        }
        if (!copies && !(n->op->flags & WF_OP_PASS))
            return NULL;
        output = copies ? 0 : output;
        found = n;
        n = found->from[output].made_by;
        output = found->from[output].output;
    }
    return n;
}

const wf_op *wf_tape_made_by(const wf_tape *tape, const wf_tensor *t, const wf_op *const *ops,
                             const wf_op *sum, const char **module)
{
    const node *n = NULL;

    if (tape && t && t->tape == tape->serial)
        n = find(t->node, t->output, ops, sum, 0);
    if (n)
        *module = n->path;
    return n ? n->op : NULL;
}
