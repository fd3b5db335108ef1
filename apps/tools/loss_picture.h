/* apps/tools/loss_picture.h - losses of runs over their steps, as SVG. */
#ifndef WF_APPS_TOOLS_LOSS_PICTURE_H
#define WF_APPS_TOOLS_LOSS_PICTURE_H

#include "apps/tools/run_rows.h"
#include "core/status.h"

enum { APP_LOSS_PICTURE_RUNS = 8 }; /* number of colours that can be distinguished */

typedef struct app_loss_picture {
    const app_run_rows *run; /* [runs] */
    const char *const *name; /* [runs] */
    int runs;
    json_int_t differs; /* the step to mark, in which they differ first; 0: none */
} app_loss_picture;

/* A line a run, of its training loss, and dots on a line for its validation loss. Errors:
   WF_EINVAL (no step has a loss), WF_EIO. */
wf_status app_loss_picture_svg(const app_loss_picture *picture, const char *path,
                               wf_error *error);

#endif
