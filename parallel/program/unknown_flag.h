/* parallel/program/unknown_flag.h - errors of flags that a program does not have, with those
   that were meant: a name that is mistyped, or that another tool has for it. */
#ifndef WF_PARALLEL_PROGRAM_UNKNOWN_FLAG_H
#define WF_PARALLEL_PROGRAM_UNKNOWN_FLAG_H

#include "core/status.h"
#include <getopt.h>

WF_BEGIN_DECLS

/**
 * wf_flag_unknown - sets the error of an argument that is no flag of a program
 *
 * @param argument  as it was given, "--learning-rate=1" or "-lr"
 * @param names     the program's flags without their dashes; NULL ends them. In them, and in
 *                  what was given, an underscore is a dash
 * Returns:         WF_EINVAL
 */
WF_API wf_status wf_flag_unknown(const char *program, const char *argument,
                                 const char *const *names, wf_error *error);

/**
 * wf_flag_unknown_key - sets the same error of a key of a config file, which `where` names:
 * "run.json: \"tq\""
 */
WF_API wf_status wf_flag_unknown_key(const char *program, const char *where, const char *key,
                                     const char *const *names, wf_error *error);

/**
 * wf_flag_refused - sets the error of the argument at which getopt_long ended: an unknown flag,
 * one without its value, one with a value that it does not take
 *
 * Returns:         WF_EINVAL
 */
WF_API wf_status wf_flag_refused(const char *program, int argc, char **argv,
                                 const struct option *flags, wf_error *error);

WF_END_DECLS

#endif
