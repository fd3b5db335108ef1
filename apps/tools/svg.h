/* apps/tools/svg.h - what the pictures of the programs have in common: dark words on white, and
   a file that is whole or told. */
#ifndef WF_APPS_TOOLS_SVG_H
#define WF_APPS_TOOLS_SVG_H

#include "core/status.h"
#include <stdio.h>

/* The first lines of a picture, white all over. Classes of words are head, rank, line and
   small. */
void app_svg_begin(FILE *out, double width, double height);

/* Words from (x, y) on; more: NULL, or attributes of theirs. */
void app_svg_text(FILE *out, double x, double y, const char *class, const char *more,
                  const char *words);

/* A function that draws a picture: all of the file. */
typedef void app_svg_draw(FILE *out, const void *arg);

/* Errors: WF_EIO with path and reason. */
wf_status app_svg_write(const char *path, app_svg_draw *draw, const void *arg, wf_error *error);

#endif
