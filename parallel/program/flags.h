/* parallel/program/flags.h - flags of a program's command line, as rows with the variables of
   their values. */
#ifndef WF_PARALLEL_PROGRAM_FLAGS_H
#define WF_PARALLEL_PROGRAM_FLAGS_H

#include "core/job.h"
#include "parallel/flag_names.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_flag_kind - the C type of a value: const char *, int64_t, double, bool. A REAL has to be
 * one that a float holds. */
typedef enum wf_flag_kind {
    WF_FLAG_TEXT,
    WF_FLAG_COUNT,
    WF_FLAG_REAL,
    WF_FLAG_SWITCH
} wf_flag_kind;

typedef struct wf_flag {
    const char *name; /* without dashes; NULL ends a list */
    wf_flag_kind kind;
    void *value;
    double least, most; /* bounds of a COUNT or a REAL */
    /* called with a value that is taken, which may be given several times; NULL: the last one
       counts */
    wf_status (*taken)(void *arg, wf_error *error);
    void *arg;
    /* "FILE rows of JSON, a step each": its value and what it does; NULL: not listed */
    const char *help;
} wf_flag;

enum { WF_FLAGS = 128 };

/**
 * wf_flags_read - reads a command line
 *
 * @param flags  at most WF_FLAGS of them, up to one without a name
 * @param first  the first argument that is no flag; those come after the others, argv is
 *               reordered
 * Errors:       WF_EINVAL with flag, value and rule
 */
WF_API wf_status wf_flags_read(const char *program, int argc, char **argv, const wf_flag *flags,
                               int *first, wf_error *error);

/**
 * wf_flags_config - reads values of flags from a JSON object of their names, as {"steps": 100,
 * "log-jsonl": "run.jsonl"}; _ in a key is - in a name
 *
 * Texts live as long as the program. Errors: WF_EIO, WF_EDATA (no object, a key twice),
 * WF_EINVAL with key, value and rule
 */
WF_API wf_status wf_flags_config(const char *program, const char *path, const wf_flag *flags,
                                 wf_error *error);

/**
 * wf_flags_steps - reads a range of steps, "5-8", or "5" for that one
 *
 * @param where  names the flag in messages: "--trace-steps"
 * Errors:       WF_EINVAL with flag, value and rule; *first and *last stay as they are
 */
WF_API wf_status wf_flags_steps(const char *where, const char *text, int64_t *first,
                                int64_t *last, wf_error *error);

/** wf_flags_help - prints a line or more for each flag that has a help text, with its value */
WF_API void wf_flags_help(FILE *out, const wf_flag *flags);

/** wf_flags_json - returns all values as a JSON object. Owner: the caller, free; NULL: no
 * memory */
WF_API char *wf_flags_json(const wf_flag *flags);

/** wf_flags_job - adds the values of all flags to a job, which the processes of a run compare,
 * but for those of a list of names that processes may have of their own (NULL ends it) */
WF_API void wf_flags_job(const wf_flag *flags, const char *const *own, wf_job *job);

/** wf_flags_find - a wf_flag_of a list of flags, which is `arg` */
WF_API size_t wf_flags_find(const void *flags, const char *field, size_t length, char *to,
                            size_t size);

WF_END_DECLS

#endif
