/*
 * core/files/checksum_internal.h - XXH3 (64 bits) of bytes, and its text. Not installed.
 *
 * A tensor's checksum is that of its bytes in the file. A file's is that of its header, in
 * which those of its tensors stand. A checkpoint's is the sum over its files of
 * wf_checksum_file, which has no order: ranks add theirs up, and a file that is missing,
 * changed or swapped with another changes the sum.
 */
#ifndef WF_CORE_FILES_CHECKSUM_INTERNAL_H
#define WF_CORE_FILES_CHECKSUM_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WF_CHECKSUM_TEXT = 17 }; /* 16 lower-case hexadecimal digits and an end */

uint64_t wf_checksum(const void *bytes, size_t n);

/* The same of bytes that come in pieces. NULL where memory is short; free with end, always. */
typedef struct wf_checksum_stream wf_checksum_stream;
wf_checksum_stream *wf_checksum_begin(void);
void wf_checksum_add(wf_checksum_stream *stream, const void *bytes, size_t n);
uint64_t wf_checksum_end(wf_checksum_stream *stream);

/* Returns the term of a file in its checkpoint's checksum: of its number, its size and its
   header's checksum. */
uint64_t wf_checksum_file(int64_t number, int64_t file_bytes, uint64_t header_checksum);

/* To text and back; false where it is no such text. */
char *wf_checksum_print(uint64_t checksum, char text[WF_CHECKSUM_TEXT]);
bool wf_checksum_parse(const char *text, uint64_t *checksum);

#endif
