/* parallel/models/gpt/hf_identity.c - see the header. */
#include "parallel/models/gpt/hf_identity_internal.h"
#include "core/files/output_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 1 << 20, MOST_IDS = 64 };

static const int64_t most_bytes = 256 << 20; /* the largest tokenizer.json have some 40 MiB */

/* The files that transformers, tokenizers and servers read; config.json is written anew. */
static const char *const files[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "tokenizer.model",
                                    "tekken.json",
                                    "generation_config.json",
                                    "chat_template.jinja",
                                    "chat_template.json"};

static const char *const ids[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

const char *wf_par_pretrained_file(int i)
{
    return i >= 0 && i < (int)(sizeof files / sizeof *files) ? files[i] : NULL;
}

static wf_status copy_file(const wf_folder *from, const wf_folder *to, const char *name,
                           wf_error *error)
{
    bool there = false;
    char *text = NULL;
    size_t bytes;
    wf_file file;

    if (wf_folder_has(from, name, &there, error) != WF_OK || !there)
        return error->code;
    if (wf_folder_file(from, name, WF_FILE_READ, &file, error) == WF_OK &&
        wf_file_take(&file, most_bytes, &text, &bytes, error) == WF_OK)
        wf_output_put(to, name, text, bytes, error);
    free(text);
    return error->code;
}

/* Copies the chat templates with names, each a file of a folder. */
static wf_status copy_templates(const wf_folder *from, const wf_folder *to, wf_error *error)
{
    wf_folder in = {.fd = -1}, out = {.fd = -1};
    char **list = NULL;
    int64_t count = 0;
    bool there = false, made = false;

    if (wf_folder_has(from, WF_PAR_PRETRAINED_TEMPLATES, &there, error) != WF_OK || !there ||
        wf_folder_has(to, WF_PAR_PRETRAINED_TEMPLATES, &made, error) != WF_OK)
        return error->code;
    if (wf_folder_enter(&in, from, WF_PAR_PRETRAINED_TEMPLATES, error) == WF_OK &&
        wf_folder_list(&in, &list, &count, error) == WF_OK &&
        (made || wf_folder_make(to, WF_PAR_PRETRAINED_TEMPLATES, error) == WF_OK) &&
        wf_folder_enter(&out, to, WF_PAR_PRETRAINED_TEMPLATES, error) == WF_OK)
        for (int64_t i = 0; i < count && error->code == WF_OK; i++)
            if (strlen(list[i]) > 6 && strcmp(list[i] + strlen(list[i]) - 6, ".jinja") == 0)
                copy_file(&in, &out, list[i], error);
    wf_folder_free_names(list, count);
    wf_folder_close(&in);
    wf_folder_close(&out);
    return error->code;
}

wf_status wf_hf_identity_copy(const char *from, const wf_folder *to, wf_error *error)
{
    wf_folder folder = {.fd = -1};

    if (wf_folder_open(&folder, &wf_system_files, from, error) == WF_OK)
        for (size_t i = 0; i < sizeof files / sizeof *files && error->code == WF_OK; i++)
            copy_file(&folder, to, files[i], error);
    if (error->code == WF_OK)
        copy_templates(&folder, to, error);
    wf_folder_close(&folder);
    return error->code;
}

static bool is_id(const json_t *value)
{
    return json_is_null(value) || (json_is_integer(value) && json_integer_value(value) >= 0);
}

static bool are_ids(const json_t *value)
{
    size_t i;
    json_t *one;

    if (!json_is_array(value))
        return is_id(value);
    json_array_foreach(value, i, one) if (!json_is_integer(one) || !is_id(one)) return false;
    return json_array_size(value) <= MOST_IDS;
}

wf_status wf_hf_identity_check(const json_t *from, const char *name, wf_error *error)
{
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const json_t *value = json_object_get(from, ids[i]);

        if (value && !are_ids(value))
            return wf_error_set(
                error, WF_EDATA,
                "%s: \"%s\" is neither a token id, nor a list of at most %d, nor null", name,
                ids[i], MOST_IDS);
    }
    return WF_OK;
}

wf_status wf_hf_identity_ids(const json_t *from, const char *name, json_t *config,
                             wf_error *error)
{
    wf_status status = wf_hf_identity_check(from, name, error);

    for (size_t i = 0; i < sizeof ids / sizeof *ids && status == WF_OK; i++) {
        json_t *value = json_object_get(from, ids[i]);

        if (value && json_object_set(config, ids[i], value))
            status = wf_error_set(error, WF_ENOMEM, "no memory for the token ids of %s", name);
    }
    return status;
}

/* The last folder of a path is made and entered without following a link: its name is not the
   user's choice. */
static wf_status enter_kept(const char *path, wf_folder *to, wf_error *error)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char above[WF_FILES_PATH] = ".";
    wf_folder in;
    bool there;

    if (slash && snprintf(above, sizeof above, "%.*s", slash == path ? 1 : (int)(slash - path),
                          path) >= (int)sizeof above)
        return wf_error_set(error, WF_EIO, "cannot open %.200s..: the path is too long", path);
    if (wf_folder_open(&in, &wf_system_files, above, error) == WF_OK &&
        wf_folder_has(&in, name, &there, error) == WF_OK &&
        (there || wf_folder_make(&in, name, error) == WF_OK) &&
        wf_folder_enter(to, &in, name, error) != WF_OK && there)
        wf_error_set(error, WF_EIO,
                     "%s is no folder of its own, but a link or a file: remove it", path);
    wf_folder_close(&in);
    return error->code;
}

wf_status wf_par_pretrained_keep(const char *from, const char *to, wf_error *error)
{
    char path[WF_FILES_PATH], *text = NULL;
    wf_folder folder = {.fd = -1};
    size_t bytes;

    snprintf(path, sizeof path, "%.4000s/config.json", from);
    if (wf_files_read(&wf_system_files, path, CONFIG_BYTES, &text, &bytes, error) == WF_OK &&
        enter_kept(to, &folder, error) == WF_OK) {
        wf_output_clean(&folder, NULL);
        if (wf_hf_identity_copy(from, &folder, error) == WF_OK)
            wf_output_put(&folder, "config.json", text, bytes, error);
    }
    wf_folder_close(&folder);
    free(text);
    return error->code;
}
