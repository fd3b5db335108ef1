/* parallel/checkpoint/resume.c - checkpoints to continue from; see the header. */
#include "parallel/checkpoint/resume.h"
#include "mesh/transport/launcher.h"
#include "parallel/main.h"
#include <stdlib.h>
#include <string.h>

static bool is_automatic(const wf_resume_options *o)
{
    return !o->resume || strcmp(o->resume, "auto") == 0;
}

bool wf_resume_looks(const wf_resume_options *o)
{
    return is_automatic(o) ? o->save != NULL : strcmp(o->resume, "none") != 0;
}

static wf_status open_one(const wf_resume_options *o, const char *path, wf_resume *r,
                          wf_error *error)
{
    wf_par_checkpoint *c = wf_par_checkpoint_open(path, error);
    wf_status status = !c ? error->code : o->fits ? o->fits(o->arg, c, error) : WF_OK;

    if (status == WF_OK)
        r->checkpoint[r->count++] = c;
    else
        wf_par_checkpoint_close(c);
    return status;
}

/* Opens all of a folder, as far as they can be. The first of them has to fit the settings;
   another one that does not is of a run before, and left out. */
static wf_status open_list(const wf_resume_options *o, const char *dir, wf_resume *r,
                           wf_error *error)
{
    char **paths;
    int64_t count;
    bool first = wf_launcher_detected().process <= 0; /* all processes see the same */
    wf_error unknown = {WF_OK, ""};
    wf_status status = wf_par_checkpoint_list(dir, &paths, &count, &unknown);

    /* to begin anew, or to continue from another one, is the user's decision */
    if (status != WF_OK)
        wf_error_set(
            error, status,
            "%s; name the checkpoint to continue from (.resume %s/step-..), or begin anew "
            "with .resume none",
            unknown.text, dir);

    for (int64_t i = 0; i < count; i++) {
        wf_error why = {WF_OK, ""};

        if (status == WF_OK && r->count < WF_RESUME_MOST &&
            open_one(o, paths[i], r, &why) != WF_OK) {
            if (why.code != WF_EINVAL && first)
                wf_par_report_line(o->program, "%s", why.text);
            else if (why.code != WF_EINVAL)
                r->unopened = why;
            else if (!r->count)
                status = wf_error_set(error, why.code, "%s", why.text);
        }
        free(paths[i]);
    }
    free((void *)paths);
    if (status == WF_OK && count && !r->count)
        return wf_error_set(error, WF_EDATA,
                            "none of the %lld checkpoints in %s can be used; .resume none "
                            "begins anew",
                            (long long)count, dir);
    return status;
}

static wf_status open_all(const wf_resume_options *o, wf_resume *r, wf_error *error)
{
    wf_status status;

    if (!wf_resume_looks(o))
        return WF_OK;
    if (is_automatic(o))
        return open_list(o, o->save, r, error);
    status = wf_par_checkpoint_there(o->resume) ? open_one(o, o->resume, r, error)
                                                : open_list(o, o->resume, r, error);
    if (status == WF_OK && !r->count)
        return wf_error_set(error, WF_EIO, ".resume %s: there is no checkpoint", o->resume);
    return status;
}

wf_status wf_resume_open(const wf_resume_options *o, wf_resume *r, wf_error *error)
{
    wf_status status;

    *r = (wf_resume){.count = 0};
    status = open_all(o, r, error);
    if (status != WF_OK)
        wf_resume_close(r);
    return status;
}

void wf_resume_close(wf_resume *r)
{
    for (int i = 0; i < r->count; i++)
        wf_par_checkpoint_close(r->checkpoint[i]);
    r->count = 0;
}

int64_t wf_resume_step(const wf_resume *r)
{
    return r->count ? wf_par_checkpoint_step(r->checkpoint[0]) : -1;
}
