/* parallel/models/gpt/lora_save.c - what is trained of an adapted model as a folder of PEFT. */
#include "core/host_data.h"
#include "mesh/comm/collective.h"
#include "parallel/agree_internal.h"
#include "core/files/output_internal.h"
#include "parallel/formats/safetensors_internal.h"
#include "parallel/models/gpt/lora_names_internal.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS "adapter_model.safetensors"
#define CONFIG  "adapter_config.json"

typedef struct writer {
    wf_par *par;
    const wf_par_lora *lora;
    wf_peft_tensor *list;
    int64_t count;
    wf_safetensors_entry *entry;
    int64_t *entry_of; /* [count]: factors that lie in one tensor have one */
    int64_t entries;
    char *header;
    size_t header_bytes;
    wf_folder folder;
    wf_output *weights;
    wf_error error; /* the first one of all calls */
} writer;

static wf_status describe(writer *w)
{
    static const char *const metadata[] = {"format", "pt"};

    w->entry = calloc((size_t)w->count + 1, sizeof *w->entry);
    w->entry_of = calloc((size_t)w->count + 1, sizeof *w->entry_of);
    if (!w->entry || !w->entry_of)
        return wf_error_set(&w->error, WF_ENOMEM, "no memory for a list of tensors");
    for (int64_t i = 0; i < w->count; i++) {
        wf_peft_tensor *t = &w->list[i];

        w->entries += t->row == 0 && t->column == 0;
        w->entry_of[i] = w->entries - 1;
        w->entry[w->entries - 1] =
            (wf_safetensors_entry){.name = t->name, .dtype = WF_ST_F32, .ndim = t->ndim};
        memcpy(w->entry[w->entries - 1].shape, t->shape, sizeof t->shape);
        if (wf_tensor_is_fake(t->parameter->tensor))
            return wf_error_set(
                &w->error, WF_EUNSUPPORTED,
                "adapters are written by ranks that hold all stages of a model, "
                "and %s is another one's",
                t->parameter->path);
    }
    return wf_safetensors_format(w->entries, w->entry, 1, metadata, &w->header,
                                 &w->header_bytes, &w->error);
}

static void create(writer *w, const char *folder)
{
    if (wf_files_make_directory(&wf_system_files, folder, &w->error) != WF_OK ||
        wf_folder_open(&w->folder, &wf_system_files, folder, &w->error) != WF_OK)
        return;
    wf_output_clean(&w->folder, NULL);
    w->weights = wf_output_begin(&w->folder, WEIGHTS, wf_output_mark(), &w->error);
    if (w->weights)
        wf_file_write(wf_output_file(w->weights), w->header, w->header_bytes, 0, &w->error);
}

/* Puts the numbers of a factor of experts into the order of theirs, rows of them. */
static void arrange(const wf_peft_tensor *t, const wf_tensor *whole, const float *data,
                    float *to)
{
    const int64_t experts = whole->dim[0].size, rows = whole->dim[t->swapped ? 2 : 1].size;
    const int64_t columns = whole->dim[t->swapped ? 1 : 2].size;

    for (int64_t e = 0; e < experts; e++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                to[t->factor_b ? (i * columns + j) * experts + e
                               : (e * rows + i) * columns + j] =
                    data[t->swapped ? (e * columns + j) * rows + i
                                    : (e * rows + i) * columns + j];
}

/* Writes a tensor's numbers, those of a part of its columns row by row. */
static void write_numbers(writer *w, int64_t i, const wf_tensor *whole, const float *data)
{
    const wf_peft_tensor *t = &w->list[i];
    const int64_t count = wf_tensor_count(whole), size = (int64_t)sizeof *data;
    const int64_t at = (int64_t)w->header_bytes + w->entry[w->entry_of[i]].begin;
    const bool part = t->swapped && !t->factor_b;
    const int64_t run = part ? whole->dim[1].size : count; /* numbers side by side */
    float *arranged = t->factor_b || t->swapped ? malloc((size_t)(count * size)) : NULL;

    if ((t->factor_b || t->swapped) && !arranged) {
        wf_error_set(&w->error, WF_ENOMEM, "no memory to write %s", t->name);
        return;
    }
    if (arranged)
        arrange(t, whole, data, arranged);
    for (int64_t r = 0; r < count / run && w->error.code == WF_OK; r++)
        wf_file_write(wf_output_file(w->weights), (arranged ? arranged : data) + r * run,
                      (size_t)(run * size),
                      at + ((t->row + r) * t->shape[1] + t->column) * size, &w->error);
    free(arranged);
}

/* Made whole on every rank, and written by the first. */
static wf_status write_tensor(writer *w, int64_t i, bool first)
{
    wf_context *ctx = wf_par_context(w->par);
    wf_host_data view;
    wf_tensor *whole;
    const float *data;

    wf_scope_open(ctx);
    whole = wf_whole(w->list[i].parameter->tensor);
    if (whole && first && w->error.code == WF_OK) {
        data = wf_data_read_f32(whole, &view);
        if (data)
            write_numbers(w, i, whole, data);
        wf_data_close(&view);
    }
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

static json_t *names_json(const char *names)
{
    json_t *list = json_array();
    char name[WF_HF_NAME];

    while (wf_peft_next(&names, name, sizeof name))
        json_array_append_new(list, json_string(name));
    return list;
}

/* The modules that have adapters, as transformers call them. */
static json_t *targets_json(const writer *w)
{
    char names[WF_PAR_LORA_NAMES] = "";

    for (int64_t i = 0; i < w->count; i++)
        if (*w->list[i].module)
            wf_peft_add(names, sizeof names, w->list[i].module);
    return names_json(names);
}

/* The parameters of experts that have adapters, as PEFT sorts them. */
static json_t *parameters_json(const writer *w)
{
    for (int64_t i = 0; i < w->count; i++)
        if (w->list[i].of_experts)
            return names_json("experts.down_proj,experts.gate_up_proj");
    return json_null();
}

/* The modules that are trained whole: "norm" of base_model.model.model.norm.weight. */
static json_t *modules_json(const writer *w)
{
    json_t *list = json_array();
    char names[2 * WF_PAR_LORA_NAMES] = "";

    for (int64_t i = 0; i < w->count; i++) {
        char name[WF_PEFT_NAME], *end, *last;

        if (w->list[i].parameter->adapter || w->list[i].copy)
            continue;
        memcpy(name, w->list[i].name, sizeof name);
        end = strrchr(name, '.');
        *end = 0;
        last = strrchr(name, '.');
        wf_peft_add(names, sizeof names, last ? last + 1 : name);
    }
    json_decref(list);
    return *names ? names_json(names) : json_null();
}

static bool is_transposed(const writer *w)
{
    for (int64_t i = 0; i < w->count; i++)
        if (strchr(w->list[i].module, '.'))
            return true;
    return false;
}

/* Returns true where an embedding is trained that is the head too. */
static bool is_tying(const writer *w)
{
    for (int64_t i = 0; i < w->count; i++)
        if (w->list[i].copy)
            return true;
    return false;
}

/* PEFT's own are whole. */
static json_t *number(double x)
{
    return x == floor(x) && x < 1e15 ? json_integer((json_int_t)x) : json_real(x);
}

static wf_output *write_config(writer *w, const char *base)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s?, s:I, s:o?, s:f, s:b, s:s, s:b, s:b, s:b, s:o?, s:o?, s:o?}",
                  "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path",
                  base, "r", (json_int_t)w->lora->rank, "lora_alpha", number(w->lora->alpha),
                  "lora_dropout", w->lora->dropout, "use_rslora", w->lora->rank_stabilized,
                  "bias", "none", "fan_in_fan_out", is_transposed(w), "inference_mode", true,
                  "ensure_weight_tying", is_tying(w), "target_modules", targets_json(w),
                  "target_parameters", parameters_json(w), "modules_to_save", modules_json(w));
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    wf_output *o = NULL;

    if (!text)
        wf_error_set(&w->error, WF_ENOMEM, "no memory for " CONFIG);
    else
        o = wf_output_begin(&w->folder, CONFIG, wf_output_mark(), &w->error);
    if (o)
        wf_file_write(wf_output_file(o), text, strlen(text), 0, &w->error);
    free(text);
    json_decref(json);
    return o;
}

/* Publishes the files. A run that is killed in between leaves a folder without a config, which
   is none of adapters. */
static void publish(writer *w, const char *base)
{
    wf_error *e = &w->error;
    wf_output *config = e->code == WF_OK ? write_config(w, base) : NULL;

    if (e->code == WF_OK && wf_folder_remove(&w->folder, CONFIG, e) == WF_OK &&
        wf_folder_sync(&w->folder, e) == WF_OK) {
        wf_output_publish(w->weights, e);
        w->weights = NULL;
    }
    if (e->code == WF_OK)
        wf_output_publish(config, e);
    else
        wf_output_discard(config);
}

static wf_status agree(writer *w)
{
    wf_context *ctx = wf_par_context(w->par);
    wf_error error = w->error;

    if (wf_agree(w->par, 0, NULL, &error) == WF_OK)
        return wf_context_status(ctx);
    return wf_fail(ctx, error.code, "%s", error.text);
}

static void write_all(writer *w, const char *folder, const char *base)
{
    wf_context *ctx = wf_par_context(w->par);
    bool first = wf_context_rank(ctx) == 0;

    w->folder.fd = -1;
    if (first)
        create(w, folder);
    for (int64_t i = 0; agree(w) == WF_OK && i < w->count; i++)
        write_tensor(w, i, first);
    if (first && wf_context_status(ctx) == WF_OK)
        publish(w, base);
    agree(w);
    wf_output_discard(w->weights);
    if (first)
        wf_folder_close(&w->folder);
}

wf_status wf_par_lora_save(wf_par *par, wf_nn_gpt *model, const wf_par_lora *lora,
                           const char *folder, const char *base, const char *like)
{
    wf_context *ctx = wf_par_context(par);
    writer *w;

    if (!model || wf_context_status(ctx) != WF_OK || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    w = calloc(1, sizeof *w);
    if (!w)
        return wf_fail(ctx, WF_ENOMEM, "no memory to save adapters");
    w->par = par;
    w->lora = lora;
    if (wf_peft_tensors(model, like, &w->list, &w->count, &w->error) == WF_OK)
        describe(w);
    if (agree(w) == WF_OK)
        write_all(w, folder, base);
    free(w->header);
    free(w->entry_of);
    free(w->entry);
    free(w->list);
    free(w);
    return wf_context_status(ctx);
}
