/*
 * parallel/checkpoint/commit.c - publishing a checkpoint; see the header.
 *
 * Every step is on the disk before the next one relies on it: data and index before the rename
 * that shows them, the rename before `latest` names it, `latest` before anything is deleted.
 */
#include "parallel/checkpoint/commit_internal.h"
#include "core/files/output_internal.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATEST   "latest"
#define PARTIAL  ".partial"
#define REPLACED ".replaced"

char *wf_ckpt_name(char text[WF_CKPT_NAME], int64_t step)
{
    snprintf(text, WF_CKPT_NAME, "step-%08" PRId64, step);
    return text;
}

char *wf_ckpt_partial(char text[WF_CKPT_NAME], int64_t step, uint64_t mark)
{
    snprintf(text, WF_CKPT_NAME, "step-%08" PRId64 ".%016" PRIx64 PARTIAL, step, mark);
    return text;
}

static char *replaced_name(char text[WF_CKPT_NAME], int64_t step)
{
    snprintf(text, WF_CKPT_NAME, "step-%08" PRId64 REPLACED, step);
    return text;
}

char *wf_ckpt_file(char text[WF_CKPT_NAME], int64_t rank)
{
    if (rank < 0)
        snprintf(text, WF_CKPT_NAME, "model.safetensors");
    else
        snprintf(text, WF_CKPT_NAME, "rank-%05" PRId64 ".safetensors", rank);
    return text;
}

/* Returns the step of "step-00000020" with `end` after it. */
static int64_t step_of(const char *name, const char *end)
{
    size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;

    if (digits < 8 || digits > 15 || strcmp(name + 5 + digits, end) != 0)
        return -1;
    return strtoll(name + 5, NULL, 10);
}

int64_t wf_ckpt_step(const char *name)
{
    return step_of(name, "");
}

int64_t wf_ckpt_replaced_step(const char *name)
{
    return step_of(name, REPLACED);
}

static bool is_partial(const char *name)
{
    size_t n = strlen(name), end = strlen(PARTIAL);

    return strncmp(name, "step-", 5) == 0 && n > end && strcmp(name + n - end, PARTIAL) == 0;
}

static bool has_name(char *const *names, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Remove what saves have left that were not published, and what was replaced; of what was
   replaced the only one of its step comes back. What fails is left for the next time. */
static void tidy(const wf_folder *dir, char *const *names, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t step = wf_ckpt_replaced_step(names[i]);
        char name[WF_CKPT_NAME];

        if (step >= 0 && !has_name(names, n, wf_ckpt_name(name, step)))
            wf_folder_rename(dir, names[i], name, NULL);
        else if (step >= 0 || is_partial(names[i]))
            wf_folder_remove(dir, names[i], NULL);
    }
}

wf_status wf_ckpt_tidy(const wf_folder *dir, wf_error *error)
{
    char **names;
    int64_t n;
    wf_status status = wf_folder_list(dir, &names, &n, error);

    if (status != WF_OK)
        return status;
    tidy(dir, names, n);
    wf_folder_free_names(names, n);
    return WF_OK;
}

wf_status wf_ckpt_begin(const wf_folder *dir, int64_t step, uint64_t *mark, wf_error *error)
{
    char name[WF_CKPT_NAME];

    *mark = wf_output_mark();
    return wf_folder_make(dir, wf_ckpt_partial(name, step, *mark), error);
}

wf_status wf_ckpt_enter(wf_ckpt_target *target, const wf_folder *dir, int64_t step,
                        uint64_t mark, wf_error *error)
{
    char name[WF_CKPT_NAME];

    target->dir = dir;
    return wf_folder_enter(&target->partial, dir, wf_ckpt_partial(name, step, mark), error);
}

void wf_ckpt_leave(wf_ckpt_target *target)
{
    wf_folder_close(&target->partial);
}

void wf_ckpt_abandon(const wf_folder *dir, int64_t step, uint64_t mark)
{
    char name[WF_CKPT_NAME];

    wf_folder_remove(dir, wf_ckpt_partial(name, step, mark), NULL);
}

/* A new file with these bytes, on the disk when it returns. */
static wf_status write_file(const wf_folder *in, const char *name, const char *bytes, size_t n,
                            wf_error *error)
{
    wf_file file;
    wf_status status = wf_folder_file(in, name, WF_FILE_CREATE, &file, error);

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

static wf_status write_index(const wf_folder *partial, const wf_index *index, wf_error *error)
{
    char *text;
    size_t bytes;
    wf_status status = wf_index_format(index, &text, &bytes, error);

    if (status != WF_OK)
        return status;
    status = write_file(partial, WF_CKPT_INDEX, text, bytes, error);
    free(text);
    return status == WF_OK ? wf_folder_sync(partial, error) : status;
}

static wf_status move_latest(const wf_folder *dir, int64_t step, wf_error *error)
{
    char name[WF_CKPT_NAME + 2];
    wf_status status = wf_folder_remove(dir, LATEST PARTIAL, error);

    strcat(wf_ckpt_name(name, step), "\n");
    if (status == WF_OK)
        status = write_file(dir, LATEST PARTIAL, name, strlen(name), error);
    if (status == WF_OK)
        status = wf_folder_rename(dir, LATEST PARTIAL, LATEST, error);
    return status == WF_OK ? wf_folder_sync(dir, error) : status;
}

wf_status wf_ckpt_latest(const wf_folder *dir, int64_t *step, wf_error *error)
{
    enum { MOST = WF_CKPT_NAME };
    bool there;
    char *name;
    size_t bytes;
    wf_file file;
    wf_status status = wf_folder_has(dir, LATEST, &there, error);

    *step = -1;
    if (status != WF_OK || !there)
        return status;
    status = wf_folder_file(dir, LATEST, WF_FILE_READ, &file, error);
    if (status == WF_OK)
        status = wf_file_take(&file, MOST, &name, &bytes, error);
    if (status != WF_OK)
        return status;
    name[bytes] = 0;
    name[strcspn(name, "\n")] = 0;
    *step = wf_ckpt_step(name);
    free(name);
    if (*step < 0)
        return wf_error_set(error, WF_EDATA, "%s/" LATEST " names no checkpoint", dir->path);
    return WF_OK;
}

/* A step that may be deleted, and its order: of steps before the one that was just saved
   smaller ones are older, and older than all are those after it, which this run has left by
   going back. */
typedef struct old {
    int64_t step, age;
} old;

static int by_age(const void *a, const void *b)
{
    const old *x = a, *y = b;

    return (x->age > y->age) - (x->age < y->age);
}

static void remove_step(const wf_folder *dir, int64_t step)
{
    char name[WF_CKPT_NAME], gone[WF_CKPT_NAME];

    /* out of sight first: what is deleted by half is no checkpoint any more */
    if (wf_folder_rename(dir, wf_ckpt_name(name, step),
                         wf_ckpt_partial(gone, step, wf_output_mark()), NULL) == WF_OK)
        wf_folder_remove(dir, gone, NULL);
}

static bool is_of_run(const wf_ckpt_keep *keep, int64_t step)
{
    bool saved = false;

    for (int64_t i = 0; i < keep->count; i++)
        saved = saved || keep->saved[i] == step;
    return saved || step <= keep->began;
}

static void remove_old(const wf_folder *dir, int64_t step, const wf_ckpt_keep *keep)
{
    char **names;
    int64_t n, count = 0;
    old *list;

    if (wf_folder_list(dir, &names, &n, NULL) != WF_OK)
        return;
    tidy(dir, names, n);
    list = calloc((size_t)n + 1, sizeof *list);
    for (int64_t i = 0; i < n && list; i++) {
        int64_t s = wf_ckpt_step(names[i]);

        if (s >= 0 && is_of_run(keep, s))
            list[count++] = (old){s, s > step ? INT64_MAX - s : step - s};
    }
    wf_folder_free_names(names, n);
    if (count > 1)
        qsort(list, (size_t)count, sizeof *list, by_age);
    for (int64_t i = keep->keep; keep->keep > 0 && i < count; i++)
        remove_step(dir, list[i].step);
    free(list);
}

/* Renames the new checkpoint to its final name, after moving one of the same step out of the
   way. Between the two renames the old one is found by its other name. */
static wf_status show(const wf_folder *dir, int64_t step, uint64_t mark, wf_error *error)
{
    char partial[WF_CKPT_NAME], name[WF_CKPT_NAME], replaced[WF_CKPT_NAME];
    bool there;
    wf_status status = wf_folder_has(dir, wf_ckpt_name(name, step), &there, error);

    wf_ckpt_partial(partial, step, mark);
    replaced_name(replaced, step);
    if (status == WF_OK && there)
        status = wf_folder_remove(dir, replaced, error);
    if (status == WF_OK && there)
        status = wf_folder_rename(dir, name, replaced, error);
    if (status != WF_OK)
        return status;
    status = wf_folder_rename(dir, partial, name, error);
    if (status == WF_OK)
        return wf_folder_sync(dir, error);
    if (there)
        wf_folder_rename(dir, replaced, name, NULL);
    return status;
}

wf_status wf_ckpt_publish(const wf_ckpt_target *target, uint64_t mark, const wf_index *index,
                          const wf_ckpt_keep *keep, wf_error *error)
{
    wf_status status = wf_ckpt_check_files(&target->partial, index, error);

    if (status == WF_OK)
        status = write_index(&target->partial, index, error);
    if (status == WF_OK)
        status = show(target->dir, index->step, mark, error);
    if (status == WF_OK)
        status = move_latest(target->dir, index->step, error);
    if (status == WF_OK)
        remove_old(target->dir, index->step, keep);
    return status;
}
