/*
 * tests/parallel/recorded_files.h - file calls that are recorded, and the disk as it may be
 * after a crash in the middle of them: what was not synced is there, is lost, or is there in
 * part; of a directory's changes since its last sync any prefix is there, as on a disk with a
 * log, or any at all.
 */
#ifndef WF_TESTS_PARALLEL_RECORDED_FILES_H
#define WF_TESTS_PARALLEL_RECORDED_FILES_H

#include "core/files/files_internal.h"

/* The system's calls, recorded. */
extern const wf_file_calls recorded_files;

enum { MOST_RECORDED = 8192 };

/* Record from now on what happens in a directory, which is empty; how many calls there were. */
void record_files(const char *dir);
int recorded_calls(void);
void forget_recorded(void);

/* The directory at `to` becomes what is left of the first `until` calls. mode 0: what was
   synced; 1: all; 2: by lot, of names the first ones; 3: of names, too, each by lot. False
   where it cannot be written. */
bool crash_after(int until, int mode, uint64_t random, const char *to);

#endif
