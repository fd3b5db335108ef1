/* parallel/program/saving_folder.c - the folder of checkpoints while a run goes: seen by all,
   moved, removed; see saving.h. */
#include "core/files/files_internal.h"
#include "core/files/prepare.h"
#include "parallel/checkpoint/folder_lock.h"
#include "parallel/main.h"
#include "parallel/program/saving_internal.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

wf_status wf_saving_prepare(const char *program, const char *dir, const wf_launcher *launcher,
                            wf_saving_result *result, wf_error *error)
{
    wf_status status = WF_OK;

    result->made = mkdir(dir, 0755) == 0;
    if (!result->made && errno == ENOENT) {
        status = wf_output_prepare_folder("--save", dir, error);
        result->made = status == WF_OK;
    } else if (!result->made && errno != EEXIST) {
        status =
            wf_error_set(error, WF_EIO, "cannot make directory %s: %s", dir, strerror(errno));
    }
    if (status == WF_OK && launcher->process == 0) /* it acts for all processes */
        status = wf_folder_lock(program, dir, &result->lock, error);
    return status;
}

void wf_saving_failed(wf_saving_result *result, bool failed)
{
    __atomic_store_n(&result->failed, failed, __ATOMIC_SEQ_CST);
}

void wf_saving_preempted(wf_saving_result *result, bool preempted)
{
    __atomic_store_n(&result->preempted, preempted, __ATOMIC_SEQ_CST);
}

int wf_saving_exit_status(wf_status status, const wf_saving_result *result)
{
    if (__atomic_load_n(&result->failed, __ATOMIC_SEQ_CST) &&
        (status == WF_OK || status == WF_EIO || status == WF_EDATA))
        return WF_EXIT_CHECKPOINT;
    return status == WF_OK && __atomic_load_n(&result->preempted, __ATOMIC_SEQ_CST)
               ? WF_EXIT_PREEMPTED
               : wf_par_exit_status(status);
}

/* Returns whether the lock is that of the folder which has the name now. */
static bool has_lock(const char *dir, int lock)
{
    char path[4096];
    struct stat open, named;

    snprintf(path, sizeof path, "%.4000s/lock", dir);
    return lock >= 0 && fstat(lock, &open) == 0 && stat(path, &named) == 0 &&
           wf_same_file(&open, &named);
}

/* wf_par_save_options.remake: the folder was removed or unmounted under the run. */
wf_status wf_saving_remake(void *arg, wf_error *error)
{
    wf_saving *s = arg;
    const char *dir = s->options.save.dir;

    if (has_lock(dir, s->result->lock))
        return WF_OK; /* by the other saver */
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        return wf_error_set(error, WF_EIO,
                            "%s was removed or unmounted, and cannot be recreated: %s", dir,
                            strerror(errno));
    if (s->result->lock >= 0)
        close(s->result->lock);
    if (wf_folder_lock(s->options.program, dir, &s->result->lock, error) == WF_OK)
        wf_par_report_line(s->options.program,
                           "warning: %s was removed or unmounted while the run saves there: it "
                           "is recreated, without the checkpoints that it had",
                           dir);
    return error->code;
}

wf_status wf_saving_check(wf_saving *s)
{
    wf_context *ctx = wf_par_context(s->par);
    wf_error error = {WF_OK, ""};

    if (!s->saver || wf_context_status(ctx) != WF_OK ||
        (wf_par_saver_check(s->saver, &error) == WF_OK &&
         (!s->best || wf_par_saver_check(s->best, &error) == WF_OK)))
        return wf_context_status(ctx);
    wf_saving_failed(s->result,
                     true); /* also of a rank that hears of it as the end of another one */
    return wf_fail(ctx, error.code, "%s", error.text);
}

/* Reports, once, that the folder was moved while the run saves there. */
static void report_move(wf_saving *s)
{
    const char *dir = s->options.save.dir;
    size_t n = strlen(dir);
    char path[4096];

    if (!s->saver || s->moved)
        return;
    wf_par_saver_path(s->saver, 0, path, sizeof path);
    if (strncmp(path, dir, n) == 0 && path[n] == '/')
        return;
    s->moved = true;
    *strrchr(path, '/') = 0;
    wf_par_report_line(s->options.program,
                       "warning: %s was moved to %s while the run saves there: checkpoints "
                       "follow it",
                       dir, path);
}

static void report_saved(wf_saving *s, const wf_par_saver *saver, int64_t *reported,
                         void (*clear)(void *arg), void *arg)
{
    wf_comm *world = wf_mesh_world(wf_par_mesh(s->par));
    int64_t step = saver ? wf_par_saver_saved(saver) : 0;
    char path[4096];

    if (step == *reported)
        return;
    *reported = step;
    if (!wf_saving_first(s))
        return;
    wf_comm_at_files(world, true);
    if (clear)
        clear(arg);
    report_move(s);
    fprintf(s->options.out, "saved %s\n", wf_par_saver_path(saver, step, path, sizeof path));
    fflush(s->options.out);
    wf_comm_at_files(world, false);
}

void wf_saving_report(wf_saving *s, void (*clear)(void *arg), void *arg)
{
    report_saved(s, s->saver, &s->reported, clear, arg);
    report_saved(s, s->best, &s->reported_best, clear, arg);
}
