/*
 * parallel/checkpoint/commit.c - publishing a checkpoint; see the header.
 *
 * Every step is on the disk before the next one relies on it: data and index before the rename
 * that shows them, the rename before `latest` names it, `latest` before anything is deleted.
 */
#include "parallel/checkpoint/commit.h"
#include "parallel/checkpoint.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATEST   "latest"
#define PARTIAL  ".partial"
#define REPLACED ".replaced"

char *wf_ckpt_path(char text[WF_CKPT_PATH], const char *dir, int64_t step, const char *suffix)
{
    snprintf(text, WF_CKPT_PATH, "%.3970s/step-%08" PRId64 "%.16s", dir, step, suffix);
    return text;
}

char *wf_ckpt_file(char text[WF_CKPT_PATH], const char *path, int64_t rank)
{
    if (rank < 0)
        snprintf(text, WF_CKPT_PATH, "%.4040s/model.safetensors", path);
    else
        snprintf(text, WF_CKPT_PATH, "%.4040s/rank-%05" PRId64 ".safetensors", path, rank);
    return text;
}

char *wf_ckpt_index(char text[WF_CKPT_PATH], const char *path)
{
    snprintf(text, WF_CKPT_PATH, "%.4040s/index.json", path);
    return text;
}

int64_t wf_ckpt_step(const char *name)
{
    const char *digits = name + 5;
    int64_t step = 0;

    if (strncmp(name, "step-", 5) != 0 || strlen(digits) < 8 || strlen(digits) > 15)
        return -1;
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9')
            return -1;
        step = 10 * step + (*digits - '0');
    }
    return step;
}

wf_status wf_ckpt_begin(const wf_file_calls *calls, const char *dir, int64_t step,
                        wf_error *error)
{
    char partial[WF_CKPT_PATH];
    wf_status status = wf_files_make_directory(calls, dir, error);

    if (status == WF_OK)
        status =
            wf_files_make_directory(calls, wf_ckpt_path(partial, dir, step, PARTIAL), error);
    return status;
}

void wf_ckpt_abandon(const wf_file_calls *calls, const char *dir, int64_t step)
{
    char partial[WF_CKPT_PATH];

    wf_files_remove_tree(calls, wf_ckpt_path(partial, dir, step, PARTIAL), NULL);
}

/* A new file with these bytes, on the disk when it returns. */
static wf_status write_file(const wf_file_calls *calls, const char *path, const char *bytes,
                            size_t n, wf_error *error)
{
    wf_file file;
    wf_status status = wf_file_open(&file, calls, path, WF_FILE_WRITE, error);

    if (status != WF_OK)
        return status;
    status = wf_file_resize(&file, (int64_t)n, error);
    if (status == WF_OK)
        status = wf_file_write(&file, bytes, n, 0, error);
    if (status == WF_OK)
        status = wf_file_sync(&file, error);
    return wf_file_close(&file, status == WF_OK ? error : NULL) != WF_OK && status == WF_OK
               ? WF_EIO
               : status;
}

static wf_status write_index(const wf_file_calls *calls, const char *partial,
                             const wf_index *index, wf_error *error)
{
    char path[WF_CKPT_PATH], *text;
    size_t bytes;
    wf_status status = wf_index_format(index, &text, &bytes, error);

    if (status != WF_OK)
        return status;
    status = write_file(calls, wf_ckpt_index(path, partial), text, bytes, error);
    free(text);
    return status == WF_OK ? wf_files_sync_directory(calls, partial, error) : status;
}

static wf_status move_latest(const wf_file_calls *calls, const char *dir, int64_t step,
                             wf_error *error)
{
    char from[WF_CKPT_PATH], to[WF_CKPT_PATH], name[64];
    wf_status status;

    snprintf(from, sizeof from, "%.3970s/" LATEST PARTIAL, dir);
    snprintf(to, sizeof to, "%.3970s/" LATEST, dir);
    snprintf(name, sizeof name, "step-%08" PRId64 "\n", step);
    status = write_file(calls, from, name, strlen(name), error);
    if (status == WF_OK)
        status = wf_files_rename(calls, from, to, error);
    return status == WF_OK ? wf_files_sync_directory(calls, dir, error) : status;
}

/* Whether the published checkpoint of this step is the same: then there is nothing to do. */
static bool is_there(const wf_file_calls *calls, const char *path, const wf_index *index)
{
    char file[WF_CKPT_PATH];
    wf_error ignored = {WF_OK, ""};
    wf_index old = {.step = 0};
    bool same = wf_index_read(&old, calls, wf_ckpt_index(file, path), &ignored) == WF_OK &&
                old.kind == index->kind && old.digest == index->digest &&
                old.files_checksum == index->files_checksum && old.bytes == index->bytes;

    wf_index_close(&old);
    return same;
}

/* Of two steps, which one goes first when some are deleted: what lies before the one that was
   just saved is older the smaller it is, and older than all that is what lies behind it, which
   belongs to a run that was given up. */
typedef struct old {
    int64_t step, age;
} old;

static int by_age(const void *a, const void *b)
{
    const old *x = a, *y = b;

    return (x->age > y->age) - (x->age < y->age);
}

static void remove_step(const wf_file_calls *calls, const char *dir, int64_t step)
{
    char path[WF_CKPT_PATH], gone[WF_CKPT_PATH];

    /* out of sight first: what is deleted by half is no checkpoint any more */
    if (wf_files_rename(calls, wf_ckpt_path(path, dir, step, ""),
                        wf_ckpt_path(gone, dir, step, PARTIAL), NULL) == WF_OK)
        wf_files_remove_tree(calls, gone, NULL);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

static void remove_old(const wf_file_calls *calls, const char *dir, int64_t step, int keep)
{
    char **names, path[WF_CKPT_PATH];
    int64_t n = wf_files_list(dir, &names), count = 0;
    old *list = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof *list);

    for (int64_t i = 0; i < n; i++) {
        int64_t s = wf_ckpt_step(names[i]);

        if (s >= 0 && list)
            list[count++] = (old){s, s > step ? INT64_MAX - s : step - s};
        else if (strncmp(names[i], "step-", 5) == 0 &&
                 (ends_with(names[i], PARTIAL) || ends_with(names[i], REPLACED)) &&
                 snprintf(path, sizeof path, "%s/%s", dir, names[i]) < (int)sizeof path)
            wf_files_remove_tree(calls, path, NULL);
        free(names[i]);
    }
    free(names);
    if (list && keep > 0)
        qsort(list, (size_t)count, sizeof *list, by_age);
    for (int64_t i = keep; keep > 0 && i < count; i++)
        remove_step(calls, dir, list[i].step);
    free(list);
}

/* Put the new one in its place; one of the same step makes room first. */
static wf_status show(const wf_file_calls *calls, const char *dir, const wf_index *index,
                      wf_error *error)
{
    char partial[WF_CKPT_PATH], path[WF_CKPT_PATH], replaced[WF_CKPT_PATH], **names;
    int64_t there = wf_files_list(wf_ckpt_path(path, dir, index->step, ""), &names);
    wf_status status = WF_OK;

    for (int64_t i = 0; i < there; i++)
        free(names[i]);
    free(names);
    wf_ckpt_path(partial, dir, index->step, PARTIAL);
    if (there >= 0) {
        if (is_there(calls, path, index)) {
            wf_ckpt_abandon(calls, dir, index->step);
            return WF_OK;
        }
        wf_ckpt_path(replaced, dir, index->step, REPLACED);
        status = wf_files_remove_tree(calls, replaced, error);
        if (status == WF_OK)
            status = wf_files_rename(calls, path, replaced, error);
    }
    if (status != WF_OK)
        return status;
    status = wf_files_rename(calls, partial, path, error);
    if (status == WF_OK)
        return wf_files_sync_directory(calls, dir, error);
    if (there >= 0)
        wf_files_rename(calls, replaced, path, NULL);
    return status;
}

wf_status wf_ckpt_publish(const wf_file_calls *calls, const char *dir, const wf_index *index,
                          int keep, wf_error *error)
{
    char partial[WF_CKPT_PATH];
    wf_status status =
        write_index(calls, wf_ckpt_path(partial, dir, index->step, PARTIAL), index, error);

    if (status == WF_OK)
        status = show(calls, dir, index, error);
    if (status == WF_OK)
        status = move_latest(calls, dir, index->step, error);
    if (status == WF_OK)
        remove_old(calls, dir, index->step, keep);
    return status;
}

/* The step that `latest` names, or -1. */
static int64_t latest_step(const char *dir)
{
    char path[WF_CKPT_PATH], name[64] = "";
    wf_error ignored = {WF_OK, ""};
    wf_file file;
    int64_t step = -1;

    snprintf(path, sizeof path, "%.3970s/" LATEST, dir);
    if (wf_file_open(&file, &wf_system_files, path, WF_FILE_READ, &ignored) != WF_OK)
        return -1;
    if (file.bytes < (int64_t)sizeof name &&
        wf_file_read(&file, name, (size_t)file.bytes, 0, &ignored) == WF_OK) {
        name[strcspn(name, "\n")] = 0;
        step = wf_ckpt_step(name);
    }
    wf_file_close(&file, NULL);
    return step;
}

wf_status wf_par_checkpoint_list(const char *dir, char ***paths, int64_t *count,
                                 wf_error *error)
{
    char **names, text[WF_CKPT_PATH];
    int64_t n = wf_files_list(dir, &names), latest = latest_step(dir), found = 0;
    old *list = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof *list);
    char **all = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof *all);
    bool good = list && all;

    for (int64_t i = 0; i < n; i++) {
        int64_t step = wf_ckpt_step(names[i]);

        if (step >= 0 && good)
            list[found++] = (old){step, step == latest ? -1 : INT64_MAX - step};
        free(names[i]);
    }
    free(names);
    if (good)
        qsort(list, (size_t)found, sizeof *list, by_age);
    for (int64_t i = 0; good && i < found; i++)
        good = (all[i] = strdup(wf_ckpt_path(text, dir, list[i].step, ""))) != NULL;
    free(list);
    *paths = all;
    *count = found;
    if (good)
        return WF_OK;
    for (int64_t i = 0; all && i < found; i++)
        free(all[i]);
    free(all);
    *paths = NULL;
    *count = 0;
    return wf_error_set(error, WF_ENOMEM, "no memory to list the checkpoints in %s", dir);
}
