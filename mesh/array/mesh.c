/* mesh/array/mesh.c - named axes over the ranks of a world. */
#include "mesh/comm/observer_internal.h"
#include "mesh/comm/transport_internal.h"
#include "mesh/array/array_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wf_status check_axes(const wf_comm *world, int n, const wf_axis *axes, wf_error *error)
{
    int64_t product = 1, most = wf_comm_size(world);

    if (n < 1 || n > WF_MAX_AXES)
        return wf_error_set(error, WF_EINVAL, "a mesh has 1 to %d axes, not %d", WF_MAX_AXES,
                            n);
    for (int i = 0; i < n; i++) {
        if (axes[i].size < 1)
            return wf_error_set(error, WF_EINVAL, "mesh axis %s has size %d; at least 1",
                                axes[i].name, axes[i].size);
        if (!axes[i].name[0] || strlen(axes[i].name) >= WF_AXIS_NAME)
            return wf_error_set(error, WF_EINVAL,
                                "a mesh axis is called '%s'; names have 1 to %d letters",
                                axes[i].name, WF_AXIS_NAME - 1);
        for (int j = 0; j < i; j++)
            if (strcmp(axes[i].name, axes[j].name) == 0)
                return wf_error_set(error, WF_EINVAL, "two mesh axes are called %s",
                                    axes[i].name);
        if (product <= most) /* else it is wrong already, and might overflow */
            product *= axes[i].size;
    }
    if (product != most)
        return wf_error_set(error, WF_EINVAL,
                            "the mesh axes multiply to %lld ranks, but %lld were started",
                            (long long)product, (long long)most);
    return WF_OK;
}

/* Refuses a plan over a transport that moves data: tensors without values can't be sent. */
static wf_status check_plan(const wf_context *ctx, const wf_comm *world, wf_error *error)
{
    if (!wf_context_dry_run(ctx) || !world->transport->moves)
        return WF_OK;
    return wf_error_set(
        error, WF_EINVAL,
        "a context that plans has no values to move over transport %s; launch its "
        "rank on transport fake",
        wf_comm_transport(world));
}

static wf_status open_group(wf_mesh *mesh, int axis, wf_error *error)
{
    int step = wf_grid_stride(mesh->n_axes, mesh->size, axis), size = mesh->size[axis];
    int first = wf_grid_first(mesh->n_axes, mesh->size, mesh->rank, axis);
    int *members = malloc((size_t)size * sizeof *members);
    wf_status status;

    if (!members)
        return wf_error_set(error, WF_ENOMEM, "no memory for the group of axis %s",
                            mesh->name[axis]);
    for (int i = 0; i < size; i++)
        members[i] = first + i * step;
    status =
        wf_comm_split(mesh->world, mesh->name[axis], members, size, &mesh->comm[axis], error);
    free(members);
    return status;
}

/* Notes the rank's coordinates for reports of failures. Axes of one rank are left out. */
static void note_coordinates(const wf_mesh *mesh)
{
    char text[WF_MAX_AXES * (WF_AXIS_NAME + 16)] = "";
    size_t used = 0;

    for (int i = 0; i < mesh->n_axes && used < sizeof text; i++)
        if (mesh->size[i] > 1)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s %d", used ? ", " : "",
                                 mesh->name[i], wf_mesh_coordinate(mesh, i));
    wf_comm_coordinates(mesh->world, text);
}

wf_mesh *wf_mesh_new(wf_context *ctx, wf_comm *world, int n_axes, const wf_axis *axes,
                     wf_error *error)
{
    wf_mesh *mesh;

    if (check_axes(world, n_axes, axes, error) != WF_OK ||
        check_plan(ctx, world, error) != WF_OK)
        return NULL;
    if (wf_mesh_of(ctx)) {
        wf_error_set(error, WF_EINVAL,
                     "the context has a mesh of %d axes already, which its tensors are laid "
                     "out over: close that one first, or open a context for each mesh",
                     wf_mesh_axes(wf_mesh_of(ctx)));
        return NULL;
    }
    mesh = calloc(1, sizeof *mesh);
    if (!mesh) {
        wf_error_set(error, WF_ENOMEM, "no memory for a mesh");
        return NULL;
    }
    mesh->ctx = ctx;
    mesh->world = world;
    mesh->n_axes = n_axes;
    mesh->ranks = wf_comm_size(world);
    mesh->rank = wf_comm_rank(world);
    for (int i = 0; i < n_axes; i++) {
        snprintf(mesh->name[i], WF_AXIS_NAME, "%s", axes[i].name);
        mesh->size[i] = axes[i].size;
    }
    wf_comm_set_reduce(world,
                       &(wf_reduce_ops){.sum = wf_context_device(ctx)->sum,
                                        .maximum = wf_context_device(ctx)->maximum,
                                        .sum_to_all = wf_context_device(ctx)->sum_to_all,
                                        .stream = wf_context_device(ctx)->copy_non_temporal,
                                        .narrow = wf_context_device(ctx)->narrow_floats,
                                        .chain = !wf_context_exact(ctx)});
    for (int i = 0; i < n_axes; i++)
        if (open_group(mesh, i, error) != WF_OK) {
            wf_mesh_close(mesh);
            return NULL;
        }
    note_coordinates(mesh);
    return mesh;
}

/* Returns true where a collective or a move of rows is under way. */
static bool is_moving(const wf_mesh *mesh)
{
    bool moving = mesh->rows != NULL;

    for (int i = 0; i < mesh->n_axes; i++)
        moving |= mesh->comm[i] && mesh->comm[i]->in_flight;
    return moving;
}

void wf_mesh_close(wf_mesh *mesh)
{
    if (!mesh)
        return;
    if (is_moving(mesh) && wf_context_status(mesh->ctx) != WF_OK)
        wf_comm_abort(mesh->world, wf_context_error(mesh->ctx)); /* not what it leaves */
    for (int i = mesh->n_axes - 1; i >= 0; i--)
        wf_comm_close(mesh->comm[i]);
    if (mesh->rows)
        mesh->forget_rows(mesh); /* those that an error has left under way */
    while (mesh->layouts) {
        wf_layout *layout = mesh->layouts;

        mesh->layouts = layout->next;
        free(layout);
    }
    wf_blocks_give(wf_context_blocks(mesh->ctx), mesh->gathered, mesh->gathered_bytes);
    wf_distribution_set(mesh->ctx, NULL, NULL);
    free(mesh);
}

void wf_mesh_trace(wf_mesh *mesh, wf_trace *trace)
{
    wf_context_trace(mesh->ctx, trace);
    wf_comm_trace(mesh->world, trace);
    for (int i = 0; i < mesh->n_axes; i++)
        wf_comm_trace(mesh->comm[i], trace);
}

void wf_mesh_oplog(wf_mesh *mesh, const wf_oplog *oplog)
{
    wf_context_oplog(mesh->ctx, oplog);
    wf_comm_oplog(mesh->world, oplog);
    for (int i = 0; i < mesh->n_axes; i++)
        wf_comm_oplog(mesh->comm[i], oplog);
}

wf_mesh *wf_mesh_of(const wf_context *ctx)
{
    return wf_distribution_mesh(ctx);
}

int wf_mesh_ranks(const wf_mesh *mesh)
{
    return mesh ? mesh->ranks : 1;
}

int wf_mesh_axes(const wf_mesh *mesh)
{
    return mesh ? mesh->n_axes : 0;
}

int wf_mesh_axis(const wf_mesh *mesh, const char *name)
{
    for (int i = 0; mesh && i < mesh->n_axes; i++)
        if (strcmp(mesh->name[i], name) == 0)
            return i;
    return -1;
}

bool wf_mesh_has_axis(const wf_mesh *mesh, int axis)
{
    if (axis >= 0 && mesh && axis < mesh->n_axes)
        return true;
    if (axis != -1 && mesh)
        wf_fail(
            mesh->ctx, WF_EINVAL,
            "the mesh has %d axes, numbered from 0 on, and %d is none of them: wf_mesh_axis "
            "finds the number of a name",
            mesh->n_axes, axis);
    return false;
}

const char *wf_mesh_axis_name(const wf_mesh *mesh, int axis)
{
    return wf_mesh_has_axis(mesh, axis) ? mesh->name[axis] : "no axis";
}

int wf_mesh_size(const wf_mesh *mesh, int axis)
{
    return wf_mesh_has_axis(mesh, axis) ? mesh->size[axis] : 1;
}

int wf_mesh_coordinate_of(const wf_mesh *mesh, int rank, int axis)
{
    return wf_mesh_has_axis(mesh, axis)
               ? wf_grid_coordinate(mesh->n_axes, mesh->size, rank, axis)
               : 0;
}

int wf_mesh_coordinate(const wf_mesh *mesh, int axis)
{
    return mesh ? wf_mesh_coordinate_of(mesh, mesh->rank, axis) : 0;
}

int wf_mesh_next(const wf_mesh *mesh, int rank, unsigned axes)
{
    for (int axis = mesh->n_axes - 1; axis >= 0; axis--) {
        int first = wf_grid_first(mesh->n_axes, mesh->size, rank, axis);
        int step = wf_grid_stride(mesh->n_axes, mesh->size, axis);

        if (!(axes >> axis & 1))
            continue;
        if (rank < first + (mesh->size[axis] - 1) * step)
            return rank + step;
        rank = first;
    }
    return -1;
}

void wf_mesh_shares_model(wf_mesh *mesh, int axis)
{
    if (wf_mesh_has_axis(mesh, axis))
        mesh->sharing |= (uint8_t)(1u << axis);
}

void wf_mesh_cut_finely(wf_mesh *mesh, int axis)
{
    if (wf_mesh_has_axis(mesh, axis))
        mesh->fine |= (uint8_t)(1u << axis);
}

bool wf_mesh_cuts_finely(const wf_mesh *mesh, int axis)
{
    return wf_mesh_has_axis(mesh, axis) && mesh->fine >> axis & 1;
}

wf_comm *wf_mesh_comm(const wf_mesh *mesh, int axis)
{
    return wf_mesh_has_axis(mesh, axis) ? mesh->comm[axis] : NULL;
}

wf_comm *wf_mesh_world(const wf_mesh *mesh)
{
    return mesh->world;
}

/* Returns room for `bytes` gathered bytes; it replaces those gathered last. */
static void *gather_room(wf_mesh *mesh, size_t bytes)
{
    wf_blocks *blocks = wf_context_blocks(mesh->ctx);

    wf_blocks_give(blocks, mesh->gathered, mesh->gathered_bytes);
    mesh->gathered_bytes = bytes;
    mesh->gathered = wf_blocks_take(blocks, bytes);
    if (mesh->gathered && !mesh->world->transport->moves)
        memset(mesh->gathered, 0, bytes); /* a plan, where nothing comes */
    return mesh->gathered;
}

const void *wf_mesh_gather(wf_mesh *mesh, const void *mine, size_t bytes)
{
    wf_blocks *blocks = wf_context_blocks(mesh->ctx);
    size_t cut_bytes = (size_t)(mesh->ranks + 1) * sizeof(int64_t);
    int64_t *cuts = wf_blocks_take(blocks, cut_bytes);
    void *all = gather_room(mesh, (size_t)mesh->ranks * bytes);
    wf_error error = {WF_OK, ""};

    if (!all || !cuts) {
        wf_fail(mesh->ctx, WF_ENOMEM, "no memory to gather %zu bytes of %d ranks", bytes,
                mesh->ranks);
    } else {
        for (int i = 0; i <= mesh->ranks; i++)
            cuts[i] = i * (int64_t)bytes;
        if (wf_all_gather(mesh->world, 1, mine, all, cuts, &error) != WF_OK)
            wf_fail(mesh->ctx, error.code, "%s", error.text);
    }
    wf_blocks_give(blocks, cuts, cut_bytes);
    return wf_context_status(mesh->ctx) == WF_OK ? all : NULL;
}
