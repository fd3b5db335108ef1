/*
 * core/files/output.h - the one way to write a file: under a random name beside its own, and
 * renamed when it is whole and on the disk.
 *
 *     wf_output *output = wf_output_open("plan.json", error);
 *     fputs("{}\n", wf_output_stream(output));
 *     wf_output_publish(output, error);                  or wf_output_discard
 *
 * A reader finds the old file or the new one, whole, whenever the program or the machine ends.
 * The name itself is replaced, never what it leads to: a symbolic link of that name is not
 * written through. The file that is written has a name that cannot be guessed
 * (".NAME.0123456789abcdef.partial") and is always a new one. What killed programs have left
 * under such a name is removed by the next one that writes NAME.
 *
 * A name of a pipe or of a device (/dev/null, a terminal), and /dev/stdout, /dev/stderr and
 * /dev/fd/N, are written to as they are: there is nothing to replace.
 */
#ifndef WF_CORE_FILES_OUTPUT_H
#define WF_CORE_FILES_OUTPUT_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

WF_BEGIN_DECLS

typedef struct wf_output wf_output;
typedef struct wf_output_folder wf_output_folder;

/**
 * wf_output_open - begins a file; the one that has its name stays until wf_output_publish
 *
 * The new file has the permissions of an own file that it replaces, else those that umask
 * leaves of 0666.
 *
 * Owner:   caller; wf_output_publish or wf_output_discard
 * Errors:  WF_EIO (a directory of that name, no folder to write to, another user's file in a
 *          folder like /tmp), WF_EINVAL (no name of a file), WF_ENOMEM; NULL then
 */
WF_API wf_output *wf_output_open(const char *path, wf_error *error);

/**
 * wf_output_stream - returns the stream to write with, which also reads what was written; NULL
 * allowed. Owner: output. Owner: output.
 */
WF_API FILE *wf_output_stream(const wf_output *output);

/** wf_output_path - returns the final name, as it was given; wf_output_replaces - false for a
 * pipe or a device. */
WF_API const char *wf_output_path(const wf_output *output);
WF_API bool wf_output_replaces(const wf_output *output);

/** wf_output_failed - sets "cannot write PATH: reason", by errno. Returns: WF_EIO. */
WF_API wf_status wf_output_failed(const wf_output *output, wf_error *error);

/**
 * wf_output_publish - brings the file to the disk and gives it its name
 *
 * The output is freed in any case. Errors: WF_EIO, also where the stream has failed before; the
 * file that was there is there then as it was.
 */
WF_API wf_status wf_output_publish(wf_output *output, wf_error *error);

/** wf_output_discard - removes what was written; NULL is allowed. */
WF_API void wf_output_discard(wf_output *output);

/** wf_output_write - writes a whole file of these bytes. Errors: as of wf_output_open and
 * wf_output_publish. */
WF_API wf_status wf_output_write(const char *path, const void *bytes, size_t n,
                                 wf_error *error);

/**
 * wf_output_publish_set - gives files of one folder, which belong together, their names
 *
 * The old file of the last one's name goes first, and the new one comes last: without it the
 * others are no set for any reader, so that a program that is killed in between leaves no
 * mixture. Two that publish at the same time do so one after the other (flock on the folder).
 *
 * @param output  [n], of one folder; freed in any case
 * @param stale   [stales] names in that folder of an older set which the new one has not:
 *                removed
 * Errors:        WF_EIO; the set is not there then, unless the old one still is
 */
WF_API wf_status wf_output_publish_set(wf_output **output, int64_t n, const char *const *stale,
                                       int64_t stales, wf_error *error);

/**
 * wf_output_folder_open - opens a folder for several output files
 *
 * It is made where it is missing. What killed programs of this user have left in it is removed.
 *
 * Owner:   caller; wf_output_folder_close (NULL is allowed), after its outputs
 * Errors:  WF_EIO, WF_ENOMEM; NULL then
 */
WF_API wf_output_folder *wf_output_folder_open(const char *path, wf_error *error);
WF_API void wf_output_folder_close(wf_output_folder *folder);

/** wf_output_open_in - begins a file of this name in the folder, as wf_output_open does. */
WF_API wf_output *wf_output_open_in(wf_output_folder *folder, const char *name,
                                    wf_error *error);

/**
 * wf_own_folder_open - opens a folder whose content can be trusted: it is no symbolic link,
 * this user's, and no other user may write to it
 *
 * @param make  make it where it is missing, for this user alone; else a missing one is no error
 * Returns:     a descriptor, for the caller to close; -1: it is missing, or there is an error
 * Errors:      WF_EIO: the rule that is broken, and how to mend it
 */
WF_API int wf_own_folder_open(const char *path, bool make, wf_error *error);

/**
 * wf_output_fingerprint - computes XXH3 of a file's size and content, or of 256 blocks of 16
 * KiB of a larger one, the first and the last among them
 *
 * Collective:  no
 * Errors:      WF_EIO: `path` says of which file
 */
WF_API wf_status wf_output_fingerprint(int descriptor, const char *path, uint64_t *fingerprint,
                                       wf_error *error);

WF_END_DECLS

#endif
