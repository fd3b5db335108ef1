/* parallel/stages/stage_messages.c - what passes between the stages of a pipeline. */
#include "parallel/stages/stages_internal.h"
#include <string.h>

int wf_par_stage_carried(const wf_par_pipeline *p, int stage)
{
    int64_t first = p->first[stage];

    return first > 0 ? p->borders.step[first - 1].carried : p->borders.inputs;
}

bool wf_par_stage_wants(const wf_par_pipeline *p, int stage, int k)
{
    int64_t first = p->first[stage];

    return stage > 0 && first > 0 && p->borders.step[first - 1].border[k].wants_gradient;
}

void wf_par_stage_batch(const wf_par_pipeline *p, const wf_par_batch *batch, wf_tensor **x)
{
    if (wf_par_inputs(batch, p->input, x) == 0)
        x[0] = NULL;
}

/* Returns tensor k that is carried over the border in front of a stage. */
static const wf_par_carried *border_of(const wf_par_pipeline *p, int stage, int k)
{
    return &p->borders.step[p->first[stage] - 1].border[k];
}

/* The layout of a border's tensor in stages: of what is carried into one, or of its
   gradient. */
static const wf_layout *layout_of(const wf_par_stages *s, int stage, int k, bool gradient)
{
    const wf_par_carried *b = border_of(s->pipeline, stage, k);
    const wf_layout *layout = NULL;

    wf_layout_parse(s->t->par->mesh, gradient ? b->gradient_layout : b->layout, &layout);
    return layout;
}

static wf_tensor *tensor_of(const wf_par_stages *s, int stage, int k, bool gradient,
                            const wf_layout *layout)
{
    const wf_par_carried *b = border_of(s->pipeline, stage, k);
    wf_context *ctx = s->t->par->ctx;

    if (wf_context_status(ctx) != WF_OK)
        return NULL;
    return wf_tensor_new(ctx, gradient ? b->gradient_dtype : b->dtype, b->ndim, b->dim, layout,
                         WF_MEMORY_ACTIVATION);
}

wf_tensor *wf_par_stage_input(const wf_par_stages *s, int stage, int k)
{
    return tensor_of(s, stage, k, false, layout_of(s, stage, k, false));
}

/* Returns the dims of a micro-batch's field, or NULL. */
static const wf_dim *dims_of(const wf_par_stages *s, const char *input)
{
    const wf_par_field *field = s->t->options.field;

    for (int i = 0; i < WF_PAR_FIELDS && field[i].name; i++)
        if (strcmp(field[i].name, input) == 0)
            return field[i].dim;
    return NULL;
}

wf_tensor *wf_par_stage_input_of(const wf_par_stages *s, int stage, int k, const wf_tensor *x)
{
    const wf_par *par = s->t->par;
    const wf_dim *had = dims_of(s, s->pipeline->input);
    const wf_layout *layout = layout_of(s, stage, k, false);
    wf_par_carried b = *border_of(s->pipeline, stage, k);

    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (wf_par_is_dp(par, axis))
            layout = wf_layout_whole(par->mesh, layout, axis);
    b.dim[0] = x->dim[0];
    for (int d = 1; had && d < b.ndim && d < x->ndim; d++)
        if (b.dim[d].size == had[d - 1].size)
            b.dim[d] = x->dim[d];
    return wf_tensor_new(par->ctx, b.dtype, b.ndim, b.dim, layout, WF_MEMORY_ACTIVATION);
}

/* The layout in which it travels: of what tensor-parallel ranks have alike each sends a part,
   where options say so. */
static const wf_layout *on_its_way(const wf_par_stages *s, int ndim, const wf_layout *layout)
{
    const wf_par *par = s->t->par;

    for (int axis = 0; s->pipeline->options.split_messages && axis < wf_mesh_axes(par->mesh);
         axis++)
        if (ndim > 1 && axis != par->pp_axis && !wf_par_is_dp(par, axis) &&
            wf_layout_split_dim(layout, axis) < 0 && !wf_layout_is_partial(layout, axis))
            layout = wf_layout_split(par->mesh, layout, 1, axis);
    return layout;
}

/* Which message it is: a step's, of a micro-batch and its tensor k over the border in front of
   a stage, forward or back. */
static uint64_t tag_of(const wf_par_stages *s, int border, int k, int64_t micro, bool back)
{
    return (uint64_t)s->t->step.number << 37 | (uint64_t)k << 35 | (uint64_t)border << 22 |
           (uint64_t)micro << 1 | (uint64_t)back;
}

static bool is_back(wf_par_edge edge)
{
    return edge == WF_PAR_RECV_B || edge == WF_PAR_SEND_B;
}

/* Returns the border that it passes, by the stage after it. */
static int border_at(const wf_par_stage *stage, wf_par_edge edge)
{
    return stage->number + (edge == WF_PAR_SEND_F || edge == WF_PAR_RECV_B);
}

static wf_message *send(const wf_par_stages *s, wf_tensor *t, int peer, uint64_t tag)
{
    wf_context *ctx = s->t->par->ctx;
    wf_message *m = NULL;

    wf_scope_open(ctx);
    if (t)
        m = wf_message_send(wf_redistribute(t, on_its_way(s, t->ndim, t->layout)),
                            s->t->par->pp_axis, peer, tag);
    wf_scope_close(ctx);
    return m;
}

static void begin(wf_par_stages *s, wf_par_stage *stage, int64_t micro, wf_par_edge edge, int k)
{
    wf_par_flight *f = &stage->flight[micro];
    wf_message **message = &f->message[edge][k];
    bool back = is_back(edge);
    int border = border_at(stage, edge), other = border > stage->number ? border : border - 1;
    int peer = wf_pipe_table_rank(s->pipeline->table, other);
    uint64_t tag = tag_of(s, border, k, micro, back);

    if (edge == WF_PAR_SEND_F) {
        *message = send(s, f->out[k], peer, tag);
        if (stage->recomputed[micro]) { /* R makes it anew */
            wf_tensor_release(f->out[k]);
            f->out[k] = NULL;
        }
    } else if (edge == WF_PAR_SEND_B) {
        *message = send(s, f->din[k], peer, tag);
    } else {
        wf_tensor **to = back ? &f->dout[k] : &f->in[k];
        const wf_layout *layout = layout_of(s, border, k, back);

        wf_scope_open(s->t->par->ctx);
        layout = on_its_way(s, border_of(s->pipeline, border, k)->ndim, layout);
        *to = wf_tensor_retain(tensor_of(s, border, k, back, layout));
        wf_scope_close(s->t->par->ctx);
        *message = wf_message_recv(*to, s->t->par->pp_axis, peer, tag);
    }
}

/* Redistributes a received tensor to the layout that stages compute with. */
static void arrive(wf_par_stages *s, wf_tensor **t, const wf_layout *layout)
{
    wf_tensor *came = *t;

    if (!came || came->layout == layout)
        return;
    wf_scope_open(s->t->par->ctx);
    *t = wf_tensor_retain(wf_redistribute(came, layout));
    wf_tensor_release(came);
    wf_scope_close(s->t->par->ctx);
}

static void end(wf_par_stages *s, wf_par_stage *stage, int64_t micro, wf_par_edge edge, int k)
{
    wf_par_flight *f = &stage->flight[micro];
    wf_message *m = f->message[edge][k];
    bool back = is_back(edge);

    f->message[edge][k] = NULL;
    wf_message_end(m);
    if (edge == WF_PAR_SEND_B) {
        wf_tensor_release(f->din[k]);
        f->din[k] = NULL;
    } else if (edge == WF_PAR_RECV_F || edge == WF_PAR_RECV_B) {
        arrive(s, back ? &f->dout[k] : &f->in[k],
               layout_of(s, border_at(stage, edge), k, back));
    }
}

void wf_par_stage_message(wf_par_stages *s, wf_par_stage *stage, int64_t micro,
                          wf_par_edge edge, bool ends)
{
    int border = border_at(stage, edge);

    for (int k = 0; k < wf_par_stage_carried(s->pipeline, border); k++) {
        if (is_back(edge) && !wf_par_stage_wants(s->pipeline, border, k))
            continue;
        if (ends)
            end(s, stage, micro, edge, k);
        else
            begin(s, stage, micro, edge, k);
    }
}
