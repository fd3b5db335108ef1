/*
 * apps/program.h - what all programs do alike: they begin with three open descriptors, say
 * which version they are, and do not end well where what they printed could not be written.
 */
#ifndef WF_APPS_PROGRAM_H
#define WF_APPS_PROGRAM_H

#include "core/job.h"
#include <stdbool.h>
#include <stdio.h>

/* Begins a program that may have been started without stdin, stdout or stderr: files that it
   opens must not get their numbers, or what is printed would go into them. To read or write
   those three stays an error. And a file that may not become larger (ulimit -f) is an error,
   EFBIG, to report, and no end by a signal that leaves half a file. */
void app_program_begin(void);

/* Prints the version and returns true where the first argument is --version. */
bool app_program_version_asked(const char *name, int argc, char **argv);

/* The version, the commit where it is known, the compiler, and which plugins can be loaded. */
void app_program_version(FILE *out, const char *name);

/* Entries of a job: version, commit and build of the program. */
void app_program_job(wf_job *job);

/* The exit status of a program that has nothing to complain of: `status`, or 3 with a line on
   stderr where stdout has failed. */
int app_program_end(const char *name, int status);

/* Prints "NAME: TEXT" to stderr, with the fields of options that the library names in it,
   ".seq_len", as the flags that set them, "--seq-len". */
void app_program_error(const char *name, const wf_error *error);

/* From now on what the library prints has them, too; app_program_begin calls it. */
void app_program_flags(void);

/* The same of a text; returns to, of `size` bytes. */
char *app_program_format(const char *text, char *to, size_t size);

#endif
