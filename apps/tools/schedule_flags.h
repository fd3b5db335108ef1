/* apps/tools/schedule_flags.h - what schedule is asked for. */
#ifndef WF_APPS_SCHEDULE_FLAGS_H
#define WF_APPS_SCHEDULE_FLAGS_H

#include <weft/weft.h>

typedef struct app_schedule_request {
    const char *command, *source, *svg;
    int pp, virtual, micro, cap;
    wf_pipe_lowering how;                  /* depth -1: auto */
    int forward, inputs, weights, message; /* costs, in hundredths of a rank's unit */
    bool blocks, messages, help, shaped;
    unsigned given; /* the flags that were given, a bit each */
} app_schedule_request;

extern const char app_schedule_help[];

/* Returns the name of a flag that was given and says how a table is lowered; NULL: none was. */
const char *app_schedule_lowering(const app_schedule_request *request);

/* Reads the command line. Errors: WF_EINVAL. */
wf_status app_schedule_parse(int argc, char **argv, app_schedule_request *request,
                             wf_error *error);

#endif
