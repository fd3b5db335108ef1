/* parallel/shard/unit_info.c - what a report says of a unit: its parameters, and bytes in both
   layouts. */
#include "parallel/shard/units_internal.h"

int64_t wf_par_unit_count(const wf_par *par, const wf_nn_module *model)
{
    const wf_par_units *all = wf_par_units_of(par, model);

    return all ? all->count : 0;
}

static size_t local_bytes(const wf_mesh *mesh, const wf_tensor *t, wf_dtype dtype,
                          const wf_layout *layout)
{
    int64_t start[WF_MAX_DIMS], local[WF_MAX_DIMS];

    for (int i = 0; i < t->ndim; i++)
        wf_layout_part(mesh, layout, i, &t->dim[i], wf_comm_rank(wf_mesh_world(mesh)),
                       &start[i], &local[i]);
    return wf_local_bytes(dtype, t->ndim, t->dim, start, local);
}

wf_par_unit_info wf_par_unit_at(const wf_par *par, const wf_nn_module *model, int64_t i)
{
    const wf_par_unit *u = &wf_par_units_of(par, model)->unit[i];
    wf_par_unit_info info = {.path = u->module->path,
                             .type = u->module->type->name,
                             .parameters = u->count,
                             .gathered = u->split,
                             .reshard = u->reshard};

    for (int64_t k = 0; k < u->count; k++) {
        const wf_tensor *t = u->parameter[k]->tensor;
        const wf_par_parameter_state *h = wf_par_state_of(u->parameter[k]);

        info.elements += wf_tensor_count(t);
        info.shard_bytes += local_bytes(par->mesh, t, h->stored, h->shard_layout);
        info.compute_bytes +=
            local_bytes(par->mesh, t, wf_par_gathered_dtype(par, h), h->compute_layout);
    }
    return info;
}

void wf_par_units_keep_real(wf_par_units *all)
{
    for (int64_t u = 0; u < all->count; u++) {
        wf_par_unit *unit = &all->unit[u];
        int64_t count = 0, split = 0;

        for (int64_t i = 0; i < unit->count; i++)
            if (!wf_tensor_is_fake(unit->parameter[i]->tensor)) {
                split += i < unit->split;
                unit->parameter[count++] = unit->parameter[i];
            }
        unit->count = count;
        unit->split = split;
    }
}
