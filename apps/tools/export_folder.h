/*
 * apps/tools/export_folder.h - the folder that gpt_export writes: files come to be in TO/.partial and take the place
 * of a model's that is there when all of them are whole. What else lies in the folder stays.
 *
 *     TO/.partial     the new model while it is written; whoever exports next takes away what a killed one left
 *     TO/.replaced    the old one, for the moment in which the new one comes: a killed export leaves it there
 */
#ifndef WF_APPS_TOOLS_EXPORT_FOLDER_H
#define WF_APPS_TOOLS_EXPORT_FOLDER_H

#include <weft/weft.h>

enum { APP_EXPORT_PATH = 4096 };

/* WF_EINVAL: there is a model, or a part of one, and it may not be replaced; or the path is too long or a file's. */
wf_status app_export_folder_check(const char *path, bool overwrite, wf_error *error);

/* The name of the folder to write to. */
const char *app_export_folder_part(const char *path, char part[APP_EXPORT_PATH]);

/*
 * Make the folder, where it is missing, and an empty one in it to write to.
 *
 * @param made  whether it was missing, for app_export_folder_abandon
 * Errors:  WF_EIO
 */
wf_status app_export_folder_begin(const char *path, bool *made, wf_error *error);

/* What was written becomes the folder's model. WF_EIO: the old one is there as it was. */
wf_status app_export_folder_publish(const char *path, wf_error *error);

/* Take away what was written so far. */
void app_export_folder_abandon(const char *path, bool made);

#endif
