/* apps/gpt_train/saving_folder.c - the directory of --save while a run goes: seen by all, moved, removed; see saving.h. */
#include "parallel/checkpoint/folder_lock.h"
#include "apps/gpt_train/saving.h"
#include "parallel/recovery/signal_requests.h"
#include "core/files/prepare.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

wf_status app_saving_prepare(const app_options *o, const wf_launcher *launcher,
                             app_resume *resume, app_saving_result *result, wf_error *error)
{
    wf_status status = WF_OK;

    if (o->steps == 0 && o->sample == 0 && !o->resume)
        return WF_OK;
    if (o->steps && o->save) {
        result->made = mkdir(o->save, 0755) == 0;
        if (!result->made && errno == ENOENT) {
            status = wf_output_prepare_folder("--save", o->save, error);
            result->made = status == WF_OK;
        } else if (!result->made && errno != EEXIST) {
            status = wf_error_set(error, WF_EIO, "cannot make directory %s: %s", o->save,
                                  strerror(errno));
        }
        if (status == WF_OK && launcher->process == 0) /* it stands for all processes */
            status = wf_folder_lock("gpt_train", o->save, &result->lock, error);
        wf_signal_requests_listen();
    }
    if (status == WF_OK && o->steps && o->save && o->init_from && launcher->process == 0) {
        char kept[WF_ERROR_TEXT];

        snprintf(kept, sizeof kept, "%.900s/" WF_PAR_PRETRAINED_KEPT, o->save);
        status = wf_par_pretrained_keep(o->init_from, kept, error);
    }
    if (status == WF_OK)
        status = app_resume_open(o, resume, error);
    if (status == WF_OK && o->steps == 0 && o->sample && !o->init_from && !resume->count)
        status =
            wf_error_set(error, WF_EINVAL,
                         "--sample %lld with --steps 0 needs weights that were trained "
                         "before, and there are none: use --resume PATH or --init-from DIR",
                         (long long)o->sample);
    result->failed = status == WF_EIO || status == WF_EDATA;
    return status;
}

/* The directory of --save was removed under the run: it is made again, with a lock of its own. wf_par_save_options.remake */
wf_status app_saving_remake(void *arg, wf_error *error)
{
    app_saving *s = arg;
    const char *dir = s->options->save;
    struct stat is;

    if (s->result->lock >= 0 && fstat(s->result->lock, &is) == 0 && is.st_nlink > 0)
        return WF_OK; /* by the other saver */
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        return wf_error_set(error, WF_EIO, "%s was removed, and cannot be made again: %s", dir,
                            strerror(errno));
    if (s->result->lock >= 0)
        close(s->result->lock);
    if (wf_folder_lock("gpt_train", dir, &s->result->lock, error) == WF_OK)
        fprintf(
            stderr,
            "gpt_train: warning: %s was removed while the run saves there: it is made again, "
            "without the checkpoints that it had\n",
            dir);
    return error->code;
}

wf_status app_saving_check(app_saving *s)
{
    wf_context *ctx = wf_par_context(s->par);
    wf_error error = {WF_OK, ""};

    if (!s->saver || wf_context_status(ctx) != WF_OK ||
        (wf_par_saver_check(s->saver, &error) == WF_OK &&
         (!s->best || wf_par_saver_check(s->best, &error) == WF_OK)))
        return wf_context_status(ctx);
    s->result->failed = true; /* also of a rank that hears of it as the end of another one */
    return wf_fail(ctx, error.code, "%s", error.text);
}

void app_saving_moved(app_saving *s)
{
    size_t n = strlen(s->options->save);
    char path[4096];

    if (!s->saver || s->moved)
        return;
    wf_par_saver_path(s->saver, 0, path, sizeof path);
    if (strncmp(path, s->options->save, n) == 0 && path[n] == '/')
        return;
    s->moved = true;
    *strrchr(path, '/') = 0;
    fprintf(stderr,
            "gpt_train: warning: %s was moved to %s while the run saves there: checkpoints "
            "follow it\n",
            s->options->save, path);
}
