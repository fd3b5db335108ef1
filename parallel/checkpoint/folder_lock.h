/* parallel/checkpoint/folder_lock.h - one run at a time saves into a folder. */
#ifndef WF_PARALLEL_CHECKPOINT_FOLDER_LOCK_H
#define WF_PARALLEL_CHECKPOINT_FOLDER_LOCK_H

#include "core/status.h"

WF_BEGIN_DECLS

/**
 * wf_folder_lock - locks DIR/lock until *file is closed or the process ends, however it ends
 *
 * Where the file system has no locks that is reported on stderr, and *file is -1.
 *
 * @param program  names the reporter
 * Errors:  WF_EIO: another process has it, which is named, or the file cannot be written
 */
WF_API wf_status wf_folder_lock(const char *program, const char *dir, int *file,
                                wf_error *error);

/** wf_folder_withdraw - removes a folder that this run has made, with its lock, where nothing
 * was saved into it */
WF_API void wf_folder_withdraw(const char *dir);

WF_END_DECLS

#endif
