/*
 * core/files/scratch.h - memory in files of a folder, for what need not be in the machine's
 * memory at all times, and ends with the program.
 *
 * A block is a file without a name that is mapped: the system writes its pages to the disk
 * where memory is short, and reads them when they are used. The disk has all of its bytes from
 * the start, so that a full one is an error of the request and not of a later access. However a
 * program ends, it leaves nothing in the folder; but that, on a file system where each file has
 * a name at first, one that is killed in that moment leaves an empty file, which goes when the
 * folder is next opened.
 */
#ifndef WF_CORE_FILES_SCRATCH_H
#define WF_CORE_FILES_SCRATCH_H

#include "core/memory/memory.h"

WF_BEGIN_DECLS

typedef struct wf_scratch wf_scratch;

/**
 * wf_scratch_open - opens a folder for blocks, which is this user's alone (wf_own_folder_open),
 * and makes it where it is missing
 *
 * Owner:   caller, wf_scratch_close (NULL is allowed), after its blocks were released
 * Errors:  WF_EIO, WF_ENOMEM; NULL then
 */
WF_API wf_scratch *wf_scratch_open(const char *path, wf_error *error);
WF_API void wf_scratch_close(wf_scratch *scratch);

/** wf_scratch_allocator - returns an allocator of blocks there. It gives NULL where the disk is
 * full. */
WF_API wf_allocator wf_scratch_allocator(wf_scratch *scratch);

WF_END_DECLS

#endif
