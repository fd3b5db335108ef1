/* parallel/formats/gguf_read.c - the header of a GGUF file, out of the file; see the
   headers. */
#include "core/files/files_internal.h"
#include "parallel/formats/gguf_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_READ = 1 << 20 };

static const int64_t most_header = 1 << 30; /* the largest known have some 20 MiB */

static void forget(wf_par_gguf *g)
{
    for (int64_t i = 0; i < g->keys; i++) {
        free((char *)g->key[i].key);
        free((void *)g->key[i].values);
    }
    free(g->key);
    free(g->tensor);
    free(g->name);
    *g = (wf_par_gguf){.bytes = g->bytes};
}

void wf_gguf_free(wf_par_gguf *g)
{
    forget(g);
    free(g->bytes);
    g->bytes = NULL;
}

/* Ever more of the file is read, until the header is in it. */
wf_status wf_gguf_read(wf_par_gguf *g, const wf_file *file, wf_error *error)
{
    int64_t most = file->bytes < most_header ? file->bytes : most_header, have = FIRST_READ;
    bool more = true;

    for (; more && error->code == WF_OK; have *= 4) {
        char *bytes;

        if (have / 4 >= most && have > FIRST_READ)
            return wf_error_set(error, WF_EDATA, "%s: its header has more than %lld bytes",
                                file->path, (long long)most);
        have = have < most ? have : most;
        forget(g);
        bytes = realloc(g->bytes, (size_t)have + 1);
        if (!bytes)
            return wf_error_set(error, WF_ENOMEM, "no memory for the header of %s", file->path);
        g->bytes = bytes;
        if (wf_file_read(file, g->bytes, (size_t)have, 0, error) == WF_OK)
            wf_gguf_parse(g, file->path, (size_t)have, file->bytes, &more, error);
    }
    return error->code;
}

wf_par_gguf *wf_par_gguf_open(const char *path, wf_error *error)
{
    wf_par_gguf *g = calloc(1, sizeof *g);
    wf_file file;

    if (!g) {
        wf_error_set(error, WF_ENOMEM, "no memory for the header of %.900s", path);
        return NULL;
    }
    if (wf_file_open(&file, &wf_system_files, path, WF_FILE_READ, error) == WF_OK) {
        wf_gguf_read(g, &file, error);
        wf_file_close(&file, error);
    }
    if (error->code == WF_OK)
        return g;
    wf_par_gguf_close(g);
    return NULL;
}

void wf_par_gguf_close(wf_par_gguf *gguf)
{
    if (gguf)
        wf_gguf_free(gguf);
    free(gguf);
}

bool wf_par_gguf_there(const char *path)
{
    wf_error unread = {WF_OK, ""};
    wf_file file;
    char magic[4];
    bool there;

    if (wf_file_open(&file, &wf_system_files, path, WF_FILE_READ, &unread) != WF_OK)
        return false;
    there = file.bytes >= 4 && wf_file_read(&file, magic, 4, 0, &unread) == WF_OK &&
            memcmp(magic, "GGUF", 4) == 0;
    wf_file_close(&file, &unread);
    return there;
}

int64_t wf_par_gguf_count(const wf_par_gguf *g)
{
    return g->keys;
}

const wf_par_gguf_key *wf_par_gguf_at(const wf_par_gguf *g, int64_t i)
{
    return i >= 0 && i < g->keys ? &g->key[i] : NULL;
}

const wf_par_gguf_key *wf_par_gguf_find(const wf_par_gguf *g, const char *key,
                                        wf_par_gguf_kind kind, bool array, wf_error *error)
{
    static const char *const names[] = {[WF_PAR_GGUF_BOOL] = "true or false",
                                        [WF_PAR_GGUF_TEXT] = "text",
                                        [WF_PAR_GGUF_I64] = "whole numbers",
                                        [WF_PAR_GGUF_F64] = "numbers with a fraction"};
    const wf_par_gguf_key wanted = {.key = key};
    const wf_par_gguf_key *found =
        g->keys ? bsearch(&wanted, g->key, (size_t)g->keys, sizeof *g->key, wf_gguf_by_key)
                : NULL;

    if (!found || (found->kind == kind && found->array == array))
        return found;
    wf_error_set(error, WF_EDATA, "%.900s: key \"%s\" is no %s of %s", g->name, key,
                 array ? "array" : "value", names[kind]);
    return NULL;
}

const wf_gguf_tensor *wf_gguf_tensor_find(const wf_par_gguf *g, const char *name)
{
    wf_gguf_tensor wanted = {.type = WF_GGUF_F32};

    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    return g->tensors ? bsearch(&wanted, g->tensor, (size_t)g->tensors, sizeof *g->tensor,
                                wf_gguf_by_name)
                      : NULL;
}
