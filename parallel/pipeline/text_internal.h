/* parallel/pipeline/text_internal.h - a text that is read, and where. */
#ifndef WF_PARALLEL_PIPELINE_TEXT_INTERNAL_H
#define WF_PARALLEL_PIPELINE_TEXT_INTERNAL_H

#include "parallel/pipeline/table_internal.h"
#include "parallel/pipeline/text.h"

typedef struct wf_pipe_text {
    const char *name, *at, *line; /* at: the next character; line: where its line begins */
    int number;                   /* its line, from 1 */
    wf_error *error;
} wf_pipe_text;

/* Refuses the text at a position of the current line: "file:3:7: ...". */
wf_status wf_pipe_text_refuse(const wf_pipe_text *text, const char *where, const char *format,
                              ...) WF_PRINTF(3, 4);

/* Reads digits; false: there are none, or more than nine. */
bool wf_pipe_text_number(const char **at, int *value);

/* The rows of a CSV. */
wf_status wf_pipe_csv_parse(wf_pipe_text *text, wf_pipe_table **table);

#endif
