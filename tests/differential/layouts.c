/* tests/differential/layouts.c - what was drawn for a step, as layouts of a mesh. */
#include "tests/differential/run.h"

const wf_layout *layout_of_dims(const run *r, const placing *to, int ndim)
{
    const wf_layout *layout = NULL;

    for (int k = 0; k < AXES; k++) {
        int axis = to->order[k], at = to->at[axis];

        if (axis >= r->mesh->n_axes)
            continue;
        if (at == LAYOUT_SUM || at == LAYOUT_MAX)
            layout = wf_layout_partial(r->mesh, layout, axis,
                                       at == LAYOUT_SUM ? WF_REDUCE_SUM : WF_REDUCE_MAX);
        else if (at >= 0 && at < ndim)
            layout = wf_layout_split(r->mesh, layout, at, axis);
    }
    return layout;
}

static uint32_t bit(char name)
{
    return 1u << (name - 'a');
}

/* The letters that are split where one of them is. */
static uint32_t together(const step *s, const pattern *p, int letter)
{
    uint32_t alone = 1u << letter, members = bit('n') | bit('m') | bit('l');
    uint32_t groups = bit('h') | bit('g');

    if (!s->tied)
        return alone;
    if (s->op->flags & WF_OP_GROUPS)
        return alone & bit('h') ? groups : alone;
    if (strncmp(s->op->name, "linear", 6) == 0 && !op_is(s->op, "linear_dw") && alone & members)
        return members & p->letters;
    return alone;
}

const wf_layout *layout_of_operand(const run *r, const step *s, int i)
{
    pattern p = pattern_of(s->op, s->rest);
    const wf_layout *layout = NULL;

    for (int k = 0; k < AXES; k++) {
        int axis = s->to.order[k], letter = s->to.at[axis];
        uint32_t split;

        if (axis >= r->mesh->n_axes || letter < 0)
            continue;
        split = together(s, &p, letter);
        for (int d = 0; d < p.ndim[i]; d++)
            if (split >> p.letter[i][d] & 1) {
                layout = wf_layout_split(r->mesh, layout, d, axis);
                break;
            }
    }
    return layout;
}
