/* parallel/train/stage_messages.c - what passes between the stages of a pipeline. */
#include "parallel/train/stages_internal.h"

/* What is carried over the border in front of a stage. */
static const wf_par_carried *border_of(const wf_par_pipeline *p, int stage)
{
    return &p->borders.step[p->first[stage] - 1].border[0];
}

/* A tensor as the plan has seen it: what is carried into a stage, or its gradient. */
static wf_tensor *tensor_of(const wf_par_stages *s, int stage, bool gradient)
{
    const wf_par_carried *b = border_of(s->pipeline, stage);
    wf_context *ctx = s->t->par->ctx;
    const wf_layout *layout = NULL;

    if (wf_layout_parse(s->t->par->mesh, gradient ? b->gradient_layout : b->layout, &layout) !=
        WF_OK)
        return NULL;
    return wf_tensor_new(ctx, gradient ? b->gradient_dtype : b->dtype, b->ndim, b->dim, layout,
                         WF_MEMORY_ACTIVATION);
}

wf_tensor *wf_par_stage_input(const wf_par_stages *s, int stage)
{
    return tensor_of(s, stage, false);
}

/* Which message it is: a step's, of a micro-batch over the border in front of a stage, forward or back. */
static uint64_t tag_of(const wf_par_stages *s, int border, int64_t micro, bool back)
{
    return (uint64_t)s->t->step.number << 37 | (uint64_t)border << 22 | (uint64_t)micro << 1 |
           (uint64_t)back;
}

static void begin(wf_par_stages *s, wf_par_stage *stage, int64_t micro, wf_par_edge edge)
{
    wf_par_flight *f = &stage->flight[micro];
    bool back = edge == WF_PAR_RECV_B || edge == WF_PAR_SEND_B;
    bool up =
        edge == WF_PAR_SEND_F || edge == WF_PAR_RECV_B; /* the stage behind is the other end */
    int border = stage->number + up, axis = s->t->par->pp_axis;
    int peer = wf_pipe_table_rank(s->pipeline->table, stage->number + (up ? 1 : -1));
    uint64_t tag = tag_of(s, border, micro, back);

    if (edge == WF_PAR_SEND_F) {
        f->message[edge] = wf_message_send(f->out, axis, peer, tag);
        if (stage->again[micro]) { /* R makes it anew */
            wf_tensor_release(f->out);
            f->out = NULL;
        }
    } else if (edge == WF_PAR_SEND_B) {
        f->message[edge] = wf_message_send(f->din, axis, peer, tag);
    } else {
        wf_tensor **to = edge == WF_PAR_RECV_F ? &f->in : &f->dout;

        wf_scope_open(s->t->par->ctx);
        *to = wf_tensor_retain(tensor_of(s, border, back));
        wf_scope_close(s->t->par->ctx);
        f->message[edge] = wf_message_recv(*to, axis, peer, tag);
    }
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
    }
}
