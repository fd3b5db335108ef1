/* apps/tools/schedule_picture.h - a pipeline schedule in time, as text and as a picture. */
#ifndef WF_APPS_SCHEDULE_PICTURE_H
#define WF_APPS_SCHEDULE_PICTURE_H

#include <stdio.h>
#include <weft/weft.h>

typedef struct app_schedule_picture {
    const char *name;
    const wf_pipe_table *table;
    const wf_pipe_timing *timing;
    const wf_pipe_costs *costs;
    double unit; /* ticks of the unit in which times are printed */
} app_schedule_picture;

/* A line for each rank in time, then busy and idle time and peaks, and both bubbles. `colour`:
   kinds are coloured as terminals do it. */
void app_schedule_picture_text(const app_schedule_picture *picture, bool colour, FILE *out);

/* The same as SVG. Errors: WF_EIO (file and reason). */
wf_status app_schedule_picture_svg(const app_schedule_picture *picture, const char *path,
                                   wf_error *error);

/* The line of both bubbles. */
void app_schedule_picture_bubbles(const app_schedule_picture *picture, char *text, size_t size);

#endif
