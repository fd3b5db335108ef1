/*
 * parallel/checkpoint/list.c - which checkpoints a directory has, and which files one of them
 * has to have: see parallel/checkpoint/checkpoint.h and commit.h.
 */
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/commit_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool wf_par_checkpoint_there(const char *path)
{
    char index[PATH_MAX];
    struct stat s;

    return snprintf(index, sizeof index, "%s/index.json", path) < (int)sizeof index &&
           (stat(index, &s) == 0 || (errno != ENOENT && errno != ENOTDIR));
}

/* A checkpoint of a directory by its name there. */
typedef struct found {
    int64_t step;
    const char *name;
    bool replaced, latest;
} found;

/* The one that `latest` names, then the newest; of a step, the one that was published last. */
static int in_turn(const void *a, const void *b)
{
    const found *x = a, *y = b;

    if (x->latest != y->latest)
        return x->latest ? -1 : 1;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return x->replaced - y->replaced;
}

/* Keeps one of each step: what was replaced counts where nothing has replaced it. */
static int64_t sort_out(found *list, char *const *names, int64_t n, int64_t latest)
{
    int64_t count = 0, different = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t step = wf_ckpt_step(names[i]), replaced = wf_ckpt_replaced_step(names[i]);

        if (step < 0 && replaced < 0)
            continue;
        list[count++] =
            (found){.step = step >= 0 ? step : replaced,
                    .name = names[i],
                    .replaced = step < 0,
                    .latest = latest >= 0 && (step == latest || replaced == latest)};
    }
    if (count > 1)
        qsort(list, (size_t)count, sizeof *list, in_turn);
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || list[i].step != list[different - 1].step)
            list[different++] = list[i];
    return different;
}

static wf_status make_paths(const char *dir, const found *list, int64_t n, char **paths,
                            int64_t *count, wf_error *error)
{
    for (; *count < n; ++*count) {
        size_t room = strlen(dir) + strlen(list[*count].name) + 2;

        paths[*count] = malloc(room);
        if (!paths[*count])
            return wf_error_set(error, WF_ENOMEM, "no memory to list the checkpoints in %s",
                                dir);
        snprintf(paths[*count], room, "%s/%s", dir, list[*count].name);
    }
    return WF_OK;
}

static wf_status list_folder(const wf_folder *dir, char ***paths, int64_t *count,
                             wf_error *error)
{
    char **names, step[WF_CKPT_NAME];
    found *list;
    int64_t all, n = 0, latest;
    wf_error wrong = {WF_OK, ""};
    wf_status status = wf_folder_list(dir, &names, &all, error);

    if (status != WF_OK)
        return status;
    wf_ckpt_latest(dir, &latest, &wrong);
    list = calloc((size_t)all + 1, sizeof *list);
    *paths = calloc((size_t)all + 1, sizeof **paths);
    if (list && *paths) {
        n = sort_out(list, names, all, latest);
        status = make_paths(dir->path, list, n, *paths, count, error);
    } else {
        status = wf_error_set(error, WF_ENOMEM, "no memory to list the checkpoints in %s",
                              dir->path);
    }
    if (status == WF_OK && latest >= 0 && !(n && list[0].latest))
        wf_error_set(&wrong, WF_EDATA, "%s/latest names %s, which is not there", dir->path,
                     wf_ckpt_name(step, latest));
    free(list);
    wf_folder_free_names(names, all);
    return status == WF_OK && wrong.code != WF_OK
               ? wf_error_set(error, wrong.code, "%s", wrong.text)
               : status;
}

wf_status wf_par_checkpoint_list(const char *dir, char ***paths, int64_t *count,
                                 wf_error *error)
{
    wf_error why = {WF_OK, ""};
    wf_folder folder;
    wf_status status = wf_folder_open(&folder, &wf_system_files, dir, &why);

    *paths = NULL;
    *count = 0;
    if (status == WF_OK)
        status = list_folder(&folder, paths, count, &why);
    wf_folder_close(&folder);
    if (status == WF_OK || folder.missing)
        return WF_OK;
    return wf_error_set(error, why.code, "%s", why.text);
}

/* The number in "rank-00003.safetensors", -1 of "model.safetensors"; -2: it is no data file. */
static int64_t file_number(const char *name)
{
    static const char end[] = ".safetensors";
    size_t digits = strncmp(name, "rank-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;

    if (strcmp(name, "model.safetensors") == 0)
        return -1;
    return digits >= 5 && digits < 15 && strcmp(name + 5 + digits, end) == 0
               ? strtoll(name + 5, NULL, 10)
               : -2;
}

wf_status wf_ckpt_check_files(const wf_folder *folder, const wf_index *index, wf_error *error)
{
    bool full = index->kind == WF_INDEX_FULL;
    char **names;
    int64_t n, files = 0, bytes = 0;
    wf_status status = wf_folder_list(folder, &names, &n, error);

    for (int64_t i = 0; i < n && status == WF_OK; i++) {
        int64_t number = file_number(names[i]);
        struct stat s;

        if (number < -1)
            continue;
        if (full ? number != -1 : number < 0 || number >= index->files)
            status = wf_error_set(error, WF_EDATA, "%s/%s is no file of this checkpoint",
                                  folder->path, names[i]);
        else if (fstatat(folder->fd, names[i], &s, 0) != 0)
            status = wf_error_set(error, WF_EIO, "cannot look at %s/%s: %s", folder->path,
                                  names[i], strerror(errno));
        else
            bytes += s.st_size;
        files++;
    }
    wf_folder_free_names(names, n);
    if (status != WF_OK || (files == index->files && bytes == index->bytes))
        return status;
    return wf_error_set(error, WF_EDATA,
                        "%s has %" PRId64 " data files with %" PRId64 " bytes, and %" PRId64
                        " with %" PRId64 " belong to it",
                        folder->path, files, bytes, index->files, index->bytes);
}
