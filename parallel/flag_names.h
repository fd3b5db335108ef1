/* parallel/flag_names.h - errors of the library as a program with flags prints them. */
#ifndef WF_PARALLEL_FLAG_NAMES_H
#define WF_PARALLEL_FLAG_NAMES_H

#include "core/status.h"
#include <stddef.h>

WF_BEGIN_DECLS

/** wf_flag_of - writes the flag of a field of options to `to`, "--seq-len"; returns its length, 0: the field has none */
typedef size_t wf_flag_of(const void *arg, const char *field, size_t length, char *to,
                          size_t size);

/**
 * wf_flags_format - copies an error of the library, with the fields that it names by their designators, ".seq_len", as the
 * flags that set them
 *
 * @param size  of `to`, 1 at least; what is longer is cut
 * Returns:     to
 */
WF_API char *wf_flags_format(const char *text, wf_flag_of *flag_of, const void *arg, char *to,
                             size_t size);

/** wf_flags_report - from now on wf_par_report_line prints flags for the fields of options that its texts name; NULL: fields */
WF_API void wf_flags_report(wf_flag_of *flag_of, const void *arg);

/** wf_flags_reported - a text as that prints it: itself, or `to` with flags in it */
WF_API const char *wf_flags_reported(const char *text, char *to, size_t size);

WF_END_DECLS

#endif
