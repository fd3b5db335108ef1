/* parallel/simulate/paced.c - what ops and transfers take on a machine; see the header. */
#include "parallel/simulate/paced.h"
#include "core/context.h"
#include "core/op.h"
#include <string.h>

static double bytes_of(const wf_tensor *t)
{
    return t ? (double)wf_tensor_local_count(t) * (double)wf_dtype_size(t->dtype) : 0;
}

/* Returns the bytes that an op reads once and writes once: of a table of embeddings the rows
   alone. */
static double bytes_through(const wf_call *call)
{
    bool table = strcmp(call->op->name, "embedding") == 0;
    unsigned writes =
        call->op->flags & WF_OP_IN_PLACE ? call->op->writes | WF_IN(0) : call->op->writes;
    double bytes = table ? bytes_of(call->out[0]) : 0;

    for (int i = 0; i < call->n_in; i++)
        if (!(call->op->shapes >> i & 1) && !table)
            bytes += bytes_of(call->in[i]) * (writes & WF_IN(i) ? 2 : 1);
    for (int o = 0; o < call->n_out; o++)
        bytes += bytes_of(call->out[o]);
    return bytes;
}

wf_sim_work wf_sim_work_of(const wf_call *call)
{
    return (wf_sim_work){.flops = call->op->flops ? call->op->flops(call) : 0,
                         .bytes = bytes_through(call),
                         .attention = strncmp(call->op->name, "attention", 9) == 0};
}

static double op_time(const void *self, const wf_call *call)
{
    const wf_sim_paced *p = self;
    const wf_sim_machine *m = &p->machine;
    wf_dtype stored = call->in[0]->dtype;
    bool as_stored = wf_context_compute(call->ctx) == stored && m->rate[stored] > 0;
    wf_sim_work work = wf_sim_work_of(call);
    double rate =
        m->rate[as_stored ? stored : WF_F32] * (work.attention ? m->attention : m->products);

    return p->scale *
           (m->launch + (work.flops > 0 ? work.flops / rate : work.bytes / m->bandwidth));
}

static wf_sim_move move_of(const char *op)
{
    if (strcmp(op, "all_reduce") == 0)
        return WF_SIM_ALL_REDUCE;
    if (strcmp(op, "broadcast") == 0)
        return WF_SIM_BROADCAST;
    return strcmp(op, "reduce_scatter") == 0 ? WF_SIM_REDUCE_SCATTER : WF_SIM_ALL_GATHER;
}

/* Ranks of a host follow each other. */
static double message_time(const wf_sim_paced *p, const wf_pace_transfer *what, double *latency)
{
    const wf_sim_machine *m = &p->machine;
    bool inside = what->members[0] / m->devices == what->members[1] / m->devices;
    const wf_sim_link *link = inside ? &m->inside : &m->network;

    *latency = p->scale * link->latency;
    return p->scale * (double)what->bytes / link->bandwidth;
}

static double transfer_time(const void *self, const wf_pace_transfer *what, double *latency)
{
    const wf_sim_paced *p = self;

    *latency = 0;
    if (strcmp(what->op, "send") == 0)
        return message_time(p, what, latency);
    return p->scale * wf_sim_collective(&p->machine, move_of(what->op), (double)what->bytes,
                                        what->size, what->members[1] - what->members[0]);
}

void wf_sim_pace(const wf_sim_machine *machine, double scale, wf_sim_paced *paced)
{
    *paced = (wf_sim_paced){.machine = *machine, .scale = scale};
    paced->pace = (wf_pace_machine){.op = op_time,
                                    .transfer = transfer_time,
                                    .background = machine->background,
                                    .self = paced};
}
