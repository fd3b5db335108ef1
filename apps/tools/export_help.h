/* apps/tools/export_help.h - what gpt_export --help prints, and the types that it lists. */
#ifndef APP_TOOLS_EXPORT_HELP_H
#define APP_TOOLS_EXPORT_HELP_H

#include <stdbool.h>

typedef struct app_export_type_list {
    char text[128];
} app_export_type_list;

/* Returns the types that weights are written as in a folder, with a text in between, a blank
   first. */
app_export_type_list app_export_types(const char *between);

bool app_export_has_type(const char *dtype);

void app_export_help(void);

#endif
