/* apps/gpt_train/resume.c - checkpoints to go on from; see the header. */
#include "apps/gpt_train/resume.h"
#include "nn/dataset/source_list.h"
#include "apps/gpt_train/setup.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The flags that decide numbers; the first ones also which tensors there are. */
static const char *const deciding[] = {
    "arch",
    "n_layer",
    "n_head",
    "n_kv_head",
    "n_embd",
    "ffn",
    "vocab_size",
    "positions",
    "norm_eps",
    "rope_base",
    "optimizer",
    "tie_embeddings",
    "head_dim",
    "qkv_bias",
    "rope_scaling",
    "qk_norm",
    "out_bias",
    "mlp_bias",
    "rope_skip",
    "embedding_scale",
    "residual_scale",
    "attention_scale",
    "logit_divisor",
    "sliding_window",
    "window_first",
    "window_skip",
    "rotary_percent",
    "window_blocks",
    "lora_rank",
    "lora_alpha",
    "lora_targets",
    "rslora",
    "modules_to_save",
    "seq_len",
    "dropout",
    "exact",
    "seed",
    "data",
    "val_data",
    "documents",
    "steps",
    "global_batch_size",
    "lr",
    "min_lr",
    "warmup_steps",
    "beta1",
    "beta2",
    "weight_decay",
    "eps",
    "val_fraction",
    "clip_grad",
    "dtype",
    "compute",
    "fp32_residual_connection",
    "param_dtype",
    "base_dtype",
    "reduce_dtype",
    "freeze",
    "lora_dropout",
};

enum { DECIDING = sizeof deciding / sizeof *deciding, MODEL = 33 };

/* No flags: what the files of --data and of --val-data weigh. */
static const char *const weighed[] = {"data_bytes", "val_data_bytes"};

enum { WEIGHED = sizeof weighed / sizeof *weighed };

/* "[1200,340]": files may grow under the names that they have. */
static char *sizes_of(const app_text_list *data)
{
    json_t *sizes = json_array();
    wf_dataset_source_list list = {.count = 0};
    wf_error unlisted = {WF_OK, ""}; /* it is told where the data are opened */
    char *text;

    wf_dataset_source_list_parse(data->item, data->count, "--data", &list, &unlisted);
    for (int64_t i = 0; i < list.count; i++)
        for (int64_t k = 0; k < list.source[i].count; k++) {
            struct stat s;
            bool known = stat(list.source[i].file[k], &s) == 0;

            json_array_append_new(sizes, known ? json_integer(s.st_size) : json_null());
        }
    wf_dataset_source_list_free(&list);
    text = json_dumps(sizes, JSON_COMPACT);
    json_decref(sizes);
    return text;
}

char **app_resume_texts(const app_options *options, int64_t *count)
{
    json_t *json = app_options_json(options);
    char **texts = calloc(2 * (DECIDING + WEIGHED), sizeof *texts);
    const app_text_list *lists[WEIGHED] = {&options->data, &options->val_data};
    bool good = json && texts;

    *count = 0;
    for (int i = 0; good && i < DECIDING; i++) {
        const json_t *value = json_object_get(json, deciding[i]);

        if (!value)
            continue;
        texts[2 * *count] = strdup(deciding[i]);
        texts[2 * *count + 1] =
            json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
        good = texts[2 * *count] && texts[2 * *count + 1];
        ++*count;
    }
    json_decref(json);
    for (int i = 0; good && i < WEIGHED; i++) {
        texts[2 * *count] = strdup(weighed[i]);
        texts[2 * *count + 1] = sizes_of(lists[i]);
        good = texts[2 * *count] && texts[2 * *count + 1];
        ++*count;
    }
    if (good)
        return texts;
    app_resume_free_texts(texts, *count);
    return NULL;
}

void app_resume_free_texts(char **texts, int64_t count)
{
    for (int64_t i = 0; texts && i < 2 * count; i++)
        free(texts[i]);
    free(texts);
}

static bool of_model(const char *key)
{
    for (int i = 0; i < MODEL; i++)
        if (strcmp(deciding[i], key) == 0)
            return true;
    return false;
}

/* "--n-embd" of n_embd; returns text. */
static char *flag_of(const char *key, char text[64])
{
    snprintf(text, 64, "--%s", key);
    for (char *c = text; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return text;
}

/* Call for each flag whose value is another one in a checkpoint. */
static wf_status compare(const app_options *o, const wf_par_checkpoint *c,
                         wf_status (*differs)(const wf_par_checkpoint *c, const char *key,
                                              const char *mine, const char *saved,
                                              wf_error *error),
                         wf_error *error)
{
    int64_t count;
    char **texts = app_resume_texts(o, &count);
    wf_status status =
        texts ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory to compare flags");

    for (int64_t i = 0; i < count && status == WF_OK; i++) {
        const char *saved = wf_par_checkpoint_option(c, texts[2 * i]);

        if (saved && strcmp(saved, texts[2 * i + 1]) != 0)
            status = differs(c, texts[2 * i], texts[2 * i + 1], saved, error);
    }
    app_resume_free_texts(texts, count);
    return status;
}

static wf_status refuse(const wf_par_checkpoint *c, const char *key, const char *mine,
                        const char *saved, wf_error *error)
{
    char flag[64];

    if (!of_model(key))
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s %s does not fit the checkpoint %s, which has %s; use that value, "
                        "another --save DIR, or --resume none",
                        flag_of(key, flag), mine, wf_par_checkpoint_path(c), saved);
}

/* What a checkpoint says comes from a file, and goes to a terminal. */
static wf_status tell(const wf_par_checkpoint *c, const char *key, const char *mine,
                      const char *saved, wf_error *error)
{
    char flag[64], *visible = strdup(saved);

    (void)c, (void)error;
    if (visible && (strcmp(key, weighed[0]) == 0 || strcmp(key, weighed[1]) == 0))
        fprintf(stderr,
                "from here on the files of %s have %s bytes; the checkpoint was made with "
                "%s: other sequences are drawn from them\n",
                strcmp(key, weighed[0]) == 0 ? "--data" : "--val-data", mine,
                wf_text_visible(visible));
    else if (visible && !of_model(key))
        fprintf(stderr, "from here on %s is %s; the checkpoint was made with %s\n",
                flag_of(key, flag), mine, wf_text_visible(visible));
    free(visible);
    return WF_OK;
}

void app_resume_tell(const app_options *options, const wf_par_checkpoint *checkpoint)
{
    compare(options, checkpoint, tell, NULL);
}

/* Flags without which another state belongs to each parameter. */
static wf_status explain(const wf_par_checkpoint *c, const char *key, const char *mine,
                         const char *saved, wf_error *error)
{
    static const char *const keys[] = {"optimizer", "freeze", "param_dtype"};
    size_t used = strlen(error->text);
    char flag[64];

    (void)c;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            snprintf(error->text + used, sizeof error->text - used,
                     "; %s is %.200s, and was %.200s", flag_of(key, flag), mine, saved);
    return WF_OK;
}

void app_resume_explain(const app_options *options, const wf_par_checkpoint *checkpoint,
                        wf_error *error)
{
    if (error->code == WF_EINVAL)
        compare(options, checkpoint, explain, error);
    wf_text_visible(error->text);
}

static wf_status open_one(const app_options *o, const char *path, app_resume *r,
                          wf_error *error)
{
    wf_par_checkpoint *c = wf_par_checkpoint_open(path, error);
    wf_status status = c ? compare(o, c, refuse, error) : error->code;

    if (status == WF_OK)
        r->checkpoint[r->count++] = c;
    else
        wf_par_checkpoint_close(c);
    return status;
}

/* All of a directory, as far as they can be opened. The first of them has to fit the flags; another
   that does not is of a run before, and left out. */
static wf_status open_list(const app_options *o, const char *dir, app_resume *r,
                           wf_error *error)
{
    char **paths;
    int64_t count;
    bool first = wf_launcher_detected().process <= 0; /* all processes see the same */
    wf_error unknown = {WF_OK, ""};
    wf_status status = wf_par_checkpoint_list(dir, &paths, &count, &unknown);

    /* to begin anew, or to go on from another one, is the user's to say */
    if (status != WF_OK)
        wf_error_set(
            error, status,
            "%s; name the checkpoint to go on from (--resume %s/step-..), or begin anew "
            "with --resume none",
            unknown.text, dir);

    for (int64_t i = 0; i < count; i++) {
        wf_error why = {WF_OK, ""};

        if (status == WF_OK && r->count < APP_RESUME_MOST &&
            open_one(o, paths[i], r, &why) != WF_OK) {
            if (why.code != WF_EINVAL && first)
                fprintf(stderr, "gpt_train: %s\n", why.text);
            else if (why.code != WF_EINVAL)
                r->unopened = why;
            else if (!r->count)
                status = wf_error_set(error, why.code, "%s", why.text);
        }
        free(paths[i]);
    }
    free(paths);
    if (status == WF_OK && count && !r->count)
        return wf_error_set(error, WF_EDATA,
                            "none of the %lld checkpoints in %s can be used; --resume none "
                            "begins anew",
                            (long long)count, dir);
    return status;
}

typedef struct shapes {
    const app_options *options;
    const wf_par_checkpoint *checkpoint;
} shapes;

/* What is built of a size that a checkpoint speaks of can be larger than any machine: it is compared
   with the tensors before anything of it is made. */
static wf_status compare_shapes(wf_rank *rank, void *arg)
{
    const shapes *s = arg;
    const wf_par_options options = app_setup_rank(s->options, true);
    wf_par *par = wf_par_open(rank, &options, &rank->error);
    wf_nn_gpt *model = par ? app_setup_model(s->options, wf_par_context(par)) : NULL;

    if (model)
        wf_par_checkpoint_fits(&model->base, s->checkpoint, &rank->error);
    else if (par)
        rank->error = *wf_context_error(wf_par_context(par));
    if (model)
        wf_nn_free(&model->base);
    wf_par_close(par);
    return rank->error.code;
}

static bool is_automatic(const app_options *o)
{
    return !o->resume || strcmp(o->resume, "auto") == 0;
}

bool app_resume_looks(const app_options *o)
{
    return is_automatic(o) ? o->save != NULL : strcmp(o->resume, "none") != 0;
}

bool app_resume_continues(const app_options *o)
{
    return app_resume_looks(o) || o->recovery_dir;
}

static wf_status open_all(const app_options *o, app_resume *r, wf_error *error)
{
    wf_status status;

    if (!app_resume_looks(o))
        return WF_OK;
    if (is_automatic(o))
        return open_list(o, o->save, r, error);
    status = wf_par_checkpoint_there(o->resume) ? open_one(o, o->resume, r, error)
                                                : open_list(o, o->resume, r, error);
    if (status == WF_OK && !r->count)
        return wf_error_set(error, WF_EIO, "--resume %s: there is no checkpoint", o->resume);
    return status;
}

wf_status app_resume_open(const app_options *o, app_resume *r, wf_error *error)
{
    wf_status status;

    *r = (app_resume){.count = 0};
    status = open_all(o, r, error);
    if (status == WF_OK && r->count) {
        shapes s = {o, r->checkpoint[0]};

        status = wf_launch(
            &(wf_launch_options){.ranks = (int)app_options_ranks(o), .transport = "fake"},
            compare_shapes, &s, error);
    }
    if (status != WF_OK)
        app_resume_close(r);
    return status;
}

void app_resume_close(app_resume *r)
{
    for (int i = 0; i < r->count; i++)
        wf_par_checkpoint_close(r->checkpoint[i]);
    r->count = 0;
}
