/* parallel/plan/print_report.c - a plan as text and as JSON. */
#include "parallel/plan/print_internal.h"
#include "parallel/plan/request_internal.h"
#include "parallel/flag_names.h"
#include "parallel/report/layout.h"
#include "parallel/formats/json_number.h"
#include "core/dtype.h"
#include "core/numerics/tree.h"
#include "kernels/moe.h"
#include "parallel/report/step_report_internal.h"
#include <inttypes.h>
#include <string.h>
#include <jansson.h>

static double state_of(const wf_par_report *r)
{
    return wf_par_bytes_per_parameter(r, WF_MEMORY_PARAMETER) +
           wf_par_bytes_per_parameter(r, WF_MEMORY_FROZEN) +
           wf_par_bytes_per_parameter(r, WF_MEMORY_GRADIENT) +
           wf_par_bytes_per_parameter(r, WF_MEMORY_OPTIMIZER);
}

/* Rows of a micro-batch that the experts of a rank take of a block: a row for each choice. */
typedef struct expert_rows {
    int64_t balanced, most; /* if choices are spread evenly; if all are theirs that may be */
    int64_t room;           /* rows that are computed at a time, at most */
    int64_t wave;           /* sequences that are exchanged at a time; 0: none are */
} expert_rows;

/* Returns whether the plan is of a mixture, whose rows are then filled in. */
static bool expert_rows_of(const wf_plan_request *o, expert_rows *rows)
{
    const wf_sim_model *m = o->job.sizes;
    int64_t ep = wf_plan_ep(o), cp = o->cp, ranks = ep * cp * (o->etp > 1 ? 1 : o->tp);
    int64_t seq = wf_par_job_tokens(&o->job), chunks = wf_token_chunks(seq);
    wf_experts_rows of = {.tokens = o->micro_batch_size * seq * ep};

    if (!m || !m->experts)
        return false;
    of.k = m->top_k;
    of.mine = (m->experts + ranks - 1) / ranks;
    of.all = m->experts;
    of.features = wf_sim_expert_features(m);
    of.together = o->job.mesh.exact_off ? of.tokens : (seq + chunks - 1) / chunks;
    of.sequences = of.tokens / seq;
    of.taken = m->taken;
    rows->most = wf_experts_room(&of, 0);
    rows->room = wf_experts_room(&of, m->buffer);
    rows->balanced = (of.tokens * of.k + ranks - 1) / ranks;
    if (rows->balanced > rows->most)
        rows->balanced = rows->most;
    of.together = seq; /* waves are chosen without a capacity */
    of.taken = 0;
    rows->wave = cp > 1 || !wf_par_exchanges(&o->job.mesh, ep, m->experts, m->top_k) ? 0
                 : o->etp > 1 ? of.tokens / seq
                              : wf_experts_wave(&of, m->buffer);
    return true;
}

static void print_experts(FILE *out, const wf_plan_request *o)
{
    expert_rows rows;

    if (!expert_rows_of(o, &rows))
        return;
    fprintf(out,
            "  its experts take %" PRId64 " rows of a block if loads are equal, %" PRId64
            " at most, with room for %" PRId64 " at a time; tokens are ",
            rows.balanced, rows.most, rows.room);
    if (rows.wave)
        fprintf(out, "exchanged, %" PRId64 " %s at a time\n", rows.wave,
                rows.wave == 1 ? "sequence" : "sequences");
    else
        fprintf(out, "gathered\n");
}

static void print_setting(FILE *out, const wf_plan_request *o, const wf_par_report *r)
{
    int64_t tokens = wf_par_job_tokens(&o->job);

    fprintf(out, "plan of rank %d of %" PRId64 ":", r->rank, wf_plan_ranks(o));
    for (int i = 0; i < r->n_traffic - 1; i++)
        fprintf(out, "%s %s %d", i ? " x" : "", r->traffic[i].axis, r->traffic[i].ranks);
    fprintf(out, "; strategy %s\n", o->strategy);
    fprintf(out,
            "  %s, %" PRId64 " parameters; %" PRId64
            " are this rank's share of tensor%s parallelism\n",
            o->job.name ? o->job.name : "a model", r->parameters, r->share,
            o->pp > 1 ? " and pipeline" : "");
    fprintf(out, "  a step is %" PRId64 " sequences", o->global_batch_size);
    if (tokens > 1)
        fprintf(out, " of %" PRId64 " tokens", tokens);
    fprintf(out, "; a rank takes %" PRId64 " at a time, %" PRId64 " times\n",
            o->micro_batch_size, wf_plan_micro_steps(o));
    if (wf_plan_idle(o))
        fprintf(out,
                "  %" PRId64 " of %" PRId64 " data-parallel ranks have none the last time\n",
                wf_plan_idle(o), wf_plan_data_ranks(o));
    print_experts(out, o);
    fputc('\n', out);
}

static void print_part(FILE *out, const char *name, const wf_par_part *part)
{
    char stored[32];

    if (part->parameters)
        fprintf(out, "  %-24s %14" PRId64 " %14" PRId64 " %14s\n", name, part->parameters,
                part->share, wf_size_text(stored, (double)part->stored));
}

/* Prints trained and frozen parameters, where some are frozen. */
static void print_parts(FILE *out, const wf_par_report *r)
{
    if (!r->frozen.parameters)
        return;
    fprintf(out, "  %-24s %14s %14s %14s\n", "parameters", "of the model", "this rank's",
            "stored");
    print_part(out, "trained", &r->trained);
    print_part(out, "  of them adapters", &r->adapters);
    print_part(out, "frozen", &r->frozen);
    fprintf(out, "  %-24s %14.4f %%\n\n", "trained of all",
            100 * (double)r->trained.parameters / (double)r->parameters);
}

/* "2.02 frozen + ", or nothing. */
static const char *frozen_text(char text[48], const wf_par_report *r)
{
    *text = 0;
    if (r->frozen.parameters)
        snprintf(text, 48, " + %.2f frozen", wf_par_bytes_per_parameter(r, WF_MEMORY_FROZEN));
    return text;
}

/* Prints what is offloaded to host memory or files, where anything is. */
static void print_host_memory(FILE *out, const wf_memory_report *m, bool in_files)
{
    char a[32], b[32];

    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        if (m->most[k])
            fprintf(
                out, "  in %-12s %-8s %14s %14s\n",
                in_files ? "files:" : "host memory:", wf_memory_kind_name((wf_memory_kind)k),
                wf_size_text(a, (double)m->at_peak[k]), wf_size_text(b, (double)m->most[k]));
}

static void print_memory(FILE *out, const wf_par_report *r, bool in_files)
{
    char frozen[48];

    wf_par_print_memory(out, &r->memory);
    print_host_memory(out, &r->host_memory, in_files);
    if (!r->share) { /* a stage that hands on what it gets */
        fprintf(out, "  %-24s %14s\n\n", "bytes per parameter", "no parameters");
        return;
    }
    fprintf(
        out, "  %-24s %14.2f = %.2f parameters%s + %.2f gradients + %.2f optimizer state\n\n",
        "bytes per parameter", state_of(r), wf_par_bytes_per_parameter(r, WF_MEMORY_PARAMETER),
        frozen_text(frozen, r), wf_par_bytes_per_parameter(r, WF_MEMORY_GRADIENT),
        wf_par_bytes_per_parameter(r, WF_MEMORY_OPTIMIZER));
}

static void print_units(FILE *out, const wf_par_report *r)
{
    int64_t shown = 0;
    char stored[32], use[32];

    fprintf(out, "  %-18s %6s %18s %14s %14s\n", "units", "count", "parameters each", "stored",
            "gathered");
    for (int i = 0; i < r->n_groups; i++) {
        const wf_par_unit_group *g = &r->group[i];

        shown += g->count;
        if (!g->parameters)
            continue; /* other stages' */
        wf_size_text(use, (double)g->at_use);
        fprintf(out, "  %-18s %6" PRId64 " %18" PRId64 " %14s %14s\n", g->type, g->count,
                g->parameters, wf_size_text(stored, (double)g->stored),
                g->gathered ? use : "-");
    }
    if (shown < r->units)
        fprintf(out, "  and %" PRId64 " others\n", r->units - shown);
}

/* Returns by how much what this rank stores exceeds the mean of the ranks that split it; 0
   where parameters are not split. */
static double above_the_mean(const wf_plan_request *o, const wf_par_report *r)
{
    double gathered = (double)wf_dtype_size(wf_dtype_find(o->param_dtype)), stored = 0,
           shards = 1;
    double whole = (4 - gathered) * (double)r->trained.share; /* masters; the units follow */

    for (int i = 0; i < r->n_groups; i++) {
        stored += (double)r->group[i].count * (double)r->group[i].stored;
        whole += (double)r->group[i].count * (double)r->group[i].at_use;
    }
    for (int i = 0; i < r->n_traffic; i++)
        if (strcmp(r->traffic[i].axis, "shard") == 0)
            shards = r->traffic[i].ranks;
    return shards > 1 && stored < whole ? stored * shards / whole - 1 : 0;
}

/* Prints the notes that the table of units needs. */
static void print_unit_notes(FILE *out, const wf_plan_request *o, const wf_par_report *r)
{
    double above = 100 * above_the_mean(o, r);

    if (wf_dtype_is_narrow(wf_dtype_find(o->param_dtype)))
        fprintf(
            out,
            "  stored %s are fp32 masters, which count as optimizer state below; parameters "
            "are their %s copy\n",
            r->frozen.parameters ? "trained parameters" : "units", o->param_dtype);
    if (above >= 1)
        fprintf(
            out,
            "  this rank's shards are %.0f %% above the mean of all: matrices are cut between "
            "rows, of which some ranks have one more\n",
            above);
    fputc('\n', out);
}

static void print_flops(FILE *out, const wf_par_report *r)
{
    double recomputed = r->flops - r->model_flops;

    fprintf(out, "  %.4g model FLOPs a step, of this rank", r->model_flops);
    if (recomputed > 1e-9 * r->flops && r->model_flops > 0)
        fprintf(out,
                "; %.4g (%.0f %% more) are extra: what is recomputed, scores of attention in "
                "backward,\n  what tensor-parallel ranks all compute, and products of the "
                "optimizer",
                recomputed, 100 * recomputed / r->model_flops);
    fputs("\n\n", out);
}

static void print_time(FILE *out, const wf_plan_report *p)
{
    const wf_search_found *t = &p->time;
    double tokens =
        (double)(p->options->global_batch_size * wf_par_job_tokens(&p->options->job));

    if (t->seconds <= 0)
        return;
    fprintf(out,
            "  on %s, by its figures (docs/planning.md):\n  a step takes %.4g s, %.4g "
            "tokens/s, MFU %.1f %%",
            p->machine, t->seconds, tokens / t->seconds, 100 * t->utilisation);
    if (p->options->pp > 1)
        fprintf(out, "; the pipeline is idle %.1f %% of it", 100 * t->bubble);
    fputc('\n', out);
    wf_search_print_accuracy(!p->options->job.sizes, out);
    wf_search_print_path(&t->path, t->seconds, out);
}

static json_t *time_json(const wf_plan_report *p)
{
    json_t *path = json_object();

    for (int t = 0; path && t < WF_SIM_TERMS; t++)
        json_object_set_new(
            path, wf_sim_term_name((wf_sim_term)t),
            wf_json_number(wf_sim_term_name((wf_sim_term)t), p->time.path.of[t]));
    return json_pack("{s:s, s:o?, s:o?, s:o?, s:o?}", "machine", p->machine, "seconds",
                     wf_json_number("seconds", p->time.seconds), "utilisation",
                     wf_json_number("utilisation", p->time.utilisation), "bubble",
                     wf_json_number("bubble", p->time.bubble), "path", path);
}

static void print_left_out(FILE *out, const wf_plan_request *o)
{
    fprintf(out,
            "  not counted: code, stacks, flight recorders, buffers of the transport, and free "
            "blocks between tensors (fragmentation)%s\n\n",
            o->job.mesh.device && strcmp(o->job.mesh.device, "cuda") == 0
                ? ";\n  on the GPU also the CUDA context, what the "
                  "handles of cuBLAS and cuDNN keep (the workspace "
                  "of their products is counted), tables of RoPE, up to 16 MiB and "
                  "those of graphs, and NCCL's buffers"
                : "");
}

static void print_strategies(FILE *out, const wf_plan_report *p)
{
    char peak[32], each[64];

    for (int i = 0; i < p->n_strategies; i++) {
        const wf_plan_strategy *s = &p->strategy[i];

        if (s->refused.code != WF_OK) {
            wf_flags_print(out, "  .strategy %-20s refused: %s\n", s->name, s->refused.text);
            continue;
        }
        *each = 0;
        if (s->run.report.share)
            snprintf(each, sizeof each, ", %.2f bytes per parameter", state_of(&s->run.report));
        wf_flags_print(out, "  .strategy %-20s %14s peak%s%s\n", s->name,
                       wf_size_text(peak, (double)s->peak), each,
                       !p->options->device_memory          ? ""
                       : wf_plan_fits(p->options, s->peak) ? ": fits"
                                                           : ": does not fit");
    }
}

static json_t *state_json(const wf_par_report *r)
{
    return r->share ? wf_json_number("bytes_per_parameter", state_of(r)) : json_null();
}

static json_t *strategies_json(const wf_plan_report *p)
{
    json_t *list = json_array();

    for (int i = 0; i < p->n_strategies; i++) {
        const wf_plan_strategy *s = &p->strategy[i];

        json_array_append_new(
            list, s->refused.code != WF_OK
                      ? json_pack("{s:s, s:s}", "name", s->name, "refused", s->refused.text)
                      : json_pack("{s:s, s:I, s:I, s:o?, s:b}", "name", s->name, "peak",
                                  (json_int_t)s->run.report.memory.peak, "run_peak",
                                  (json_int_t)s->peak, "bytes_per_parameter",
                                  state_json(&s->run.report), "fits",
                                  wf_plan_fits(p->options, s->peak)));
    }
    return list;
}

/* Puts the fields of a plan alone first, so that a diff with a run's report shows just
   these. */
static json_t *plan_json(const wf_plan_report *p)
{
    const wf_plan_request *o = p->options;
    json_t *report =
               wf_step_report_json(&(wf_step_report){.strategy = o->strategy,
                                                     .facts = o->job.facts,
                                                     .global = o->global_batch_size,
                                                     .micro = o->micro_batch_size,
                                                     .tokens = wf_par_job_tokens(&o->job)},
                                   &p->run.report),
           *json;
    expert_rows rows;

    json = json_pack("{s:{s:I, s:b, s:I, s:o?, s:o?, s:o?, s:o?}}", "plan", "device_memory",
                     (json_int_t)o->device_memory, "fits", wf_plan_room(p) >= 0, "run_peak",
                     (json_int_t)wf_plan_run_peak(p), "above_mean",
                     wf_json_number("above_mean", above_the_mean(o, &p->run.report)), "stages",
                     wf_stage_plans_json(&p->stages), "strategies", strategies_json(p),
                     "advice", wf_plan_advice_json(&p->advice));
    if (json && expert_rows_of(o, &rows))
        json_object_set_new(
            json_object_get(json, "plan"), "experts",
            json_pack("{s:I, s:I, s:I, s:b, s:I}", "rows", (json_int_t)rows.balanced,
                      "most_rows", (json_int_t)rows.most, "room_rows", (json_int_t)rows.room,
                      "exchanged", rows.wave > 0, "wave", (json_int_t)rows.wave));
    if (json && p->time.seconds > 0)
        json_object_set_new(json_object_get(json, "plan"), "time", time_json(p));
    if (!report || !json || json_object_update(json, report)) {
        json_decref(json);
        json = NULL;
    }
    json_decref(report);
    return json;
}

wf_status wf_plan_report_write(const wf_plan_report *p, FILE *out, wf_error *error)
{
    const wf_plan_request *o = p->options;
    const wf_par_report *r = &p->run.report;

    if (*p->run.inexact && o->notes)
        fprintf(o->notes, "%s\n", p->run.inexact);
    print_setting(out, o, r);
    wf_stage_plans_print(out, o, &p->stages);
    print_units(out, r);
    print_unit_notes(out, o, r);
    print_parts(out, r);
    print_memory(out, r, o->job.mesh.offload_dir != NULL);
    print_left_out(out, o);
    wf_par_print_traffic(out, r);
    fputc('\n', out);
    print_flops(out, r);
    print_time(out, p);
    wf_plan_print_fit(out, p);
    print_strategies(out, p);
    return o->json ? wf_step_report_publish(plan_json(p), o->json, error) : WF_OK;
}
