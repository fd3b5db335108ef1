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
} app_schedule_request;

extern const char app_schedule_help[];

/* Reads the command line. Errors: WF_EINVAL. */
wf_status app_schedule_parse(int argc, char **argv, app_schedule_request *request,
                             wf_error *error);

#endif
