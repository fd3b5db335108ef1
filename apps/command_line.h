/*
 * apps/command_line.h - flags of programs that have few of them, as rows with the places of their values. gpt_train's
 * are more: apps/options.
 */
#ifndef WF_APPS_COMMAND_LINE_H
#define WF_APPS_COMMAND_LINE_H

#include "core/job.h"

/* What a value is: const char *, int64_t, double, bool. A REAL has to be one that a float holds. */
typedef enum app_flag_kind {
    APP_FLAG_TEXT,
    APP_FLAG_COUNT,
    APP_FLAG_REAL,
    APP_FLAG_SWITCH
} app_flag_kind;

typedef struct app_flag {
    const char *name;
    app_flag_kind kind;
    void *value;
    double least, most;
    /* called with a value that is taken, which may be given several times; NULL: the last one counts */
    wf_status (*taken)(void *arg, wf_error *error);
    void *arg;
} app_flag;

enum { APP_FLAGS = 40 };

/*
 * Read the command line, at most APP_FLAGS kinds of flags, up to one without a name. The arguments that are no flags
 * come behind the others; *first: the first of them. Errors: WF_EINVAL with flag, value and rule.
 */
wf_status app_flags_read(const char *program, int argc, char **argv, const app_flag *flags,
                         int *first, wf_error *error);

/* Adds the values of all flags to a job, which the processes of a run compare, but for those of a list of names that
   processes may have of their own (NULL ends it). */
void app_flags_job(const app_flag *flags, const char *const *own, wf_job *job);

#endif
