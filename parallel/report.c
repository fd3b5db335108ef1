/* parallel/report.c - see the header. */
#include "parallel/report.h"
#include "parallel/plan.h"
#include "parallel/strategy.h"
#include <stdlib.h>

/* Every axis that has more than one rank, innermost first, then the world. */
static int list_groups(const wf_mesh *mesh, wf_comm **group)
{
    int n = 0;

    for (int axis = wf_mesh_axes(mesh) - 1; axis >= 0; axis--)
        if (wf_mesh_size(mesh, axis) > 1)
            group[n++] = wf_mesh_comm(mesh, axis);
    group[n++] = wf_mesh_world(mesh);
    return n;
}

void wf_par_report_begin(wf_par *par, wf_par_report *report)
{
    wf_comm *group[WF_MAX_AXES + 1];
    int n = list_groups(par->mesh, group);

    *report = (wf_par_report){.flops = wf_context_flops(par->ctx)};
    for (int i = 0; i < n; i++)
        wf_comm_ledger_reset(group[i]);
}

/* Elements of this rank's part under tensor parallelism alone. */
static int64_t share_of(const wf_par *par, const wf_nn_parameter *p)
{
    wf_mesh *mesh = par->mesh;
    const wf_layout *layout = wf_par_layout(p);
    int64_t count = 1;

    layout = wf_layout_whole(mesh, layout, wf_mesh_axis(mesh, "shard"));
    layout = wf_layout_whole(mesh, layout, wf_mesh_axis(mesh, "replicate"));
    for (int i = 0; i < p->tensor->ndim; i++) {
        int64_t start, local;

        wf_layout_part(mesh, layout, i, &p->tensor->dim[i], wf_context_rank(par->ctx), &start,
                       &local);
        count *= local;
    }
    return count;
}

void wf_par_report_end(wf_par *par, wf_nn_module *model, wf_par_report *report)
{
    wf_comm *group[WF_MAX_AXES + 1];
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(model, &count);

    if (!p)
        wf_fail(par->ctx, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; p && i < count; i++) {
        report->parameters += wf_tensor_count(p[i]->tensor);
        report->share += share_of(par, p[i]);
    }
    free(p);
    wf_pool_report(wf_context_pool(par->ctx), &report->memory);
    report->flops = wf_context_flops(par->ctx) - report->flops;
    report->n_traffic = list_groups(par->mesh, group);
    for (int i = 0; i < report->n_traffic; i++)
        report->traffic[i] = (wf_par_traffic){.axis = wf_comm_name(group[i]),
                                              .ranks = wf_comm_size(group[i]),
                                              .ledger = *wf_comm_ledger(group[i])};
}
