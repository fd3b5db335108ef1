/*
 * parallel/train/trainer_job.c - what all ranks of a trainer must have alike: options of the
 * run and of training, the pipeline, the model and its sharding plan. The same walk makes the
 * hash that is always compared and, where hashes differ, the entries of a job.
 */
#include "core/numerics/bits.h"
#include "core/numerics/digest.h"
#include "parallel/agree_internal.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/trainer_job_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The destination of a walk's findings: the hash alone, or the job as well. */
typedef struct walk {
    const wf_par_trainer *t;
    uint64_t hash;
    wf_job *job; /* NULL: the hash alone */
} walk;

static void put(walk *w, const char *name, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    w->hash = wf_mix64(w->hash ^ bits);
    if (w->job)
        wf_job_add(w->job, name, "%.9g", value);
}

static void put_text(walk *w, const char *name, const char *text)
{
    text = text ? text : "default";
    w->hash = wf_mix64(w->hash ^ wf_digest_path(text));
    if (w->job)
        wf_job_add(w->job, name, "%s", text);
}

static void put_seed(walk *w, uint64_t seed)
{
    w->hash = wf_mix64(w->hash ^ seed);
    if (w->job)
        wf_job_add(w->job, "seed", "%" PRIu64, seed);
}

/* Memory, threads and pace are each rank's own. */
static void put_run(walk *w, const wf_par_options *o)
{
    put_seed(w, o->seed);
    put_text(w, "strategy", o->strategy);
    put(w, "dp_replicate", o->dp_replicate);
    put(w, "shard_group_size", o->shard_group_size);
    put_text(w, "wrap_type", o->wrap_type);
    put(w, "wrap_min_params", (double)o->wrap_min_params);
    put(w, "prefetch", o->prefetch);
    put(w, "dispatch", o->dispatch);
    put(w, "moe_overlap_off", o->moe_overlap_off);
    put(w, "reshard", o->reshard);
    put(w, "accumulate", o->accumulate);
    put(w, "accumulate_group", o->accumulate_group);
    put_text(w, "dtype", wf_dtype_name(o->dtype));
    put(w, "compute_fp32", o->compute_fp32);
    put(w, "fp32_residual", o->fp32_residual);
    put_text(w, "param_dtype", wf_dtype_name(o->param_dtype));
    put_text(w, "base_dtype", wf_dtype_name(o->base_dtype));
    put_text(w, "reduce_dtype", wf_dtype_name(o->reduce_dtype));
    put(w, "sequence_parallel", o->sequence_parallel);
    put(w, "tp_comm_overlap", o->tp_comm_overlap);
    put(w, "tp_comm_block", (double)o->tp_comm_block);
    put_text(w, "cp_form", o->cp_form ? o->cp_form : "auto");
    put_text(w, "device", o->device ? o->device : "cpu");
    put(w, "tf32", o->tf32);
    put(w, "cuda_graph", o->cuda_graph);
    put(w, "offload_optimizer", o->offload_optimizer);
    put(w, "offload_dir", o->offload_dir != NULL);
    put(w, "exact_off", o->exact_off);
    put(w, "exact_tp", o->exact_tp);
}

static void put_field(walk *w, const wf_par_field *field, int number)
{
    char name[32], text[160];
    int used = snprintf(text, sizeof text, "%s, %s [batch", field->name,
                        (unsigned)field->dtype < WF_DTYPES ? wf_dtype_name(field->dtype) : "?");

    for (int d = 0; d < WF_MAX_DIMS - 1 && field->dim[d].size && used < (int)sizeof text; d++)
        used +=
            snprintf(text + used, sizeof text - (size_t)used, ",%" PRId64, field->dim[d].size);
    if (used < (int)sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, "]");
    snprintf(name, sizeof name, "field[%d]", number);
    put_text(w, name, text);
}

static void put_training(walk *w, const wf_par_train_options *o)
{
    const wf_nn_optimizer_options *optimizer = &o->optimizer;
    const wf_nn_method_row *row = wf_nn_method_row_of(optimizer->method);

    put(w, "global_batch", (double)o->global_batch);
    put(w, "rampup.start", (double)o->rampup.start);
    put(w, "rampup.increment", (double)o->rampup.increment);
    put(w, "rampup.sequences", (double)o->rampup.sequences);
    put(w, "micro_batch", (double)o->micro_batch);
    for (int i = 0; i < WF_PAR_FIELDS && o->field[i].name; i++)
        put_field(w, &o->field[i], i);
    if (o->cut)
        put_text(w, "cut", o->cut);
    put(w, "clip", (double)o->clip);
    put(w, "skip.nonfinite", o->skip.nonfinite);
    put(w, "skip.loss_above", (double)o->skip.loss_above);
    put_text(w, "optimizer.method", row ? row->name : "unknown");
    put(w, "optimizer.beta1", (double)optimizer->beta1);
    put(w, "optimizer.beta2", (double)optimizer->beta2);
    put(w, "optimizer.eps", (double)optimizer->eps);
    put(w, "optimizer.weight_decay", (double)optimizer->weight_decay);
    for (int i = 0; i < WF_UPDATE_OWN; i++) {
        char name[32];

        snprintf(name, sizeof name, "optimizer.own[%d]", i);
        put(w, name, (double)optimizer->own[i]);
    }
    put(w, "optimizer.ema", (double)optimizer->ema);
    put(w, "evaluate_average", o->evaluate_average);
    put_text(w, "optimizer.groups", optimizer->groups ? optimizer->groups : "none");
    put_text(w, "schedule", wf_nn_schedule_name(o->schedule.kind));
    put(w, "schedule.decay", (double)o->schedule.decay);
    for (int64_t i = 0; o->schedule.kind == WF_NN_POINTS && i < o->schedule.points; i++) {
        put(w, "schedule.point.step", (double)o->schedule.point[i].step);
        put(w, "schedule.point.lr", o->schedule.point[i].lr);
    }
    put(w, "schedule.lr", o->schedule.lr);
    put(w, "schedule.min_lr", o->schedule.min_lr);
    put(w, "schedule.warmup", (double)o->schedule.warmup);
    put(w, "schedule.steps", (double)o->schedule.steps);
    put(w, "redundancy", o->redundancy);
    put(w, "check_replicas", (double)o->check_replicas);
}

/* The axes of each dim, and where it is partial. */
static void hash_layout(walk *w, const wf_layout *layout, int ndim)
{
    int axis[WF_MAX_AXES];

    for (int d = 0; layout && d < ndim; d++)
        for (int i = 0, n = wf_layout_dim_axes(layout, d, axis); i < n; i++)
            w->hash = wf_mix64(w->hash ^ (uint64_t)(d * 64 + axis[i] + 1));
    w->hash = wf_mix64(w->hash ^ (layout && wf_layout_is_partial(layout, -1)));
}

static void put_parameter(walk *w, const wf_nn_parameter *p)
{
    const wf_par_parameter_state *h = p->plan;
    const wf_layout *use = h ? h->compute_layout : NULL, *sharded = h ? h->shard_layout : NULL;
    char in[96], stored[96], dims[96] = "";
    int used = 0;

    hash_layout(w, use, p->tensor->ndim);
    hash_layout(w, sharded, p->tensor->ndim);
    hash_layout(w, h ? h->gradient : NULL, p->tensor->ndim);
    hash_layout(w, h ? h->optimizer : NULL, p->tensor->ndim);
    w->hash = wf_mix64(w->hash ^ (uint64_t)(h ? h->stored : 0) * 8 ^
                       (uint64_t)(p->frozen + 2 * p->decay + 4 * p->matrix));
    if (!w->job)
        return;
    for (int d = 0; d < p->tensor->ndim && used < (int)sizeof dims; d++)
        used += snprintf(dims + used, sizeof dims - (size_t)used, "%s%" PRId64, d ? "," : "",
                         p->tensor->dim[d].size);
    wf_job_add(w->job, p->path, "[%s]%s%s, computed with in %s, stored in %s as %s", dims,
               p->frozen ? ", frozen" : "", p->decay ? ", decays" : "",
               wf_layout_print(use, in, sizeof in),
               wf_layout_print(sharded, stored, sizeof stored),
               wf_dtype_name(h ? h->stored : WF_F32));
}

static void put_model(walk *w)
{
    const wf_par_trainer *t = w->t;
    uint64_t hash = wf_nn_model_hash(t->model);

    w->hash = wf_mix64(w->hash ^ hash);
    put(w, "number of parameters", (double)t->count);
    for (int64_t i = 0; i < t->count; i++)
        put_parameter(w, t->parameter[i]);
    if (w->job) /* made from shapes, and from what they start from */
        wf_job_add(w->job, "hash of the model", "%016" PRIx64, hash);
}

static void visit(walk *w)
{
    const wf_par_pipeline *pipeline = w->t->options.pipeline;

    put_run(w, &w->t->par->options);
    put_training(w, &w->t->options);
    put_text(w, "pipeline", pipeline ? wf_par_pipeline_head_of(pipeline)->job : "none");
    put_model(w);
}

/* A wf_par_describe. */
static void describe(wf_job *job, void *arg)
{
    walk w = {.t = arg, .job = job};

    visit(&w);
}

wf_status wf_par_trainer_agree(wf_par_trainer *t)
{
    walk w = {.t = t};

    if (wf_mesh_ranks(t->par->mesh) == 1)
        return wf_context_status(t->par->ctx);
    visit(&w);
    return wf_par_agree_job(t->par, w.hash, describe, t);
}
