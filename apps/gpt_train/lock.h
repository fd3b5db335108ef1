/* apps/gpt_train/lock.h - one run at a time saves into a directory. */
#ifndef WF_APPS_LOCK_H
#define WF_APPS_LOCK_H

#include "core/status.h"

/*
 * Lock DIR/lock until *file is closed or the process ends, however it ends. Where the file system
 * has no locks that is told on stderr, and *file is -1.
 * Errors:  WF_EIO: another process has it, which is named, or the file cannot be written
 */
wf_status app_lock_directory(const char *dir, int *file, wf_error *error);

/* A directory that this run has made goes again, with its lock, where nothing was saved into it. */
void app_lock_withdraw(const char *dir);

#endif
