/* apps/python/bridge/files.c - a run's state as a digest, checkpoints and models of
   transformers; plans; see bridge.h. */
#include "apps/gpt_train/saving.h"
#include "apps/python/bridge/bridge_internal.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A call of the ranks. */
typedef struct files {
    weft_python_run *run;
    const char *folder, *dtype;
    uint64_t digest;
    wf_error error; /* rank 0's, which is that of all; of fits, one rank's */
    atomic_flag taken;
} files;

static bool is_first(const wf_par_running *rank)
{
    return wf_context_rank(wf_par_context(rank->par)) == 0;
}

static wf_status digest(wf_par_running *rank, void *arg)
{
    uint64_t found = 0;

    wf_par_trainer_digest(rank->trainer, &found);
    if (is_first(rank))
        ((files *)arg)->digest = found;
    return wf_context_status(wf_par_context(rank->par));
}

/* Lends a call to the ranks, with its texts. NULL: no memory. */
static files *lend(weft_python_run *r, const char *folder, const char *dtype, wf_error *error)
{
    files *f;

    *error = (wf_error){WF_OK, ""};
    f = weft_python_lend(r, NULL, sizeof *f, error);
    if (!f)
        return NULL;
    f->run = r;
    if (folder)
        f->folder = weft_python_lend(r, folder, strlen(folder) + 1, error);
    if (dtype)
        f->dtype = weft_python_lend(r, dtype, strlen(dtype) + 1, error);
    atomic_flag_clear(&f->taken);
    return error->code == WF_OK ? f : NULL;
}

/* Has the ranks call a function, whose error may be in f. */
static wf_status call(wf_par_hook *function, files *f, wf_error *error)
{
    if (f && wf_session_call(f->run->session, function, f, error) == WF_OK &&
        f->error.code != WF_OK)
        *error = f->error;
    return error->code;
}

int weft_python_digest(weft_python_run *r, uint64_t *found, wf_error *error)
{
    files *f = lend(r, NULL, NULL, error);

    *found = call(digest, f, error) == WF_OK ? f->digest : 0;
    weft_python_return(r);
    return (int)error->code;
}

/* Saves with the texts that --save keeps, so that all programs can read the checkpoint. */
static wf_status save(wf_par_running *rank, void *arg)
{
    files *f = arg;
    app_options options = f->run->options; /* its texts stay */
    wf_saving_options saving;
    wf_par_saver *saver;
    app_saving texts;
    wf_error error = {WF_OK, ""};

    options.save = (char *)(uintptr_t)f->folder; /* only read */
    saving = app_saving_options(&options);
    saving.save.async = false;
    if (app_saving_open(&texts, &options, rank->par, (wf_nn_gpt *)rank->model, &saving) ==
        WF_OK) {
        saver = wf_par_saver_open(rank->trainer, &saving.save);
        if (saver && wf_par_saver_check(saver, &error) == WF_OK)
            wf_par_saver_save(saver, rank->steps, &error);
        wf_par_saver_close(saver);
    }
    app_saving_close(&texts);
    if (is_first(rank))
        f->error = error;
    return wf_context_status(wf_par_context(rank->par));
}

/* Keeps what the model began with beside its checkpoints, as --save does. */
static wf_status keep_origin(const weft_python_run *r, const char *folder, wf_error *error)
{
    char kept[4096 + sizeof WF_PAR_PRETRAINED_KEPT + 1];

    snprintf(kept, sizeof kept, "%.4096s/" WF_PAR_PRETRAINED_KEPT, folder);
    return r->options.init_from ? wf_par_pretrained_keep(r->options.init_from, kept, error)
                                : WF_OK;
}

int weft_python_save(weft_python_run *r, const char *folder, wf_error *error)
{
    if (call(save, lend(r, folder, NULL, error), error) == WF_OK)
        keep_origin(r, folder, error);
    weft_python_return(r);
    return (int)error->code;
}

static wf_status export(wf_par_running *rank, void *arg)
{
    const files *f = arg;

    return wf_par_pretrained_save(rank->par, (wf_nn_gpt *)rank->model, f->folder, f->dtype,
                                  f->run->options.init_from);
}

int weft_python_export(weft_python_run *r, const char *folder, const char *dtype,
                       wf_error *error)
{
    bool known = false;

    *error = (wf_error){WF_OK, ""};
    for (int i = 0; wf_par_pretrained_dtype_at(i); i++)
        known = known || strcmp(dtype, wf_par_pretrained_dtype_at(i)) == 0;
    if (!known)
        return (int)wf_error_set(error, WF_EINVAL,
                                 "dtype %.40s is none that weights are written as: f32, bf16 "
                                 "or f16",
                                 dtype);
    if (r->options.lora_rank)
        return (int)wf_error_set(error, WF_EINVAL,
                                 "a model with adapters is exported by weft export, from a "
                                 "checkpoint: call save(folder) first");
    call(export, lend(r, folder, dtype, error), error);
    weft_python_return(r);
    return (int)error->code;
}

static wf_status fits(wf_par_running *rank, void *arg)
{
    files *f = arg;
    wf_error error = {WF_OK, ""};

    wf_par_pretrained_fits(rank->par, (wf_nn_gpt *)rank->model, f->folder, &error);
    if (error.code != WF_OK && !atomic_flag_test_and_set(&f->taken))
        f->error = error;
    return wf_context_status(wf_par_context(rank->par));
}

static wf_status load(wf_par_running *rank, void *arg)
{
    const files *f = arg;

    if (wf_par_pretrained_load(rank->par, (wf_nn_gpt *)rank->model, f->folder) == WF_OK)
        wf_par_reshard_all(rank->par, rank->model); /* gathered ones are old */
    return wf_context_status(wf_par_context(rank->par));
}

int weft_python_load(weft_python_run *r, const char *folder, wf_error *error)
{
    files *f = lend(r, folder, NULL, error);

    if (call(fits, f, error) == WF_OK) /* before a rank fails */
        call(load, f, error);
    weft_python_return(r);
    return (int)error->code;
}

int weft_python_plan(int argc, char **argv, char **report, wf_error *error)
{
    app_options options;
    app_job job = {.options = &options};
    wf_process process = WF_PROCESS("weft");
    size_t bytes = 0;
    FILE *out;

    *report = NULL;
    *error = (wf_error){WF_OK, ""};
    process.is_embedded = true;
    if (app_options_parse(argc, argv, &options, error) != WF_OK)
        return (int)error->code;
    out = open_memstream(report, &bytes);
    if (!out)
        wf_error_set(error, WF_ENOMEM, "no memory for a plan");
    else if (!options.plan)
        wf_error_set(error, WF_EINVAL, "a plan needs --plan");
    else if (app_job_prepare(&job, &process, error) == WF_OK)
        wf_plan_print(app_job_request(&job), out, error);
    if (out)
        fclose(out);
    if (error->code != WF_OK) {
        free(*report);
        *report = NULL;
    }
    app_job_close(&job);
    app_options_free(&options);
    return (int)error->code;
}
