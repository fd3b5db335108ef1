/* parallel/report/step_report.c - see the header. */
#include "parallel/report/step_report_internal.h"
#include "parallel/report/layout.h"
#include "parallel/formats/json_number.h"
#include "core/files/output.h"
#include <inttypes.h>
#include <string.h>
#include <jansson.h>

/* "optimizer state" as a key: "optimizer_state". */
static const char *key_of(char key[32], wf_memory_kind kind)
{
    snprintf(key, 32, "%s", wf_memory_kind_name(kind));
    for (char *c = key; *c; c++)
        if (*c == ' ')
            *c = '_';
    return key;
}

static json_t *kinds_json(const size_t bytes[WF_MEMORY_KINDS])
{
    json_t *object = json_object();
    char key[32];

    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        json_object_set_new(object, key_of(key, (wf_memory_kind)k),
                            json_integer((json_int_t)bytes[k]));
    return object;
}

static json_t *mesh_json(const wf_par_report *r)
{
    json_t *mesh = json_object();

    for (int i = 0; i < r->n_traffic - 1; i++)
        json_object_set_new(mesh, r->traffic[i].axis, json_integer(r->traffic[i].ranks));
    return mesh;
}

static json_t *state_json(const wf_par_report *r)
{
    static const wf_memory_kind state[] = {WF_MEMORY_PARAMETER, WF_MEMORY_FROZEN,
                                           WF_MEMORY_GRADIENT, WF_MEMORY_OPTIMIZER};
    json_t *object = json_object();
    double sum = 0;
    char key[32];

    for (int i = 0; i < 4; i++) {
        double bytes = wf_par_bytes_per_parameter(r, state[i]);

        key_of(key, state[i]);
        json_object_set_new(object, key, r->share ? wf_json_number(key, bytes) : json_null());
        sum += bytes;
    }
    json_object_set_new(object, "sum", r->share ? wf_json_number("sum", sum) : json_null());
    return object;
}

static json_t *collectives_json(const wf_par_report *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n_traffic; i++)
        for (int k = 0; k < WF_COLLECTIVE_KINDS; k++) {
            const wf_par_traffic *t = &r->traffic[i];

            if (t->ranks > 1 && t->counters.of[k].calls)
                json_array_append_new(
                    list,
                    json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I}", "axis", t->axis, "ranks",
                              t->ranks, "kind", wf_collective_name((wf_collective_kind)k),
                              "calls", (json_int_t)t->counters.of[k].calls, "bytes",
                              (json_int_t)t->counters.of[k].bytes, "parameter_bytes",
                              (json_int_t)t->parameters.of[k].bytes, "exposed_bytes",
                              (json_int_t)t->counters.of[k].exposed));
        }
    return list;
}

static json_t *units_json(const wf_par_report *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n_groups; i++) {
        const wf_par_unit_group *g = &r->group[i];

        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:I}", "type", g->type,
                                              "count", (json_int_t)g->count, "parameters",
                                              (json_int_t)g->parameters, "at_rest",
                                              (json_int_t)g->stored, "gathered",
                                              (json_int_t)(g->gathered ? g->at_use : 0)));
    }
    return list;
}

/* Returns the facts of the model, followed by its parameters. */
static json_t *model_json(const char *facts, const wf_par_report *r)
{
    json_error_t ignored;
    json_t *json = facts ? json_loads(facts, 0, &ignored) : json_object();

    if (json)
        json_object_set_new(json, "parameters", json_integer((json_int_t)r->parameters));
    if (json)
        json_object_set_new(json, "share", json_integer((json_int_t)r->share));
    return json;
}

static json_t *part_json(const wf_par_part *part)
{
    return json_pack("{s:I, s:I, s:I}", "count", (json_int_t)part->parameters, "share",
                     (json_int_t)part->share, "at_rest", (json_int_t)part->stored);
}

static json_t *parts_json(const wf_par_report *r)
{
    return json_pack("{s:o?, s:o?, s:o?}", "trained", part_json(&r->trained), "adapters",
                     part_json(&r->adapters), "frozen", part_json(&r->frozen));
}

json_t *wf_step_report_json(const wf_step_report *run, const wf_par_report *r)
{
    char moment[WF_MEMORY_PHASE + WF_MEMORY_MODULE + 8];

    return json_pack(
        "{s:o?, s:i, s:s, s:o?, s:o?, s:o?, s:{s:I, s:I, s:I}, s:{s:I, s:s, s:o?, s:o?}, "
        "s:{s:I, s:o?}, s:o?, s:o?, s:o?, s:o?}",
        "mesh", mesh_json(r), "rank", r->rank, "strategy", run->strategy, "model",
        model_json(run->facts, r), "parameters", parts_json(r), "units", units_json(r), "batch",
        "global", (json_int_t)run->global, "micro", (json_int_t)run->micro, "tokens",
        (json_int_t)run->tokens, "memory", "peak", (json_int_t)r->memory.peak, "moment",
        wf_moment_text(moment, sizeof moment, &r->memory), "at_peak",
        kinds_json(r->memory.at_peak), "most", kinds_json(r->memory.most), "host_memory",
        "peak", (json_int_t)r->host_memory.peak, "most", kinds_json(r->host_memory.most),
        "bytes_per_parameter", state_json(r), "collectives", collectives_json(r), "flops",
        wf_json_number("flops", r->flops), "model_flops",
        wf_json_number("model_flops", r->model_flops));
}

wf_status wf_step_report_publish(json_t *json, const char *path, wf_error *error)
{
    wf_output *output = NULL;

    if (wf_json_check(json, "a report", error) == WF_OK)
        output = wf_output_open(path, error);
    if (output && (json_dumpf(json, wf_output_stream(output),
                              JSON_INDENT(2) | JSON_REAL_PRECISION(15)) != 0 ||
                   fputc('\n', wf_output_stream(output)) == EOF)) {
        wf_output_failed(output, error);
        wf_output_discard(output);
    } else if (output) {
        wf_output_publish(output, error);
    }
    json_decref(json);
    return error->code;
}

wf_status wf_step_report_write(const wf_step_report *run, const wf_par_report *report,
                               const char *path, wf_error *error)
{
    return wf_step_report_publish(wf_step_report_json(run, report), path, error);
}
