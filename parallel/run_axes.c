/*
 * parallel/run_axes.c - the axes of a run's mesh: those of pp, dp, ep, tp and cp, and which of
 * them split the batch, shard what is stored, split experts, or tokens.
 */
#include "parallel/parallel_internal.h"
#include <stdio.h>
#include <string.h>

int wf_par_ep_part(const wf_par_options *o)
{
    const int tp = o->tp ? o->tp : 1, etp = o->etp ? o->etp : 1;

    return o->ep ? o->ep * etp / tp : 1;
}

/* Takes the ranks that split experts out of those that shard, or hold copies where none do. */
static wf_status split_off_ep(const wf_par_options *o, int part, int *replicate, int *shard,
                              wf_error *error)
{
    int *from = *shard > 1 ? shard : replicate;

    if (*from % part)
        return wf_error_set(error, WF_EINVAL,
                            ".ep %d with .tp %d%s splits experts over %d data-parallel ranks, "
                            "which do not divide "
                            "%s%d: use %sa number that does",
                            o->ep, o->tp ? o->tp : 1, o->etp > 1 ? " and .etp" : "", part,
                            from == shard && *replicate > 1 ? "groups of " : ".dp ", *from,
                            o->etp > 1 ? "" : ".tp times ");
    *from /= part;
    return WF_OK;
}

/* Ranks of tp split experts, all of them, or the features of each. */
static wf_status check_ep(const wf_par_options *o, wf_error *error)
{
    const int tp = o->tp ? o->tp : 1;

    if (o->etp < 0 || (o->etp > 1 && o->etp != tp))
        return wf_error_set(error, WF_EINVAL,
                            ".etp %d with .tp %d: the ranks of .tp are one axis of the mesh, "
                            "which splits experts, or the features of each expert, and cannot "
                            "split both; a rank has as much of them either way: use .etp 1 or "
                            ".etp %d",
                            o->etp, tp, tp);
    if (o->etp > 1 && o->ep >= 0)
        return WF_OK;
    return o->ep >= 0 && o->ep % tp == 0
               ? WF_OK
               : wf_error_set(error, WF_EINVAL,
                              ".ep %d with .tp %d: the tokens of a sequence meet on its .tp "
                              "ranks, which all split experts: use .tp times a number that "
                              "divides .dp, or .etp %d, with which .tp splits the features of "
                              "each",
                              o->ep, tp, tp);
}

/* The axes of pp, dp, ep, tp and cp. */
static int usual_axes(const wf_par_options *o, wf_axis axes[WF_MAX_AXES], wf_error *error)
{
    int replicate, shard, n = 0, tp = o->tp ? o->tp : 1, part = wf_par_ep_part(o);

    if (wf_par_axes(o, &replicate, &shard, error) != WF_OK || check_ep(o, error) != WF_OK)
        return 0;
    if (part > 1 && split_off_ep(o, part, &replicate, &shard, error) != WF_OK)
        return 0;
    axes[n++] = (wf_axis){"pp", o->pp ? o->pp : 1};
    axes[n++] = (wf_axis){"replicate", replicate};
    axes[n++] = (wf_axis){"shard", shard};
    if (part > 1)
        axes[n++] = (wf_axis){"ep", part};
    if (o->cp > 1 && o->sequence_parallel)
        axes[n++] = (wf_axis){"cp", o->cp};
    axes[n++] = (wf_axis){"tp", tp};
    if (o->cp > 1 && !o->sequence_parallel)
        axes[n++] = (wf_axis){"cp", o->cp};
    return n;
}

bool wf_par_splits_features(const wf_par *par, int axis)
{
    return par->options.etp > 1 && axis == wf_mesh_axis(par->mesh, "tp");
}

int wf_par_mesh_axes(const wf_par_options *o, wf_axis axes[WF_MAX_AXES], wf_error *error)
{
    int n = 0;

    if (!o->axes)
        return usual_axes(o, axes, error);
    for (; o->axes[n].name && n < WF_MAX_AXES; n++)
        axes[n] = o->axes[n];
    if (n && !o->axes[n].name)
        return n;
    wf_error_set(error, WF_EINVAL, "a mesh has 1 to %d axes", WF_MAX_AXES);
    return 0;
}

static wf_status add_dp_axis(wf_par *par, const char *name, wf_error *error)
{
    int axis = wf_mesh_axis(par->mesh, name);

    if (axis < 0)
        return wf_error_set(error, WF_EINVAL, "dp_axes names %s, which is no axis of the mesh",
                            name);
    if (par->n_dp > 0 && axis <= par->dp_axis[par->n_dp - 1])
        return wf_error_set(
            error, WF_EINVAL,
            "dp_axes names %s after an axis that is not outside of it: name them "
            "in the order of the mesh, each once",
            name);
    par->dp_axis[par->n_dp++] = axis;
    return WF_OK;
}

/* The axis ep, where it is one that splits the batch, is the innermost of these: a micro-step's
   sequences that meet at experts have numbers side by side. */
static wf_status find_ep_axis(wf_par *par, wf_error *error)
{
    int axis = wf_mesh_axis(par->mesh, "ep");

    par->ep_axis = wf_par_is_dp(par, axis) && wf_mesh_size(par->mesh, axis) > 1 ? axis : -1;
    if (par->options.dispatch == WF_PAR_DISPATCH_EXCHANGE && par->ep_axis < 0)
        return wf_error_set(error, WF_EINVAL,
                            "dispatch EXCHANGE moves tokens between data-parallel ranks that "
                            "split experts, and none do: use .ep %d or another multiple of .tp "
                            "above it, or leave dispatch out",
                            2 * par->options.tp);
    if (par->ep_axis >= 0 && par->dp_axis[par->n_dp - 1] != axis)
        return wf_error_set(
            error, WF_EINVAL,
            "axis ep splits experts and the batch, and axis %s splits the batch "
            "inside of it: list ep after the other axes of dp_axes",
            wf_mesh_axis_name(par->mesh, par->dp_axis[par->n_dp - 1]));
    return WF_OK;
}

/* The axis cp, where it splits no batch, is the innermost one: ranks add the tokens of a
   sequence before its sequences, and cut heads further than tp has. With sequence parallelism
   tp is inside of it, which cuts tokens further than cp has; heads stay with tp then. */
static wf_status find_cp_axis(wf_par *par, wf_error *error)
{
    int axis = wf_mesh_axis(par->mesh, "cp");
    bool sequence = par->options.sequence_parallel;
    int last = wf_mesh_axes(par->mesh) - 1;

    par->cp_axis = -1;
    if (axis < 0 || wf_par_is_dp(par, axis) || wf_mesh_size(par->mesh, axis) == 1)
        return WF_OK;
    if (axis != (sequence ? last - 1 : last) ||
        (sequence && wf_mesh_axis(par->mesh, "tp") != last))
        return wf_error_set(
            error, WF_EINVAL,
            "axis cp splits the tokens of a sequence, and the last axis is %s: list cp %s",
            wf_mesh_axis_name(par->mesh, last),
            sequence ? "before tp, and both last, with sequence_parallel" : "last");
    if (sequence && par->options.cp_form && strcmp(par->options.cp_form, "heads") == 0)
        return wf_error_set(
            error, WF_EUNSUPPORTED,
            ".cp_form heads cuts heads by .tp first, and .sequence_parallel cuts tokens by .cp "
            "first: use .cp_form gather, or leave .sequence_parallel off");
    par->cp_axis = axis;
    if (par->options.dispatch == WF_PAR_DISPATCH_EXCHANGE)
        return wf_error_set(
            error, WF_EUNSUPPORTED,
            "dispatch EXCHANGE moves tokens of whole sequences, and cp %d splits "
            "these: use GATHER, or cp 1",
            wf_mesh_size(par->mesh, par->cp_axis));
    return WF_OK;
}

wf_status wf_par_find_axes(wf_par *par, wf_error *error)
{
    static const char *const usual[] = {"replicate", "shard", "ep"};
    const char *at = par->options.dp_axes;
    char name[WF_AXIS_NAME];
    wf_status status = WF_OK;

    if (!at && wf_mesh_axis(par->mesh, "dp") >= 0)
        at = "dp";
    for (int i = 0; !at && i < (par->options.axes ? 2 : 3) && status == WF_OK; i++)
        if (wf_mesh_axis(par->mesh, usual[i]) >= 0)
            status = add_dp_axis(par, usual[i], error);
    while (at && *at && status == WF_OK) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "/"), at);
        status = add_dp_axis(par, name, error);
        at += strcspn(at, "/");
        at += *at == '/';
    }
    if (status == WF_OK)
        status = find_ep_axis(par, error);
    return status == WF_OK ? find_cp_axis(par, error) : status;
}

static bool is_on_cpu(const wf_par_options *o)
{
    return !o->device || strcmp(o->device, "cpu") == 0;
}

size_t wf_par_row_block(const wf_par_options *o)
{
    const size_t mib = 1 << 20;

    if (!o->tp_comm_overlap)
        return 0;
    if (o->tp_comm_block)
        return o->tp_comm_block;
    return is_on_cpu(o) ? mib : 8 * mib;
}

bool wf_par_exchanges(const wf_par_options *o, int64_t ranks, int64_t experts, int64_t k)
{
    if (ranks < 2 || o->dispatch == WF_PAR_DISPATCH_GATHER)
        return false;
    if (o->dispatch == WF_PAR_DISPATCH_EXCHANGE)
        return true;
    return is_on_cpu(o) && wf_rows_share((experts + ranks - 1) / ranks, experts, k) <= 0.5;
}

unsigned wf_par_sharding_axes(const wf_par *par, int axis)
{
    bool around_ep = par->ep_axis >= 0 && par->n_dp > 1 && axis == par->dp_axis[par->n_dp - 2];

    return axis < 0 ? 0 : 1u << axis | (around_ep ? 1u << par->ep_axis : 0);
}

void wf_par_cut_finely(wf_par *par)
{
    for (int i = 0; i < par->n_dp; i++)
        if (par->options.axes || par->policy.axes >> par->dp_axis[i] & 1)
            wf_mesh_cut_finely(par->mesh, par->dp_axis[i]);
}

/* Returns whether a list of names, with / in between, has one. */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name), length;

    for (; *list; list += length + (list[length] == '/')) {
        length = strcspn(list, "/");
        if (length == n && strncmp(list, name, n) == 0)
            return true;
    }
    return false;
}

bool wf_par_splits_batch(const wf_par_options *o, const char *name)
{
    const wf_axis *a = o->axes;

    if (o->dp_axes)
        return is_listed(o->dp_axes, name);
    while (a && a->name && strcmp(a->name, "dp") != 0)
        a++;
    return is_listed(a && a->name ? "dp"
                     : o->axes    ? "replicate/shard"
                                  : "replicate/shard/ep",
                     name);
}

int64_t wf_par_ranks(const wf_par_options *o)
{
    int64_t ranks = 1;

    for (const wf_axis *a = o->axes; a && a->name; a++)
        ranks *= a->size;
    return o->axes ? ranks
                   : (int64_t)(o->pp ? o->pp : 1) * (o->tp ? o->tp : 1) * (o->dp ? o->dp : 1) *
                         (o->cp ? o->cp : 1);
}

bool wf_par_holds_alone(const wf_par_options *o)
{
    const char *name = o->strategy ? o->strategy : WF_PAR_STRATEGY;
    wf_error ignored = {WF_OK, ""};
    const wf_par_strategy *strategy = wf_par_strategy_find(name, &ignored);
    wf_axis axes[WF_MAX_AXES];
    bool split = wf_par_ep_part(o) > 1, copied = false;
    int n;

    if (o->axes || o->dp < 2 || !strategy)
        return false;
    split |=
        strategy->split_parameters || strategy->split_gradients || strategy->split_optimizer;
    n = wf_par_mesh_axes(o, axes, &ignored);
    for (int i = 0; i < n; i++)
        copied |= strcmp(axes[i].name, "replicate") == 0 && axes[i].size > 1;
    return split && n > 0 && !copied;
}

int wf_par_innermost(const wf_par *par)
{
    int k = par->n_dp - 1;

    k -= k > 0 && par->dp_axis[k] == par->ep_axis;
    return k < 0 ? -1 : par->dp_axis[k];
}

int wf_par_dp(const wf_par *par)
{
    return (int)wf_par_ranks_along(par, wf_par_dp_axes(par));
}

int wf_par_dp_rank(const wf_par *par)
{
    int rank = 0;

    for (int i = 0; i < par->n_dp; i++)
        rank = rank * wf_mesh_size(par->mesh, par->dp_axis[i]) +
               wf_mesh_coordinate(par->mesh, par->dp_axis[i]);
    return rank;
}

const wf_layout *wf_par_batch_layout(const wf_par *par)
{
    const wf_layout *layout = NULL;

    for (int i = 0; i < par->n_dp; i++)
        layout = wf_layout_split(par->mesh, layout, 0, par->dp_axis[i]);
    return layout;
}
