/* parallel/flag_names.h - prints errors of the library with the flags of a program: a text that
   names a field of options, ".seq_len", names the flag that sets it, "--seq-len". */
#ifndef WF_PARALLEL_FLAG_NAMES_H
#define WF_PARALLEL_FLAG_NAMES_H

#include "core/status.h"
#include <stddef.h>
#include <stdio.h>

WF_BEGIN_DECLS

/**
 * wf_flag_of - writes the flag that sets a field of options, "--seq-len"
 *
 * @param arg    the program's own
 * @param field  its name, `length` bytes, not ended by 0
 * @param to     [size], the flag
 * Returns:      its length; 0: no flag sets the field
 */
typedef size_t wf_flag_of(const void *arg, const char *field, size_t length, char *to,
                          size_t size);

/**
 * wf_flags_format - copies an error text, with flags instead of the names of fields
 *
 * @param size  of `to`, 1 at least; what is longer is cut
 * Returns:     to
 */
WF_API char *wf_flags_format(const char *text, wf_flag_of *flag_of, const void *arg, char *to,
                             size_t size);

/** wf_flags_report - prints flags instead of the names of fields in wf_par_report_line from now
 * on, in the whole process; flag_of NULL: the names. arg stays alive as long. */
WF_API void wf_flags_report(wf_flag_of *flag_of, const void *arg);

/** wf_flags_reported - returns a text as wf_par_report_line prints it: itself, or `to`, of
 * `size` bytes, with flags in it */
WF_API const char *wf_flags_reported(const char *text, char *to, size_t size);

/** wf_flags_print - prints to a stream as fprintf does, with flags as in wf_flags_reported;
 * texts of more than 4095 bytes are cut */
WF_API void wf_flags_print(FILE *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

WF_END_DECLS

#endif
