/* apps/meet.h - processes of a launcher that meet though they launch no ranks. */
#ifndef WF_APPS_MEET_H
#define WF_APPS_MEET_H

#include <weft/weft.h>

/*
 * This process launches no ranks, since it has failed before or was asked for something else: the others, which may not
 * have been, would wait for it. Where all have the same job, or the same error, each goes on; else all end with one
 * error. Nothing happens where the process is alone, or where processes cannot meet.
 *
 * @param job    what it was asked for; NULL, or not looked at, where it has failed
 * @param error  the failure, or WF_OK; becomes that of all
 * Returns:      whether another process reports an error
 */
bool app_meet(const wf_job *job, wf_error *error);

#endif
