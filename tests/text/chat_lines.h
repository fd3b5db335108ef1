/* tests/text/chat_lines.h - a line of chat data, written by a template. */
#ifndef WF_TESTS_TEXT_CHAT_LINES_H
#define WF_TESTS_TEXT_CHAT_LINES_H

#include "nn/text/chat/chat.h"
#include "tests/harness.h"

static inline wf_chat_template *open_name(const char *name)
{
    wf_error error = {WF_OK, ""};
    wf_chat_template *t;

    CU_ASSERT_EQUAL_FATAL(wf_chat_template_open(&(wf_chat_options){.name = name}, &t, &error),
                          WF_OK);
    return t;
}

static inline wf_status write_row(const wf_chat_template *t, const char *line, size_t bytes,
                                  wf_chat_train train, size_t part, wf_chat_written *written,
                                  wf_error *error)
{
    wf_chat_writer *writer = NULL;
    wf_chat_row *row = NULL;

    if (wf_chat_row_read(t, "rows:7", line, bytes, &row, error) == WF_OK &&
        wf_chat_writer_new(t, &writer, error) == WF_OK)
        wf_chat_write(writer, row, train, part, written, error);
    wf_chat_writer_free(writer);
    wf_chat_row_free(row);
    return error->code;
}

#endif
