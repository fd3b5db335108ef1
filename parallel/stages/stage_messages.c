/* parallel/stages/stage_messages.c - what passes between the stages of a pipeline. */
#include "parallel/stages/stages_internal.h"

/* Returns the tensor that is carried over the border in front of a stage. */
static const wf_par_carried *border_of(const wf_par_pipeline *p, int stage)
{
    return &p->borders.step[p->first[stage] - 1].border[0];
}

/* The layout of a border's tensor in stages: of what is carried into one, or of its
   gradient. */
static const wf_layout *layout_of(const wf_par_stages *s, int stage, bool gradient)
{
    const wf_par_carried *b = border_of(s->pipeline, stage);
    const wf_layout *layout = NULL;

    wf_layout_parse(s->t->par->mesh, gradient ? b->gradient_layout : b->layout, &layout);
    return layout;
}

static wf_tensor *tensor_of(const wf_par_stages *s, int stage, bool gradient,
                            const wf_layout *layout)
{
    const wf_par_carried *b = border_of(s->pipeline, stage);
    wf_context *ctx = s->t->par->ctx;

    if (wf_context_status(ctx) != WF_OK)
        return NULL;
    return wf_tensor_new(ctx, gradient ? b->gradient_dtype : b->dtype, b->ndim, b->dim, layout,
                         WF_MEMORY_ACTIVATION);
}

wf_tensor *wf_par_stage_input(const wf_par_stages *s, int stage)
{
    return tensor_of(s, stage, false, layout_of(s, stage, false));
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

/* Which message it is: a step's, of a micro-batch over the border in front of a stage, forward
   or back. */
static uint64_t tag_of(const wf_par_stages *s, int border, int64_t micro, bool back)
{
    return (uint64_t)s->t->step.number << 37 | (uint64_t)border << 22 | (uint64_t)micro << 1 |
           (uint64_t)back;
}

static bool is_back(wf_par_edge edge)
{
    return edge == WF_PAR_RECV_B || edge == WF_PAR_SEND_B;
}

/* The border that it passes, by the stage behind it. */
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

static void begin(wf_par_stages *s, wf_par_stage *stage, int64_t micro, wf_par_edge edge)
{
    wf_par_flight *f = &stage->flight[micro];
    bool back = is_back(edge);
    int border = border_at(stage, edge), other = border > stage->number ? border : border - 1;
    int peer = wf_pipe_table_rank(s->pipeline->table, other);
    uint64_t tag = tag_of(s, border, micro, back);

    if (edge == WF_PAR_SEND_F) {
        f->message[edge] = send(s, f->out, peer, tag);
        if (stage->recomputed[micro]) { /* R makes it anew */
            wf_tensor_release(f->out);
            f->out = NULL;
        }
    } else if (edge == WF_PAR_SEND_B) {
        f->message[edge] = send(s, f->din, peer, tag);
    } else {
        wf_tensor **to = back ? &f->dout : &f->in;
        const wf_layout *layout = layout_of(s, border, back);

        wf_scope_open(s->t->par->ctx);
        layout = on_its_way(s, border_of(s->pipeline, border)->ndim, layout);
        *to = wf_tensor_retain(tensor_of(s, border, back, layout));
        wf_scope_close(s->t->par->ctx);
        f->message[edge] = wf_message_recv(*to, s->t->par->pp_axis, peer, tag);
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

void wf_par_stage_message(wf_par_stages *s, wf_par_stage *stage, int64_t micro,
                          wf_par_edge edge, bool end)
{
    wf_par_flight *f = &stage->flight[micro];
    wf_message *m = f->message[edge];

    if (!end) {
        begin(s, stage, micro, edge);
        return;
    }
    f->message[edge] = NULL;
    wf_message_end(m);
    if (edge == WF_PAR_SEND_B) {
        wf_tensor_release(f->din);
        f->din = NULL;
    } else if (edge == WF_PAR_RECV_F || edge == WF_PAR_RECV_B) {
        bool back = is_back(edge);

        arrive(s, back ? &f->dout : &f->in, layout_of(s, border_at(stage, edge), back));
    }
}
