/* tests/differential/steps.c - the steps of a program on a mesh. */
#include "tests/differential/run.h"

/* The program in words, by the first rank. */
static void write_step(run *r, const step *s)
{
    char text[256];

    if (r->rank->index != 0 || r->again)
        return;
    for (int o = 0; o < s->n_out; o++) {
        int id = s->out[o];

        note(r->b, "%sv%d %s", o ? ", " : "  ", id,
             r->value[id] ? wf_tensor_describe(r->value[id], text, sizeof text) : "missing");
        if (r->value[id] && r->value[id]->ndim)
            for (int d = 0; d < r->value[id]->ndim; d++)
                note(r->b, "%s%d/%d", d ? "," : " grains/chunks ",
                     (int)r->value[id]->dim[d].grain, r->value[id]->dim[d].chunks);
    }
    note(r->b, "%s\n", r->rough[s->out[0]] ? " (close)" : "");
}

static void write_call(run *r, const step *s, const char *how, wf_tensor *const *in)
{
    char text[256];

    if (r->rank->index != 0 || r->again)
        return;
    note(r->b, "  round %d %s %s%s(", s->round, how, s->module ? "(recomputed) " : "",
         s->op->name);
    for (int i = 0; i < s->n_in; i++)
        note(r->b, "%sv%d %s", i ? ", " : "", s->in[i],
             in[i] ? wf_layout_print(in[i]->layout, text, sizeof text) : "missing");
    note(r->b, ")\n");
}

wf_status note_refusal(run *r, const char *what)
{
    const char *text = wf_context_error(r->ctx)->text;

    if (wf_context_status(r->ctx) != WF_ELAYOUT) {
        fail_case(r->b, "%s: %s", what, text);
        return give_up(r->rank, r->ctx);
    }
    for (const char *s = strstr(text, ": "); s && *s; s++) /* behind "rank 1" */
        r->reported = wf_mix64(r->reported ^ (uint64_t)*s);
    wf_context_clear(r->ctx);
    return WF_OK;
}

static wf_status failed(run *r, const char *what)
{
    fail_case(r->b, "%s: %s", what, wf_context_error(r->ctx)->text);
    return give_up(r->rank, r->ctx);
}

/* This rank's part of a leaf's numbers, or its share of them. */
static wf_tensor *make_part(run *r, const step *s, const value *v)
{
    const world *w = r->p->world;
    const wf_layout *layout = layout_of_dims(r, &s->to, v->ndim);
    int members = partial_members(&s->to, w), member = 0;
    wf_tensor *t;

    if (members == 1)
        return wf_distribute(r->ctx, v->whole, v->dtype, v->ndim, v->dim, layout);
    for (int a = 0; a < w->n_axes; a++)
        if (s->to.at[a] == LAYOUT_SUM || s->to.at[a] == LAYOUT_MAX)
            member = member * w->size[a] + wf_mesh_coordinate(r->mesh, a);
    t = wf_tensor_new(r->ctx, v->dtype, v->ndim, v->dim, layout, WF_MEMORY_ACTIVATION);
    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        put(v->dtype, t->data, e,
            leaf_number(s, v->dtype, v->below, whole_index(t, e), member, members));
    return t;
}

static wf_status run_leaf(run *r, const step *s)
{
    const value *v = &r->p->value[s->out[0]];
    wf_tensor *t = make_part(r, s, v);

    r->value[s->out[0]] = t && v->wanted ? wf_leaf(t) : t;
    r->rough[s->out[0]] = r->p->world->exact_off;
    return t ? WF_OK : failed(r, "a leaf");
}

/* The way of a tensor into a layout; what it loses of the promise is noted. */
static wf_tensor *bring(run *r, wf_tensor *x, const wf_layout *to, way how)
{
    wf_tensor *y;

    if (!move_keeps_bits(x->layout, to))
        r->rough_now = r->rough_any = true;
    y = wf_redistribute(x, to);
    if (how == WAY_KEEP_ORIGIN)
        wf_keep_origin(y, x);
    return y;
}

/* On one axis alone, where it is the innermost one of what it splits. */
static wf_tensor *bring_on_axis(run *r, const step *s, wf_tensor *x)
{
    const wf_layout *to = wf_layout_whole(r->mesh, x->layout, s->axis);
    int from = wf_layout_split_dim(x->layout, s->axis), at = s->to.at[s->axis];
    wf_tensor *y;

    if (from >= 0 && x->layout->axis[from][x->layout->n_axes[from] - 1] != s->axis)
        return bring(r, x, x->layout, WAY_REDISTRIBUTE);
    if (at >= 0)
        to = wf_layout_split(r->mesh, to, at, s->axis);
    if (!move_keeps_bits(x->layout, to))
        r->rough_now = r->rough_any = true;
    for (int a = s->axis + 1; a < r->mesh->n_axes; a++)
        r->rough_back |= r->mesh->size[a] > 1;
    wf_border(s->axis, 1, &x, &to, &y);
    return y == x ? wf_redistribute(x, to) : y; /* on one rank; backward may begin there */
}

static wf_tensor *by_its_parts(run *r, wf_tensor *x)
{
    wf_tensor *local = wf_to_local(x, wf_layout_dual(r->mesh, x->layout));

    return wf_from_local(local, x->ndim, x->dim, x->layout);
}

static wf_status run_move(run *r, const step *s)
{
    wf_tensor *x = r->value[s->in[0]], *y;

    r->rough_now = false;
    if (s->way == WAY_BORDER)
        y = bring_on_axis(r, s, x);
    else if (s->way == WAY_LOCAL)
        y = by_its_parts(r, x);
    else
        y = bring(r, x, layout_of_dims(r, &s->to, x->ndim), s->way);
    r->value[s->out[0]] = y;
    r->rough[s->out[0]] = r->rough_now || r->rough[s->in[0]];
    if (r->rank->index == 0 && !r->again)
        note(r->b, "  round %d move %d of v%d\n", s->round, (int)s->way, s->in[0]);
    return y ? WF_OK : failed(r, "a move");
}

/* All operands into the layouts drawn for them, or whole. */
static wf_status bring_operands(run *r, const step *s, bool whole, wf_tensor **in)
{
    const wf_layout *to[WF_MAX_INPUTS];
    wf_tensor *x[WF_MAX_INPUTS];
    int n = s->n_in;

    for (int i = 0; i < n; i++) {
        x[i] = r->value[s->in[i]];
        to[i] = whole ? NULL : layout_of_operand(r, s, i);
        if (!move_keeps_bits(x[i]->layout, to[i]))
            r->rough_now = r->rough_any = true;
    }
    if (s->way == WAY_MANY && n <= WF_MAX_OUTPUTS)
        wf_redistribute_many(n, x, to, in);
    else
        for (int i = 0; i < n; i++)
            in[i] = bring(r, x[i], to[i], s->way);
    return wf_context_status(r->ctx) == WF_OK ? WF_OK : failed(r, "bringing operands");
}

static wf_status give_results(run *r, const step *s, wf_tensor *const *out)
{
    bool rough = r->rough_now;

    atomic_fetch_add(&r->b->applied, r->rank->index == 0 && !r->again);
    atomic_fetch_add(&r->b->of[s->op ? s->op->id : 0], 1);
    for (int i = 0; i < s->n_in; i++)
        rough |= r->rough[s->in[i]];
    for (int o = 0; o < s->n_out; o++) {
        r->value[s->out[o]] = out[o];
        r->rough[s->out[o]] = rough || s->op == &weigh_op;
    }
    return WF_OK;
}

/* As it is where that was drawn; else, or where that is refused, as drawn; else whole, which
   nothing may refuse. */
static wf_status run_apply(run *r, const step *s)
{
    wf_tensor *in[WF_MAX_INPUTS], *out[WF_MAX_OUTPUTS] = {NULL};
    int8_t *tried = &r->tried[s - r->p->step];

    for (int i = 0; i < s->n_in; i++)
        in[i] = r->value[s->in[i]];

    for (int attempt = r->again              ? *tried
                       : s->way == WAY_AS_IS ? 0
                                             : 1;
         attempt < 3; attempt++) {
        static const char *const names[] = {"as it is", "as drawn", "whole"};

        r->rough_now = false;
        r->fell_back |= attempt && s->way == WAY_AS_IS;
        *tried = (int8_t)attempt;
        if (attempt)
            GOOD(bring_operands(r, s, attempt == 2, in));
        write_call(r, s, names[attempt], in);
        if (apply(s, r->ctx, in, out) == WF_OK)
            return give_results(r, s, out);
        if (attempt == 2)
            return failed(r, "refused though all operands are whole");
        atomic_fetch_add(&r->b->refused, r->rank->index == 0);
        GOOD(note_refusal(r, s->op->name));
    }
    return WF_OK;
}

wf_status run_step(run *r, int k)
{
    const step *s = &r->p->step[k];
    wf_status status = WF_OK;

    atomic_fetch_add(&r->b->beat, 1);
    if (s->kind == STEP_LEAF)
        status = run_leaf(r, s);
    else if (s->kind == STEP_MOVE)
        status = run_move(r, s);
    else if (s->kind == STEP_APPLY)
        status = run_apply(r, s);
    else
        r->value[s->out[0]] = wf_leaf(r->value[s->in[0]]);
    if (s->kind == STEP_REUSE)
        r->rough[s->out[0]] = r->rough[s->in[0]];
    if (status == WF_OK)
        write_step(r, s);
    return status;
}
