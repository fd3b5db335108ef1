/* parallel/train/report.c - see the header. */
#include "parallel/train/report.h"
#include "core/offload.h"
#include "parallel/shard/sharding_plan.h"
#include "parallel/parallel_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wf_comm *group_of(const wf_mesh *mesh, int axis)
{
    return axis < wf_mesh_axes(mesh) ? wf_mesh_comm(mesh, axis) : wf_mesh_world(mesh);
}

void wf_par_report_begin(wf_par *par, wf_par_report *report)
{
    *report = (wf_par_report){.rank = wf_context_rank(par->ctx),
                              .flops = wf_context_flops(par->ctx),
                              .model_flops = wf_context_model_flops(par->ctx),
                              .n_traffic = wf_mesh_axes(par->mesh) + 1};
    for (int i = 0; i < report->n_traffic; i++)
        wf_comm_counters_reset(group_of(par->mesh, i));
    memset(par->moved, 0, sizeof par->moved);
}

static size_t bytes_stored(const wf_par *par, const wf_nn_parameter *p)
{
    const wf_tensor *t = p->tensor;
    int64_t start[WF_MAX_DIMS], local[WF_MAX_DIMS];

    for (int i = 0; i < t->ndim; i++)
        wf_layout_part(par->mesh, wf_par_layout(p), i, &t->dim[i], wf_context_rank(par->ctx),
                       &start[i], &local[i]);
    return wf_local_bytes(wf_par_state_of(p)->stored, t->ndim, t->dim, start, local) +
           (t->scales ? wf_tensor_bytes(t->scales) : 0);
}

/* Elements of this rank's part under tensor and pipeline parallelism alone. */
static int64_t share_of(const wf_par *par, const wf_nn_parameter *p)
{
    wf_mesh *mesh = par->mesh;
    const wf_layout *layout = wf_par_layout(p);
    int64_t count = 1;

    for (int i = 0; i < par->n_dp; i++)
        layout = wf_layout_whole(mesh, layout, par->dp_axis[i]);
    for (int i = 0; i < p->tensor->ndim; i++) {
        int64_t start, local;

        wf_layout_part(mesh, layout, i, &p->tensor->dim[i], wf_context_rank(par->ctx), &start,
                       &local);
        count *= local;
    }
    return count;
}

static bool alike(const wf_par_unit_group *a, const wf_par_unit_group *b)
{
    return strcmp(a->type, b->type) == 0 && a->parameters == b->parameters &&
           a->stored == b->stored && a->at_use == b->at_use;
}

static void count_units(const wf_par *par, const wf_nn_module *model, wf_par_report *report)
{
    report->units = wf_par_unit_count(par, model);
    report->n_groups = 0;
    for (int64_t i = 0; i < report->units; i++) {
        const wf_par_unit_info u = wf_par_unit_at(par, model, i);
        wf_par_unit_group one = {.count = 1,
                                 .parameters = u.elements,
                                 .stored = u.shard_bytes,
                                 .at_use = u.compute_bytes,
                                 .gathered = u.gathered > 0};
        int g = 0;

        snprintf(one.type, sizeof one.type, "%s", *u.path ? u.type : "root");
        while (g < report->n_groups && !alike(&report->group[g], &one))
            g++;
        if (g < report->n_groups)
            report->group[g].count++;
        else if (g < WF_PAR_UNIT_GROUPS)
            report->group[report->n_groups++] = one;
    }
}

/* Adds a parameter of which `share` elements are here: 0 where it is another stage's. */
static void add_to_part(const wf_par *par, const wf_nn_parameter *p, int64_t share,
                        wf_par_part *part)
{
    part->parameters += wf_tensor_count(p->tensor);
    part->share += share;
    part->stored += share ? bytes_stored(par, p) : 0;
}

static void count_parameter(const wf_par *par, const wf_nn_parameter *p, wf_par_report *report)
{
    /* a fake one is another stage's */
    int64_t share = wf_tensor_is_fake(p->tensor) ? 0 : share_of(par, p);

    report->parameters += wf_tensor_count(p->tensor);
    report->share += share;
    add_to_part(par, p, share, p->frozen ? &report->frozen : &report->trained);
    if (p->adapter && !p->frozen)
        add_to_part(par, p, share, &report->adapters);
}

void wf_par_report_end(wf_par *par, wf_nn_module *model, wf_par_report *report)
{
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(model, &count);

    if (!p)
        wf_fail(par->ctx, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; p && i < count; i++)
        count_parameter(par, p[i], report);
    free(p);
    count_units(par, model, report);
    wf_pool_report(wf_context_pool(par->ctx), &report->memory);
    if (wf_context_host_pool(par->ctx))
        wf_pool_report(wf_context_host_pool(par->ctx), &report->host_memory);
    report->flops = wf_context_flops(par->ctx) - report->flops;
    report->model_flops = wf_context_model_flops(par->ctx) - report->model_flops;
    for (int i = 0; i < report->n_traffic; i++) {
        const wf_comm *group = group_of(par->mesh, i);
        wf_par_traffic *t = &report->traffic[i];

        snprintf(t->axis, sizeof t->axis, "%s", wf_comm_name(group));
        t->ranks = wf_comm_size(group);
        t->counters = *wf_comm_counters_of(group);
        if (i < wf_mesh_axes(par->mesh))
            t->parameters = par->moved[i];
    }
}
