/*
 * parallel/report/svg.h - what Weft's pictures have in common: dark words on white, in a file
 * that is written whole or not at all.
 */
#ifndef WF_PARALLEL_REPORT_SVG_H
#define WF_PARALLEL_REPORT_SVG_H

#include "core/status.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_svg_begin - writes the first lines of a picture, white all over. Classes of words are
 * head, rank, line and small. */
WF_API void wf_svg_begin(FILE *out, double width, double height);

/** wf_svg_text - writes words from (x, y) on; more: NULL, or attributes of theirs. */
WF_API void wf_svg_text(FILE *out, double x, double y, const char *style, const char *more,
                        const char *words);

/* Draws a picture: all of the file. */
typedef void wf_svg_draw(FILE *out, const void *arg);

/** wf_svg_write - writes a picture to a file, which it replaces. Errors: WF_EIO with path and
 * reason. */
WF_API wf_status wf_svg_write(const char *path, wf_svg_draw *draw, const void *arg,
                              wf_error *error);

WF_END_DECLS

#endif
