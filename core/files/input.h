/* core/files/input.h - files that are read. */
#ifndef WF_CORE_FILES_INPUT_H
#define WF_CORE_FILES_INPUT_H

#include "core/export.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_input_open - opens a file to read as fopen does, but never waits at a pipe for a writer:
 * without one there is nothing to read. Owner: the caller, fclose. Errors: NULL, in errno */
WF_API FILE *wf_input_open(const char *path);

/** wf_input_pointer - returns, from the first bytes of a file, a text that says that it is the
 * pointer which Git LFS leaves instead of a file, and how to get the file; NULL: it is none */
WF_API const char *wf_input_pointer(const void *begin, size_t bytes);

/** wf_input_pointer_at - returns the same of the file at a path; NULL also where it cannot be
 * read. Keeps errno. */
WF_API const char *wf_input_pointer_at(const char *path);

/** wf_input_why_not - returns the reason in errno for a path that cannot be opened, as strerror
 * does; where a file stands instead of a folder (ENOTDIR) also which, and whether it is a
 * pointer of Git LFS
 *
 * @param text  [size], for the reason
 */
WF_API const char *wf_input_why_not(const char *path, char *text, size_t size);

WF_END_DECLS

#endif
