/* tests/apps/options_line.h - options of a command line that is given as one text. */
#ifndef WF_TESTS_APPS_OPTIONS_LINE_H
#define WF_TESTS_APPS_OPTIONS_LINE_H

#include "apps/options/options_table.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 32 };

/* Parses words of a line that are divided by single spaces; "_" is an empty word. */
static inline wf_status parse(const char *line, app_options *options, wf_error *error)
{
    char copy[1024], *argv[MOST_ARGUMENTS], *rest = copy, *word;
    int argc = 1;

    *error = (wf_error){0};
    snprintf(copy, sizeof copy, "%s", line);
    argv[0] = "gpt_train";
    while (argc < MOST_ARGUMENTS && (word = strsep(&rest, " ")))
        argv[argc++] = strcmp(word, "_") ? word : "";
    return app_options_parse(*line ? argc : 1, argv, options, error);
}

static inline void check_fails(const char *line, wf_status expected, const char *words)
{
    app_options options;
    wf_error error;
    wf_status status = parse(line, &options, &error);
    bool good = status == expected && error.code == expected && strstr(error.text, words);

    if (!good)
        printf("\n    %s\n    gave %d: %s\n", line, status, error.text);
    CU_ASSERT_TRUE(good);
    CU_ASSERT_PTR_NULL(options.data.item);
    if (status == WF_OK)
        app_options_free(&options);
}

#endif
