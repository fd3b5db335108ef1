/* apps/options/options_files.c - no file is written that is read, or written as another one too. */
#include "apps/options/options_table.h"
#include <string.h>
#include <sys/stat.h>

/* Whether two names are of one file. Terminals, pipes and the like are for all to write to. */
static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    bool there = stat(a, &x) == 0;

    if (there && !S_ISREG(x.st_mode))
        return false;
    if (strcmp(a, b) == 0)
        return true;
    return there && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static wf_status refuse(app_option_id id, const char *path, app_option_id other_id,
                        const char *other, wf_error *error)
{
    return wf_error_set(
        error, WF_EINVAL,
        "%s %s is the file of %s %s too, and would overwrite it; use another name",
        app_option_flag(&app_option_rows[id]).text, path,
        app_option_flag(&app_option_rows[other_id]).text, other);
}

wf_status app_options_files(app_options *o, wf_error *error)
{
    const struct {
        app_option_id id;
        const char *path;
    } written[] = {{APP_OPTION_log_jsonl, o->log_jsonl},
                   {APP_OPTION_json, o->json},
                   {APP_OPTION_report_json, o->report_json},
                   {APP_OPTION_trace, o->trace}};

    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        const char *path = written[i].path;

        for (int64_t k = 0; path && k < o->data.count; k++)
            if (is_same(path, o->data.item[k]))
                return refuse(written[i].id, path, APP_OPTION_data, o->data.item[k], error);
        if (path && o->config && is_same(path, o->config))
            return refuse(written[i].id, path, APP_OPTION_config, o->config, error);
        for (size_t k = 0; path && k < i; k++)
            if (written[k].path && is_same(path, written[k].path))
                return refuse(written[i].id, path, written[k].id, written[k].path, error);
    }
    return WF_OK;
}
