/* parallel/run_check.c - what a run refuses of its options before a rank opens; plans and
   searches ask it, too. */
#include "parallel/parallel_internal.h"
#include "core/dtype.h"
#include <string.h>

wf_par_options wf_par_options_filled(const wf_par_options *options)
{
    wf_par_options filled = *options, *o = &filled;

    if (!o->pp)
        o->pp = 1;
    if (!o->tp)
        o->tp = 1;
    if (!o->dp)
        o->dp = 1;
    if (!o->cp)
        o->cp = 1;
    if (!o->etp)
        o->etp = 1;
    if (!o->ep)
        o->ep = o->tp / o->etp;
    if (!o->threads)
        o->threads = 1;
    if (!o->strategy)
        o->strategy = WF_PAR_STRATEGY;
    return filled;
}

void wf_par_options_leave_axes(wf_par_options *o)
{
    o->axes = NULL;
    o->dp_axes = NULL;
    o->pp = o->tp = o->dp = o->cp = o->etp = 1;
    o->ep = o->dp_replicate = o->shard_group_size = 0;
    o->dispatch = WF_PAR_DISPATCH_AUTO;
    o->cp_form = NULL;
    o->sequence_parallel = o->tp_comm_overlap = false;
    o->tp_comm_block = 0;
}

/* Kernels compute with two types; a plan, with each that is one. */
static bool may_store(const wf_par_options *o, wf_dtype dtype)
{
    return dtype == WF_F32 || dtype == WF_BF16 || (o->plan && wf_dtype_is_stored(dtype));
}

/* Checks when gradients are summed, what is given back after forward, and how tokens move. */
static wf_status check_moments(const wf_par_options *o, wf_error *error)
{
    if ((unsigned)o->accumulate > WF_PAR_GROUP || (unsigned)o->reshard > WF_PAR_RESHARD_NEVER ||
        (unsigned)o->dispatch > WF_PAR_DISPATCH_EXCHANGE)
        return wf_error_set(
            error, WF_EINVAL,
            "accumulate %d, reshard %d and dispatch %d: one of them is no value "
            "of its enum (parallel/run.h)",
            (int)o->accumulate, (int)o->reshard, (int)o->dispatch);
    if (o->accumulate_group && o->accumulate != WF_PAR_GROUP)
        return wf_error_set(
            error, WF_EINVAL,
            "accumulate_group %d is read with accumulate WF_PAR_GROUP alone: set "
            "both, or leave it 0",
            o->accumulate_group);
    if (o->accumulate == WF_PAR_GROUP &&
        (o->accumulate_group < 1 || (o->accumulate_group & (o->accumulate_group - 1))))
        return wf_error_set(
            error, WF_EINVAL,
            "accumulate_group %d: gradients are summed for groups of a power of two "
            "micro-steps, since the sum would else not be that of other layouts",
            o->accumulate_group);
    return WF_OK;
}

static wf_status check_values(const wf_par_options *o, wf_error *error)
{
    if (o->axes && (o->pp > 1 || o->tp > 1 || o->dp > 1 || o->ep > 1 || o->etp > 1 ||
                    o->cp > 1 || o->dp_replicate || o->shard_group_size))
        return wf_error_set(
            error, WF_EINVAL,
            "a mesh has the axes that are given, or those of pp, tp, dp, ep, cp and groups of "
            "dp: give one of the two");
    if (o->dp_axes && !o->axes)
        return wf_error_set(error, WF_EINVAL,
                            "dp_axes names some of the axes that are given, and none are");
    if (o->pp < 1 || o->tp < 1 || o->dp < 1 || o->cp < 1 || o->threads < 1)
        return wf_error_set(error, WF_EINVAL,
                            "pp %d, tp %d, dp %d, cp %d and threads %d must be at least 1",
                            o->pp, o->tp, o->dp, o->cp, o->threads);
    if (o->offload_dir && !o->offload_optimizer)
        return wf_error_set(error, WF_EINVAL,
                            ".offload_dir %s is where the optimizer's state rests, and nothing "
                            "of it is offloaded: use .offload optimizer, or leave it out",
                            o->offload_dir);
    if (!may_store(o, o->dtype) || !may_store(o, o->param_dtype) ||
        !may_store(o, o->reduce_dtype))
        return wf_error_set(error, WF_EINVAL,
                            "dtype %d, param_dtype %d and reduce_dtype %d must be WF_F32 or "
                            "WF_BF16; a plan takes every WIDE or NARROW row of core/dtype.def",
                            (int)o->dtype, (int)o->param_dtype, (int)o->reduce_dtype);
    if (o->base_dtype != WF_F32 && o->base_dtype != WF_NF4)
        return wf_error_set(error, WF_EINVAL, "base_dtype %d must be WF_F32 or WF_NF4",
                            (int)o->base_dtype);
    if (o->tf32 && !o->exact_off)
        return wf_error_set(
            error, WF_EINVAL,
            "tf32 rounds factors that exact mode multiplies as they are, with the CPU's "
            "bits: use it with .exact_off");
    if (o->prefetch < 0 || o->wrap_min_params < 0)
        return wf_error_set(error, WF_EINVAL,
                            "prefetch %d and wrap_min_params %lld cannot be negative",
                            o->prefetch, (long long)o->wrap_min_params);
    return check_moments(o, error);
}

/* Returns the ranks of an axis: of the axes that are given, or of those with a number each. */
static int size_of(const wf_par_options *o, const char *name, int number)
{
    for (const wf_axis *a = o->axes; a && a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a->size;
    return o->axes ? 1 : number;
}

/* Refuses what ranks of tp split, or move beside products, where there are none, or nothing
   moves so. */
static wf_status check_tensor(const wf_par_options *o, wf_error *error)
{
    const bool alone = size_of(o, "tp", o->tp) == 1;

    if (o->sequence_parallel && alone)
        return wf_error_set(error, WF_EINVAL,
                            ".sequence_parallel splits tokens over tensor-parallel ranks, and "
                            ".tp is 1: use .tp 2 or more, or leave it out");
    if (o->tp_comm_overlap && alone)
        return wf_error_set(error, WF_EINVAL,
                            ".tp_comm_overlap is for what tensor-parallel ranks move, and .tp "
                            "is 1: use .tp 2 or more, or leave it out");
    if (o->tp_comm_block && !o->tp_comm_overlap)
        return wf_error_set(error, WF_EINVAL,
                            ".tp_comm_block is a size of blocks that move beside products: add "
                            ".tp_comm_overlap, or leave it out");
    return WF_OK;
}

/* Refuses a form of attention of ranks of cp that is none, or that no rank has. */
static wf_status check_form(const wf_par_options *o, wf_error *error)
{
    if (!o->cp_form || strcmp(o->cp_form, "auto") == 0)
        return WF_OK;
    if (strcmp(o->cp_form, "heads") != 0 && strcmp(o->cp_form, "gather") != 0)
        return wf_error_set(error, WF_EINVAL, "cp_form %s is none of auto, heads and gather",
                            o->cp_form);
    if (size_of(o, "cp", o->cp) == 1)
        return wf_error_set(error, WF_EINVAL,
                            ".cp_form %s is what ranks of .cp do, and .cp is 1: use .cp 2 or "
                            "more, or leave it out",
                            o->cp_form);
    return WF_OK;
}

wf_status wf_par_options_check(const wf_par_options *options, wf_error *error)
{
    const wf_par_options o = wf_par_options_filled(options);
    wf_axis axes[WF_MAX_AXES];

    if (check_values(&o, error) != WF_OK || check_tensor(&o, error) != WF_OK ||
        check_form(&o, error) != WF_OK)
        return error->code;
    return wf_par_mesh_axes(&o, axes, error) ? WF_OK : error->code;
}
