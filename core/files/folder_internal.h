/*
 * core/files/folder_internal.h - directories that are open. What lies in one is reached through
 * its descriptor and by its own name, so no symbolic link is followed on the way, no matter
 * when one is put there. Not installed.
 */
#ifndef WF_CORE_FILES_FOLDER_INTERNAL_H
#define WF_CORE_FILES_FOLDER_INTERNAL_H

#include "core/files/files_internal.h"

typedef struct wf_folder {
    const wf_file_calls *calls;
    int fd;
    bool missing; /* it could not be opened because there is none */
    int64_t need; /* bytes of all that is written to it, which the error of a full disk names */
    char path[WF_FILES_PATH];
} wf_folder;

/* The directory at a path of the user's, whose links are followed. WF_EIO. Owner: caller,
   wf_folder_close, which may also get one that failed. */
wf_status wf_folder_open(wf_folder *folder, const wf_file_calls *calls, const char *path,
                         wf_error *error);

/* The directory of this name in another; a link of that name is an error. */
wf_status wf_folder_enter(wf_folder *folder, const wf_folder *in, const char *name,
                          wf_error *error);
void wf_folder_close(wf_folder *folder);

/* Opens a file in it. One that is read may be reached by a link, one that is written may
   not. */
wf_status wf_folder_file(const wf_folder *in, const char *name, wf_file_mode mode,
                         wf_file *file, wf_error *error);

/* Finds out whether a name exists, be it a link that leads nowhere. */
wf_status wf_folder_has(const wf_folder *in, const char *name, bool *has, wf_error *error);

/* The names in it, sorted, without "." and "..". Owner: caller, wf_folder_free_names. */
wf_status wf_folder_list(const wf_folder *in, char ***names, int64_t *count, wf_error *error);
void wf_folder_free_names(char **names, int64_t count);

/* A new directory in it; that there is something of that name is an error. */
wf_status wf_folder_make(const wf_folder *in, const char *name, wf_error *error);
wf_status wf_folder_rename(const wf_folder *in, const char *from, const char *to,
                           wf_error *error);
wf_status wf_folder_sync(const wf_folder *in, wf_error *error);

/* A file, a link (not what it leads to), or a directory with the files in it, in which a
   directory is an error. What is not there is fine. */
wf_status wf_folder_remove(const wf_folder *in, const char *name, wf_error *error);

#endif
