/* apps/tools/export_files.h - files of a model's folder: which they are, and how they go from
   one to another. */
#ifndef WF_APPS_TOOLS_EXPORT_FILES_H
#define WF_APPS_TOOLS_EXPORT_FILES_H

#include <dirent.h>
#include <stdbool.h>

#define APP_EXPORT_OLD ".replaced"

/* Names in a folder, those of configs last. */
typedef struct app_export_names {
    struct dirent **entry;
    int count; /* -1: the folder cannot be read */
} app_export_names;

/* Names to list: all but . and ..; what is a model's; that, or what is left of one that was
   being replaced. */
int app_export_is_any(const struct dirent *entry);
int app_export_is_of_model(const struct dirent *entry);
int app_export_is_to_be_kept(const struct dirent *entry);

/* The names of a folder that are wanted. Owner: caller, app_export_free_names. */
app_export_names app_export_list(int folder, int (*wanted)(const struct dirent *));
void app_export_free_names(app_export_names *names);

/* A folder in another; -1: errno says why. Close it, or nothing. */
int app_export_open(int in, const char *name, int flags);
void app_export_shut(int folder);

/* Removes a folder with all that is in it, or a link of that name; what is not there is
   fine. */
bool app_export_remove(int in, const char *name);

/* Bring files that were written from `part` into their folder, and its old ones aside into
   .replaced. */
bool app_export_replace(int folder, int part, const app_export_names *written,
                        const app_export_names *old);

#endif
