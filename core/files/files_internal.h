/*
 * core/files/files_internal.h - the file calls of checkpoints. Every byte goes through one
 * small table, so that a test can put its own calls there: the k-th one fails, or all are
 * recorded. Above the table, whole reads and writes, and errors that name path and call. Not
 * installed.
 */
#ifndef WF_CORE_FILES_FILES_INTERNAL_H
#define WF_CORE_FILES_FILES_INTERNAL_H

#include "core/status.h"
#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum { WF_FILES_PATH = 4096, WF_FILES_NAME = 256 };

/*
 * The table. All give -1 and set errno where the system's calls do; self is its own. `in` is
 * the descriptor of an open directory that a name lies in, or AT_FDCWD with a path.
 */
typedef struct wf_file_calls {
    int (*open)(void *self, int in, const char *name, int flags);
    int64_t (*read)(void *self, int fd, void *data, size_t bytes, int64_t at);
    int64_t (*write)(void *self, int fd, const void *data, size_t bytes, int64_t at);
    int (*resize)(void *self, int fd, int64_t bytes);
    int (*sync)(void *self, int fd);
    int (*close)(void *self, int fd);
    int (*rename)(void *self, int in, const char *from, const char *to);
    int (*make_directory)(void *self, int in, const char *name);
    /* A file or a symbolic link itself, or an empty directory. */
    int (*remove)(void *self, int in, const char *name, bool directory);
    /* Gives the next name in an open directory: 1, or 0 after the last one. */
    int (*next)(void *self, DIR *directory, char name[WF_FILES_NAME]);
    void *self;
} wf_file_calls;

/* The system's own. */
extern const wf_file_calls wf_system_files;

/* Modes of opening for writing; a symbolic link of the file's name is never followed. */
typedef enum wf_file_mode {
    WF_FILE_READ,
    /* this user's alone, and not reached by a link: what others could have put there is
       refused */
    WF_FILE_READ_OWN,
    WF_FILE_WRITE, /* one that exists, or a new one, as it is */
    WF_FILE_CREATE /* a new one; that it exists already is an error */
} wf_file_mode;

typedef struct wf_file {
    const wf_file_calls *calls;
    char path[WF_FILES_PATH]; /* for errors */
    int fd;
    int64_t bytes; /* size of one that is read, when it was opened */
    /* bytes of all that is written with it, which the error of a full disk names */
    int64_t need;
} wf_file;

/* Opens a file. WF_EIO with path and reason; in WF_FILE_READ also where it is no regular
   file. */
wf_status wf_file_open(wf_file *file, const wf_file_calls *calls, const char *path,
                       wf_file_mode mode, wf_error *error);

/* Reads all bytes or fails: WF_EDATA where the file ends before, WF_EIO where a call fails. */
wf_status wf_file_read(const wf_file *file, void *data, size_t bytes, int64_t at,
                       wf_error *error);
wf_status wf_file_write(const wf_file *file, const void *data, size_t bytes, int64_t at,
                        wf_error *error);

/* Gives a new file its size, so that ranks may write at any offset of it. */
wf_status wf_file_resize(wf_file *file, int64_t bytes, wf_error *error);

/* Brings a file to the disk. A sync that failed is never repeated: what it lost is lost. */
wf_status wf_file_sync(const wf_file *file, wf_error *error);

/* Closes in any case; the file is not to be used any more. */
wf_status wf_file_close(wf_file *file, wf_error *error);

/* Make a directory at a path; one that exists is fine. */
wf_status wf_files_make_directory(const wf_file_calls *calls, const char *path,
                                  wf_error *error);

/* Reads a whole file of at most `most` bytes; WF_EDATA where it is larger. Owner: caller,
   free. */
wf_status wf_files_read(const wf_file_calls *calls, const char *path, int64_t most, char **data,
                        size_t *bytes, wf_error *error);

/* Reads a whole file that is open, and closes it in any case. */
wf_status wf_file_take(wf_file *file, int64_t most, char **data, size_t *bytes,
                       wf_error *error);

/* Checks that an open file is this user's, writable by no other, and has one name. WF_EIO: the
   rule that it breaks. */
wf_status wf_file_check_own(int fd, const char *path, wf_error *error);

/* Open what lies in a directory that is open, whose path is for errors: see folder.h. */
wf_status wf_file_open_in(wf_file *file, const wf_file_calls *calls, int in, const char *folder,
                          const char *name, wf_file_mode mode, wf_error *error);

#endif
