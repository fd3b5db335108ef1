/* parallel/shard/buddy.c - copies of the rank before, updated like the original; see the
   header. */
#include "parallel/shard/buddy_internal.h"
#include "mesh/comm/collective.h"
#include "mesh/transport/launcher.h"
#include <stdlib.h>

struct wf_par_buddies {
    wf_par *par;
    wf_nn_optimizer *optimizer;
    wf_nn_parameter *const *parameter;
    int64_t n;
    wf_par_buddy *copy;      /* [n] */
    int offset[WF_MAX_AXES]; /* members from a rank to its buddy; 0: not known yet */
};

/* The axis over which only one rank has each part of a parameter and its state; -1: others hold
   all of it too. */
static int lonely_axis(const wf_par *par, const wf_nn_parameter *p)
{
    const wf_layout *layout = p->frozen ? p->tensor->layout : wf_par_state_of(p)->optimizer;
    int axis = -1;

    for (int k = 0; k < par->n_dp; k++) {
        if (wf_mesh_size(par->mesh, par->dp_axis[k]) == 1)
            continue;
        if (wf_layout_split_dim(layout, par->dp_axis[k]) < 0)
            return -1;
        axis = par->dp_axis[k];
    }
    return axis;
}

/* Whose shards this rank copies, and who copies its own. */
static int member_before(const wf_comm *comm, int offset)
{
    return (wf_comm_rank(comm) + wf_comm_size(comm) - offset) % wf_comm_size(comm);
}

static int member_after(const wf_comm *comm, int offset)
{
    return (wf_comm_rank(comm) + offset) % wf_comm_size(comm);
}

/* Returns true where no member has its buddy in its own process, which would be lost with
   it. */
static bool in_other_processes(const wf_comm *comm, const int *process, int offset)
{
    int n = wf_comm_size(comm);

    for (int i = 0; i < n; i++)
        if (process[wf_comm_world_rank(comm, i)] ==
            process[wf_comm_world_rank(comm, (i + offset) % n)])
            return false;
    return true;
}

/* The next member, or the nearest that is in another process for all of them. Collective over
   the world. */
static wf_status find_offsets(wf_par_buddies *b)
{
    const int mine = wf_launcher_detected().process, *process;

    for (int axis = 0; axis < wf_mesh_axes(b->par->mesh); axis++)
        b->offset[axis] = 1;
    if (wf_context_dry_run(b->par->ctx))
        return WF_OK;
    process = wf_mesh_gather(b->par->mesh, &mine, sizeof mine);
    for (int axis = 0; process && axis < wf_mesh_axes(b->par->mesh); axis++) {
        const wf_comm *comm = wf_mesh_comm(b->par->mesh, axis);
        int k = 1;

        while (k < wf_comm_size(comm) && !in_other_processes(comm, process, k))
            k++;
        b->offset[axis] = k < wf_comm_size(comm) ? k : 1;
    }
    return wf_context_status(b->par->ctx);
}

wf_tensor *wf_par_shard_tensor(const wf_tensor *whole, const int64_t *local, wf_dtype dtype,
                               wf_memory_kind kind)
{
    wf_dim dim[WF_MAX_DIMS];

    for (int d = 0; d < whole->ndim; d++)
        dim[d] = local[d] == whole->dim[d].size ? whole->dim[d] : wf_dim_width(local[d]);
    return wf_tensor_new(whole->ctx, dtype, whole->ndim, dim, NULL, kind);
}

/* A tensor of the copied shard's shape, kept. */
static wf_tensor *new_tensor(const wf_par_buddies *b, const wf_par_buddy *copy, wf_dtype dtype)
{
    wf_tensor *t;

    wf_scope_open(b->par->ctx);
    t = wf_tensor_retain(wf_par_shard_tensor(b->parameter[copy->i]->tensor, copy->local, dtype,
                                             WF_MEMORY_BUDDY));
    wf_scope_close(b->par->ctx);
    return t;
}

/* The value or a moment that this rank itself has. */
static wf_tensor *own(const wf_par_buddies *b, int64_t i, int kind)
{
    return kind == 0 ? b->parameter[i]->tensor
                     : wf_nn_optimizer_moment(b->optimizer, i, kind - 1);
}

bool wf_par_shard_cuts_blocks(const wf_tensor *moment)
{
    return moment && wf_dtype_is_dynamic8(moment->dtype) &&
           moment->local[1] != moment->dim[1].size;
}

static wf_status check(const wf_par_buddies *b, int64_t i)
{
    const wf_nn_parameter *p = b->parameter[i];
    const wf_par_parameter_state *h = wf_par_state_of(p);

    if (!wf_nn_optimizer_is_alone(b->optimizer, i))
        return wf_fail(b->par->ctx, WF_EUNSUPPORTED,
                       "redundancy buddy: the optimizer updates %s from all of its parts, as a "
                       "whole matrix or from whole rows and columns, and a buddy updates a "
                       "shard alone: use adamw, or no redundancy",
                       p->path);
    if (h->optimizer != h->gradient || h->optimizer != h->shard_layout)
        return wf_fail(b->par->ctx, WF_EUNSUPPORTED,
                       "redundancy buddy: strategy %s keeps the optimizer's state of %s in "
                       "parts and the parameter or its gradient whole: use shard_grad_op or "
                       "full_shard, or no redundancy",
                       h->policy->strategy->name, p->path);
    if (wf_par_shard_cuts_blocks(own(b, i, 1)))
        return wf_fail(b->par->ctx, WF_EUNSUPPORTED,
                       "redundancy buddy: the columns of %s are cut, and with them rows of "
                       "moments in 8 bits: use adamw, or no redundancy",
                       p->path);
    return WF_OK;
}

/* Adds the copy of a parameter, and memory for it. */
static wf_status add(wf_par_buddies *b, int64_t i, int axis)
{
    const wf_comm *comm = wf_mesh_comm(b->par->mesh, axis);
    const wf_tensor *t = b->parameter[i]->tensor;
    wf_par_buddy *copy = &b->copy[b->n];

    if (!b->parameter[i]->frozen && check(b, i) != WF_OK)
        return wf_context_status(b->par->ctx);
    *copy = (wf_par_buddy){.i = i, .axis = axis};
    for (int d = 0; d < t->ndim; d++)
        wf_layout_part(b->par->mesh, t->layout, d, &t->dim[d],
                       wf_comm_world_rank(comm, member_before(comm, b->offset[axis])),
                       &copy->start[d], &copy->local[d]);
    b->n++;
    for (int kind = 0; kind < WF_PAR_BUDDY_GRADIENT; kind++)
        if (own(b, i, kind))
            copy->tensor[kind] = new_tensor(b, copy, own(b, i, kind)->dtype);
    return wf_context_status(b->par->ctx);
}

wf_par_buddies *wf_par_buddies_open(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                                    wf_nn_parameter *const *parameter)
{
    wf_par_buddies *b = calloc(1, sizeof *b);
    bool adapted = wf_par_is_adapted(count, parameter);

    if (b)
        b->copy = calloc((size_t)count + 1, sizeof *b->copy);
    if (!b || !b->copy) {
        free(b);
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the buddies of %lld parameters",
                (long long)count);
        return NULL;
    }
    b->par = par;
    b->optimizer = optimizer;
    b->parameter = parameter;
    find_offsets(b);
    for (int64_t i = 0; i < count && wf_context_status(par->ctx) == WF_OK; i++) {
        bool here = !wf_tensor_is_fake(parameter[i]->tensor);
        bool origin = adapted && parameter[i]->frozen; /* can be had from where it lies */
        int axis = here && !origin ? lonely_axis(par, parameter[i]) : -1;

        if (axis >= 0)
            add(b, i, axis);
    }
    if (wf_context_status(par->ctx) == WF_OK)
        return b;
    wf_par_buddies_close(b);
    return NULL;
}

void wf_par_buddies_close(wf_par_buddies *b)
{
    for (int64_t k = 0; b && k < b->n; k++)
        for (int kind = 0; kind < WF_PAR_BUDDY_KINDS; kind++)
            wf_tensor_release(b->copy[k].tensor[kind]);
    if (b)
        free(b->copy);
    free(b);
}

/* Tensors that go to the next rank, and those that come from the one before. */
typedef struct shift {
    wf_par_buddies *b;
    wf_comm *comm;
    int before, after;
    int64_t n;
    wf_comm_buffer *buffer; /* [n] */
    int64_t *cuts;          /* [n][2][members + 1], in bytes */
} shift;

static bool shift_open(shift *s, wf_par_buddies *b, int axis)
{
    size_t n = (size_t)b->n + 1;

    *s = (shift){.b = b, .comm = wf_mesh_comm(b->par->mesh, axis)};
    s->before = member_before(s->comm, b->offset[axis]);
    s->after = member_after(s->comm, b->offset[axis]);
    s->buffer = calloc(n * WF_PAR_BUDDY_KINDS, sizeof *s->buffer);
    s->cuts = calloc(n * WF_PAR_BUDDY_KINDS * 2, ((size_t)wf_comm_size(s->comm) + 1) * 8);
    if (s->buffer && s->cuts)
        return true;
    wf_fail(b->par->ctx, WF_ENOMEM, "no memory to send %lld shards to a buddy",
            (long long)b->n);
    return false;
}

static void shift_close(shift *s)
{
    free(s->buffer);
    free(s->cuts);
}

static void shift_bytes(shift *s, const void *from, size_t bytes, void *to, size_t to_bytes)
{
    int members = wf_comm_size(s->comm);
    int64_t *cuts = s->cuts + s->n * 2 * (members + 1), *out_cuts = cuts + members + 1;

    for (int i = 0; i <= members; i++) {
        cuts[i] = i > s->after ? (int64_t)bytes : 0;
        out_cuts[i] = i > s->before ? (int64_t)to_bytes : 0;
    }
    s->buffer[s->n++] =
        (wf_comm_buffer){.in = from, .out = to, .cuts = cuts, .out_cuts = out_cuts};
}

static void shift_add(shift *s, const wf_tensor *from, wf_tensor *to)
{
    shift_bytes(s, from->data, wf_tensor_bytes(from), to->data, wf_tensor_bytes(to));
}

static wf_status shift_run(shift *s, wf_device *device)
{
    wf_context *ctx = s->b->par->ctx;
    wf_collective what = {.kind = WF_ALL_TO_ALL,
                          .element = 1,
                          .n_buffers = s->n,
                          .buffers = s->buffer,
                          .device = device,
                          .at_once = true};
    wf_error error = {WF_OK, ""};

    if (s->n == 0 || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    wf_comm_position(s->comm, wf_context_step(ctx), "buddies");
    if (wf_collective_run(s->comm, &what, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    return wf_context_status(ctx);
}

/* The device in whose own memory tensors lie; NULL: that is the host's. */
static wf_device *memory_of(const wf_par_buddies *b)
{
    wf_device *device = wf_context_device(b->par->ctx);

    return device->memory ? device : NULL;
}

wf_status wf_par_buddies_pass(wf_par_buddies *b, int axis, const void *mine, void *before,
                              size_t bytes)
{
    shift s;

    if (!shift_open(&s, b, axis))
        return wf_context_status(b->par->ctx);
    shift_bytes(&s, mine, bytes, before, bytes);
    shift_run(&s, NULL);
    shift_close(&s);
    return wf_context_status(b->par->ctx);
}

int wf_par_buddies_before(const wf_par_buddies *b, int axis)
{
    const wf_comm *comm = wf_mesh_comm(b->par->mesh, axis);

    return wf_comm_world_rank(comm, member_before(comm, b->offset[axis]));
}

wf_status wf_par_buddies_fill(wf_par_buddies *b)
{
    shift s;

    for (int axis = 0; axis < wf_mesh_axes(b->par->mesh); axis++) {
        if (!wf_par_is_dp(b->par, axis) || !shift_open(&s, b, axis))
            continue;
        for (int64_t k = 0; k < b->n; k++)
            for (int kind = 0; kind < WF_PAR_BUDDY_GRADIENT; kind++)
                if (b->copy[k].axis == axis && b->copy[k].tensor[kind])
                    shift_add(&s, own(b, b->copy[k].i, kind), b->copy[k].tensor[kind]);
        shift_run(&s, memory_of(b));
        shift_close(&s);
    }
    return wf_context_status(b->par->ctx);
}

wf_status wf_par_buddies_gradients(wf_par_buddies *b, wf_tensor *const *grad)
{
    shift s;

    wf_par_buddies_drop(b);
    for (int axis = 0; axis < wf_mesh_axes(b->par->mesh); axis++) {
        if (!wf_par_is_dp(b->par, axis) || !shift_open(&s, b, axis))
            continue;
        for (int64_t k = 0; k < b->n && wf_context_status(b->par->ctx) == WF_OK; k++) {
            wf_par_buddy *copy = &b->copy[k];
            wf_tensor **to = &copy->tensor[WF_PAR_BUDDY_GRADIENT];

            if (copy->axis != axis || !grad[copy->i])
                continue;
            *to = new_tensor(b, copy, grad[copy->i]->dtype);
            if (*to)
                shift_add(&s, grad[copy->i], *to);
        }
        shift_run(&s, memory_of(b));
        shift_close(&s);
    }
    return wf_context_status(b->par->ctx);
}

wf_status wf_par_buddies_update(wf_par_buddies *b)
{
    for (int64_t k = 0; k < b->n; k++) {
        wf_tensor **t = b->copy[k].tensor;

        if (t[WF_PAR_BUDDY_GRADIENT])
            wf_nn_optimizer_update_copy(b->optimizer, b->copy[k].i, t[0], t + 1,
                                        t[WF_PAR_BUDDY_GRADIENT]);
    }
    wf_par_buddies_drop(b);
    return wf_context_status(b->par->ctx);
}

void wf_par_buddies_drop(wf_par_buddies *b)
{
    for (int64_t k = 0; k < b->n; k++) {
        wf_tensor_release(b->copy[k].tensor[WF_PAR_BUDDY_GRADIENT]);
        b->copy[k].tensor[WF_PAR_BUDDY_GRADIENT] = NULL;
    }
}

const wf_par_buddy *wf_par_buddies_list(const wf_par_buddies *b, int64_t *n)
{
    *n = b->n;
    return b->copy;
}
