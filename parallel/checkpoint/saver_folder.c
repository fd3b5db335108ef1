/* parallel/checkpoint/saver_folder.c - the directory of a saver: kept open, followed, and seen
   by all ranks. */
#include "core/files/prepare.h"
#include "parallel/checkpoint/commit_internal.h"
#include "parallel/checkpoint/saver_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns whether an open directory lies below "/": above one whose file system was unmounted
   there is only what was mounted. */
static bool is_mounted(int fd)
{
    char up[WF_FILES_PATH] = "..";
    struct stat at, above, root;

    if (stat("/", &root) != 0 || fstat(fd, &at) != 0)
        return true;
    for (size_t n = 2; n + 4 < sizeof up; n += 3) {
        if (fstatat(fd, up, &above, 0) != 0)
            return true; /* unknown */
        if (wf_same_file(&above, &at))
            return wf_same_file(&at, &root);
        at = above;
        memcpy(up + n, "/..", 4);
    }
    return true;
}

/* Returns whether an open directory is none any more: nothing can be made in it, or it would be
   lost. */
static bool is_removed(const wf_folder *folder)
{
    struct stat s;

    return fstat(folder->fd, &s) != 0 || s.st_nlink == 0 || !is_mounted(folder->fd);
}

/* Keeps the path at which the open directory is now, where that is not the one it was opened
   by. */
static void follow(wf_par_saver *s)
{
    struct stat open, named;
    char link[64], path[WF_FILES_PATH];
    ssize_t n;
    char *now;

    if (fstat(s->folder.fd, &open) != 0 ||
        (stat(s->dir, &named) == 0 && wf_same_file(&named, &open)))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", s->folder.fd);
    n = readlink(link, path, sizeof path - 1);
    if (n <= 0 || n > WF_CKPT_PATH - 128)
        return;
    path[n] = 0;
    now = strdup(path);
    if (!now)
        return;
    free(s->moved);
    s->moved = now;
    snprintf(s->folder.path, sizeof s->folder.path, "%s", now);
}

static wf_status remake_folder(const wf_par_saver *s, wf_error *error)
{
    if (s->options.remake)
        return s->options.remake(s->options.remake_arg, error);
    return wf_error_set(error, WF_EIO,
                        "%s was removed or unmounted while the run saves there: a save needs "
                        "another saver, or wf_par_save_options.remake",
                        s->dir);
}

wf_status wf_saver_folder(wf_par_saver *s, bool first, wf_error *error)
{
    wf_status status = WF_OK;
    bool removed = s->folder.fd >= 0 && is_removed(&s->folder);

    if (s->folder.fd >= 0 && !removed) {
        if (first)
            follow(s);
        return WF_OK;
    }
    wf_folder_close(&s->folder);
    free(s->moved); /* it is made where it was asked for */
    s->moved = NULL;
    if (removed && first)
        status = remake_folder(s, error);
    if (first && status == WF_OK)
        status = wf_files_make_directory(s->calls, s->dir, error);
    return status == WF_OK ? wf_folder_open(&s->folder, s->calls, s->dir, error) : status;
}

/* ---- wf_par_saver_check ---- */

static wf_status make(wf_par_saver *s, wf_error *error)
{
    wf_status status = WF_OK;

    s->mark = 0;
    if (wf_context_rank(s->par->ctx) == 0) {
        status = wf_saver_folder(s, true, error);
        if (status == WF_OK)
            status = wf_ckpt_begin(&s->folder, s->step, &s->mark, error);
    }
    s->sum[WF_BEGUN_MARK] = s->mark;
    return status;
}

/* Each rank writes where it will write its file. */
static wf_status enter(wf_par_saver *s, wf_error *error)
{
    wf_ckpt_target target = {.partial = {.fd = -1}};
    wf_error why = {WF_OK, ""};
    char name[WF_CKPT_NAME];
    wf_file file;

    if (wf_saver_folder(s, false, &why) == WF_OK)
        wf_ckpt_enter(&target, &s->folder, s->step, s->mark, &why);
    if (why.code != WF_OK && !s->folder.missing && !target.partial.missing)
        *error = why;
    else if (why.code != WF_OK)
        wf_error_set(error, WF_EIO,
                     "%.1000s is not seen here as rank 0 sees it: the directory of checkpoints "
                     "has to be the same on all hosts (%.500s)",
                     s->dir, why.text);
    else if (wf_folder_file(&target.partial, wf_ckpt_file(name, wf_context_rank(s->par->ctx)),
                            WF_FILE_CREATE, &file, error) == WF_OK)
        wf_file_close(&file, error);
    wf_ckpt_leave(&target);
    return error->code;
}

static wf_status put_away(wf_par_saver *s, wf_error *error)
{
    (void)error;
    if (wf_context_rank(s->par->ctx) == 0)
        wf_ckpt_abandon(&s->folder, s->step, s->mark);
    return WF_OK;
}

const wf_save_stage *wf_saver_check_stages(void)
{
    static const wf_save_stage stages[] = {{make, WF_NUMBERS_BEGUN},
                                           {enter, WF_NUMBERS_NONE},
                                           {put_away, WF_NUMBERS_NONE},
                                           {NULL, WF_NUMBERS_NONE}};

    return stages;
}
