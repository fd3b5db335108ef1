/*
 * apps/tools/export_folder.h - the folder that gpt_export writes: files are written to a new
 * folder beside it, which takes its name when all of them are whole. What else lies in the
 * folder stays.
 *
 *     .TO.0123456789abcdef.partial   the new model while it is written; the next export there
 *                                    removes what a killed one left
 *
 * The two folders are exchanged (renameat2, RENAME_EXCHANGE): a reader finds the old model or
 * the new one, and a killed export leaves one of them. Where a folder cannot be exchanged,
 * since the file system has no such call, TO is a mount or the current directory, or the folder
 * above it cannot be written to, the new model is written in TO, and files are renamed one at a
 * time, config.json last: a killed export then may leave no model, and the old one in
 * TO/.replaced.
 */
#ifndef WF_APPS_TOOLS_EXPORT_FOLDER_H
#define WF_APPS_TOOLS_EXPORT_FOLDER_H

#include <weft/weft.h>

enum { APP_EXPORT_PATH = 4096 };

/* WF_EINVAL: there is a model, or a part of one, and it may not be replaced; or the path is too
   long or a file's. */
wf_status app_export_folder_check(const char *path, bool overwrite, wf_error *error);

typedef struct app_export_folder {
    const char *path;
    char part[APP_EXPORT_PATH]; /* the folder to write to */
    char name[256],
        real[256]; /* its name, "" when it has gone, and TO's, where links have been followed */
    bool beside;   /* it lies beside TO, not in it */
    bool made;     /* TO was missing */
    int fd, above, part_fd;
} app_export_folder;

/* Make the folder, where it is missing, and an empty one to write to. WF_EIO;
   app_export_folder_close in any case. */
wf_status app_export_folder_begin(app_export_folder *folder, const char *path, wf_error *error);

/* Publishes the written files as the folder's model. WF_EIO: the old one is unchanged, or the
   text says what is left of it. */
wf_status app_export_folder_publish(app_export_folder *folder, wf_error *error);

/* Removes files that have not been published. */
void app_export_folder_close(app_export_folder *folder);

#endif
