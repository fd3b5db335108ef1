/* tests/apps/chat_lines.h - a line of chat data, written by a template. */
#ifndef WF_TESTS_APPS_CHAT_LINES_H
#define WF_TESTS_APPS_CHAT_LINES_H

#include "apps/chat/chat.h"
#include "tests/harness.h"

static inline app_chat_template *open_name(const char *name)
{
    wf_error error = {WF_OK, ""};
    app_chat_template *t;

    CU_ASSERT_EQUAL_FATAL(app_chat_template_open(&(app_chat_options){.name = name}, &t, &error),
                          WF_OK);
    return t;
}

static inline wf_status write_row(const app_chat_template *t, const char *line, size_t bytes,
                                  app_chat_train train, size_t part, app_chat_written *written,
                                  wf_error *error)
{
    app_chat_writer *writer = NULL;
    app_chat_row *row = NULL;

    if (app_chat_row_read(t, "rows:7", line, bytes, &row, error) == WF_OK &&
        app_chat_writer_new(t, &writer, error) == WF_OK)
        app_chat_write(writer, row, train, part, written, error);
    app_chat_writer_free(writer);
    app_chat_row_free(row);
    return error->code;
}

#endif
