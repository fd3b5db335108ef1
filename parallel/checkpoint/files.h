/*
 * parallel/checkpoint/files.h - the file calls of checkpoints. Every byte goes through one small
 * table, so that a test can put its own calls in their place: the k-th one fails, or all are
 * recorded. Above the table, whole reads and writes, and errors that name path and call.
 * Not installed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_FILES_H
#define WF_PARALLEL_CHECKPOINT_FILES_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The table. All give -1 and set errno where the system's calls do; self is its own. */
typedef struct wf_file_calls {
    int (*open)(void *self, const char *path, int flags);
    int64_t (*read)(void *self, int fd, void *data, size_t bytes, int64_t at);
    int64_t (*write)(void *self, int fd, const void *data, size_t bytes, int64_t at);
    int (*resize)(void *self, int fd, int64_t bytes);
    int (*sync)(void *self, int fd);
    int (*close)(void *self, int fd);
    int (*rename)(void *self, const char *from, const char *to);
    int (*make_directory)(void *self, const char *path);
    int (*remove)(void *self, const char *path); /* a file, or an empty directory */
    void *self;
} wf_file_calls;

/* The system's own. */
extern const wf_file_calls wf_system_files;

typedef enum wf_file_mode {
    WF_FILE_READ,
    WF_FILE_WRITE,    /* one that exists, or a new one, as it is */
    WF_FILE_CREATE,   /* a new one; that it exists already is an error */
    WF_FILE_DIRECTORY /* to be synced */
} wf_file_mode;

typedef struct wf_file {
    const wf_file_calls *calls;
    const char *path; /* the caller's, for errors: alive as long as the file is open */
    int fd;
    int64_t bytes; /* WF_FILE_READ: its size when it was opened */
    int64_t need; /* bytes of all that is written with it, which a full disk is to be told of */
} wf_file;

/* WF_EIO with path and reason; in WF_FILE_READ also where it is no regular file. */
wf_status wf_file_open(wf_file *file, const wf_file_calls *calls, const char *path,
                       wf_file_mode mode, wf_error *error);

/* All of it or an error: WF_EDATA where the file ends before, WF_EIO where a call fails. */
wf_status wf_file_read(const wf_file *file, void *data, size_t bytes, int64_t at,
                       wf_error *error);
wf_status wf_file_write(const wf_file *file, const void *data, size_t bytes, int64_t at,
                        wf_error *error);

/* Give a new file its size, so that ranks may write to any place of it. */
wf_status wf_file_resize(wf_file *file, int64_t bytes, wf_error *error);

/* To the disk. A sync that failed is never tried again: what it lost is lost. */
wf_status wf_file_sync(const wf_file *file, wf_error *error);

/* Closes in any case; the file is not to be used again. */
wf_status wf_file_close(wf_file *file, wf_error *error);

wf_status wf_files_rename(const wf_file_calls *calls, const char *from, const char *to,
                          wf_error *error);
wf_status wf_files_make_directory(const wf_file_calls *calls, const char *path,
                                  wf_error *error); /* one that exists is fine */
wf_status wf_files_sync_directory(const wf_file_calls *calls, const char *path,
                                  wf_error *error);

/* A directory with the files in it (no directories below); one that is not there is fine. */
wf_status wf_files_remove_tree(const wf_file_calls *calls, const char *path, wf_error *error);

/* A whole file of at most `most` bytes; WF_EDATA where it is larger. Owner: caller, free. */
wf_status wf_files_read(const wf_file_calls *calls, const char *path, int64_t most, char **data,
                        size_t *bytes, wf_error *error);

/* Names in a directory, sorted, without "." and ".."; free each and the list. Read only, so it
   asks the system itself. -1 where it can't be read. */
int64_t wf_files_list(const char *path, char ***names);

#endif
