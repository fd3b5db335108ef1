/* apps/options/options_files.c - no file is written that is read, or written as another one
   too. */
#include "apps/options/options_table.h"
#include "nn/dataset/source_list.h"
#include "core/files/prepare.h"
#include <string.h>
#include <sys/stat.h>

/* Returns true where two names are of one file. Terminals, pipes and the like may have several
   writers. */
static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    bool there = stat(a, &x) == 0;

    if (there && !S_ISREG(x.st_mode))
        return false;
    if (strcmp(a, b) == 0)
        return true;
    return there && stat(b, &y) == 0 && wf_same_file(&x, &y);
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

/* A file that is written must be none of those that a flag of data names. */
static wf_status check_data(app_option_id id, const char *path, app_option_id data_id,
                            const app_text_list *data, wf_error *error)
{
    wf_dataset_source_list list;
    wf_status status;

    if (!data->count)
        return WF_OK;
    status = wf_dataset_source_list_parse(
        data->item, data->count, app_option_flag(&app_option_rows[data_id]).text, &list, error);
    for (int64_t s = 0; status == WF_OK && s < list.count; s++)
        for (int64_t k = 0; status == WF_OK && k < list.source[s].count; k++)
            if (is_same(path, list.source[s].file[k]))
                status = refuse(id, path, data_id, list.source[s].file[k], error);
    wf_dataset_source_list_free(&list);
    return status;
}

typedef struct written_path {
    app_option_id id;
    const char *path;
} written_path;

enum { FILES = 7, FOLDERS = 3 };

/* Lists the files that the options name, NULL for those that they do not. */
static void list_files(const app_options *o, written_path files[FILES])
{
    const written_path all[FILES] = {{APP_OPTION_log_jsonl, o->log_jsonl},
                                     {APP_OPTION_json, o->json},
                                     {APP_OPTION_report_json, o->report_json},
                                     {APP_OPTION_trace, o->trace},
                                     {APP_OPTION_calibrate, o->calibrate},
                                     {APP_OPTION_save_config, o->save_config},
                                     {APP_OPTION_memory_timeline, o->memory_timeline}};

    memcpy(files, all, sizeof all);
}

wf_status app_options_prepare_outputs(const app_options *o, wf_error *error)
{
    const written_path folders[FOLDERS] = {{APP_OPTION_tensorboard, o->tensorboard},
                                           {APP_OPTION_log_digests, o->log_digests},
                                           {APP_OPTION_chakra, o->chakra}};
    written_path files[FILES];

    list_files(o, files);
    for (int i = 0; i < FILES; i++)
        if (files[i].path &&
            wf_output_prepare(app_option_flag(&app_option_rows[files[i].id]).text,
                              files[i].path, error) != WF_OK)
            return error->code;
    for (int i = 0; i < FOLDERS; i++)
        if (folders[i].path &&
            wf_output_prepare_folder(app_option_flag(&app_option_rows[folders[i].id]).text,
                                     folders[i].path, error) != WF_OK)
            return error->code;
    return WF_OK;
}

wf_status app_options_files(app_options *o, wf_error *error)
{
    written_path written[FILES];

    list_files(o, written);
    for (int i = 0; i < FILES; i++) {
        const char *path = written[i].path;

        if (path && (check_data(written[i].id, path, APP_OPTION_data, &o->data, error) ||
                     check_data(written[i].id, path, APP_OPTION_val_data, &o->val_data, error)))
            return error->code;
        if (path && o->config && is_same(path, o->config))
            return refuse(written[i].id, path, APP_OPTION_config, o->config, error);
        if (path && o->eval_requests && is_same(path, o->eval_requests))
            return refuse(written[i].id, path, APP_OPTION_eval_requests, o->eval_requests,
                          error);
        for (int k = 0; path && k < i; k++)
            if (written[k].path && is_same(path, written[k].path))
                return refuse(written[i].id, path, written[k].id, written[k].path, error);
    }
    return WF_OK;
}
