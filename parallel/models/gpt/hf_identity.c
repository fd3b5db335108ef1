/* parallel/models/gpt/hf_identity.c - see the header. */
#include "parallel/models/gpt/hf_identity_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTIAL ".partial"

enum { CONFIG_BYTES = 1 << 20, MOST_IDS = 64 };

static const int64_t most_bytes = 256 << 20; /* the largest tokenizer.json have some 40 MiB */

/* What transformers, tokenizers and servers look for; config.json is written anew. */
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

static wf_status write_whole(const wf_folder *to, const char *name, const char *text,
                             size_t bytes, wf_error *error)
{
    char partial[WF_FILES_NAME];
    wf_file file;

    snprintf(partial, sizeof partial, "%.200s" PARTIAL, name);
    if (wf_folder_remove(to, partial, error) != WF_OK ||
        wf_folder_file(to, partial, WF_FILE_CREATE, &file, error) != WF_OK)
        return error->code;
    if (wf_file_write(&file, text, bytes, 0, error) == WF_OK)
        wf_file_sync(&file, error);
    wf_file_close(&file, error);
    return error->code == WF_OK ? wf_folder_rename(to, partial, name, error) : error->code;
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
        write_whole(to, name, text, bytes, error);
    free(text);
    return error->code;
}

wf_status wf_hf_identity_copy(const char *from, const wf_folder *to, wf_error *error)
{
    wf_folder folder = {.fd = -1};

    if (wf_folder_open(&folder, &wf_system_files, from, error) == WF_OK)
        for (size_t i = 0; i < sizeof files / sizeof *files && error->code == WF_OK; i++)
            copy_file(&folder, to, files[i], error);
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

wf_status wf_par_pretrained_keep(const char *from, const char *to, wf_error *error)
{
    char path[WF_FILES_PATH], *text = NULL;
    wf_folder folder = {.fd = -1};
    size_t bytes;

    snprintf(path, sizeof path, "%.4000s/config.json", from);
    if (wf_files_read(&wf_system_files, path, CONFIG_BYTES, &text, &bytes, error) == WF_OK &&
        wf_files_make_directory(&wf_system_files, to, error) == WF_OK &&
        wf_folder_open(&folder, &wf_system_files, to, error) == WF_OK &&
        wf_hf_identity_copy(from, &folder, error) == WF_OK &&
        write_whole(&folder, "config.json", text, bytes, error) == WF_OK)
        wf_folder_sync(&folder, error);
    wf_folder_close(&folder);
    free(text);
    return error->code;
}
