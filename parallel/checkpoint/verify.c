/* parallel/checkpoint/verify.c - the files of a checkpoint against their checksums. */
#include "parallel/checkpoint/verify_internal.h"
#include "parallel/checkpoint/commit_internal.h"
#include "parallel/checkpoint/pieces_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

wf_par_checkpoint *wf_checkpoint_open(const char *path, const wf_file_calls *calls,
                                      wf_error *error)
{
    wf_par_checkpoint *c = calloc(1, sizeof *c);
    wf_folder folder = {.fd = -1};

    if (c)
        c->path = strdup(path);
    if (!c || !c->path) {
        free(c);
        wf_error_set(error, WF_ENOMEM, "no memory for a checkpoint");
        return NULL;
    }
    c->calls = calls;
    if (wf_folder_open(&folder, calls, path, error) == WF_OK &&
        wf_index_read(&c->index, &folder, WF_CKPT_INDEX, error) == WF_OK) {
        wf_folder_close(&folder);
        return c;
    }
    wf_folder_close(&folder);
    wf_par_checkpoint_close(c);
    return NULL;
}

wf_par_checkpoint *wf_par_checkpoint_open(const char *path, wf_error *error)
{
    return wf_checkpoint_open(path, &wf_system_files, error);
}

void wf_par_checkpoint_close(wf_par_checkpoint *c)
{
    if (!c)
        return;
    wf_index_close(&c->index);
    free(c->path);
    free(c);
}

const char *wf_par_checkpoint_path(const wf_par_checkpoint *c)
{
    return c->path;
}

int64_t wf_par_checkpoint_step(const wf_par_checkpoint *c)
{
    return c->index.step;
}

int64_t wf_par_checkpoint_sequences(const wf_par_checkpoint *c)
{
    return c->index.sequences;
}

bool wf_par_checkpoint_is_local(const wf_par_checkpoint *c)
{
    return c->index.kind == WF_INDEX_LOCAL;
}

int64_t wf_par_checkpoint_parameters(const wf_par_checkpoint *c)
{
    return wf_index_parameters(&c->index);
}

const char *wf_par_checkpoint_option(const wf_par_checkpoint *c, const char *key)
{
    return wf_index_option(&c->index, key);
}

wf_status wf_checkpoint_file(const wf_par_checkpoint *c, int64_t rank, wf_file *file,
                             wf_safetensors *header, wf_error *error)
{
    char name[WF_CKPT_NAME];
    wf_folder folder;
    wf_status status = wf_folder_open(&folder, c->calls, c->path, error);

    if (status == WF_OK)
        status = wf_folder_file(&folder,
                                wf_ckpt_file(name, c->index.kind == WF_INDEX_FULL ? -1 : rank),
                                WF_FILE_READ, file, error);
    wf_folder_close(&folder);
    if (status != WF_OK)
        return status;
    status = wf_safetensors_read(header, file, error);
    if (status != WF_OK)
        wf_file_close(file, NULL);
    return status;
}

wf_status wf_checkpoint_header(const wf_par_checkpoint *c, int64_t rank, uint64_t *sum,
                               wf_error *error)
{
    char *bytes = NULL;
    wf_safetensors header;
    wf_file file;
    wf_status status = wf_checkpoint_file(c, rank, &file, &header, error);

    if (status != WF_OK)
        return status;
    bytes = malloc((size_t)header.data);
    status = bytes
                 ? wf_file_read(&file, bytes, (size_t)header.data, 0, error)
                 : wf_error_set(error, WF_ENOMEM, "no memory for the header of %s", file.path);
    if (status == WF_OK)
        *sum = wf_checksum_file(rank, file.bytes, wf_checksum(bytes, (size_t)header.data));
    free(bytes);
    wf_safetensors_close(&header);
    wf_file_close(&file, NULL);
    return status;
}

wf_status wf_checkpoint_mixed(const wf_par_checkpoint *c, wf_error *error)
{
    return wf_error_set(
        error, WF_EDATA,
        "%s: the headers of its %" PRId64
        " data files are not the ones that were saved with its index: a file was "
        "changed, or is of another checkpoint or rank",
        c->path, c->index.files);
}

/* Reports a tensor whose bytes are not those that were written. */
static wf_status check_tensor(const wf_par_checkpoint *c, int64_t rank, const wf_file *file,
                              const wf_safetensors *header, const wf_safetensors_entry *e,
                              char *room, wf_error *error)
{
    uint64_t stated, found;
    wf_checksum_stream *stream;
    wf_status status = wf_header_checksum(header, file->path, e->name, &stated, error);

    if (status != WF_OK)
        return status;
    stream = wf_checksum_begin();
    if (!stream)
        return wf_error_set(error, WF_ENOMEM, "no memory for a checksum");
    for (int64_t at = e->begin; at < e->end && status == WF_OK; at += CHUNK) {
        size_t n = (size_t)(e->end - at < CHUNK ? e->end - at : CHUNK);

        status = wf_file_read(file, room, n, header->data + at, error);
        if (status == WF_OK)
            wf_checksum_add(stream, room, n);
    }
    found = wf_checksum_end(stream);
    if (status != WF_OK || found == stated)
        return status;
    if (c->index.kind == WF_INDEX_FULL)
        return wf_error_set(error, WF_EDATA, "%s is damaged: tensor \"%.200s\"", file->path,
                            e->name);
    return wf_error_set(error, WF_EDATA,
                        "%s is damaged: tensor \"%.200s\", the part that rank %" PRId64
                        " wrote",
                        file->path, e->name, rank);
}

wf_status wf_checkpoint_contents(const wf_par_checkpoint *c, int64_t rank, wf_error *error)
{
    char *room = malloc(CHUNK);
    wf_safetensors header;
    wf_file file;
    wf_status status = room ? wf_checkpoint_file(c, rank, &file, &header, error)
                            : wf_error_set(error, WF_ENOMEM, "no memory to read a checkpoint");

    if (status == WF_OK) {
        for (int64_t i = 0; i < header.count && status == WF_OK; i++)
            status = check_tensor(c, rank, &file, &header, &header.entry[i], room, error);
        wf_safetensors_close(&header);
        wf_file_close(&file, NULL);
    }
    free(room);
    return status;
}

wf_status wf_par_checkpoint_verify(const wf_par_checkpoint *c, wf_error *error)
{
    uint64_t sum = 0, one = 0;
    wf_folder folder = {.fd = -1};
    wf_status status = WF_OK;

    for (int64_t r = 0; r < c->index.files && status == WF_OK; r++) {
        status = wf_checkpoint_header(c, r, &one, error);
        sum += one;
        if (status == WF_OK)
            status = wf_checkpoint_contents(c, r, error);
    }
    if (status == WF_OK && sum != c->index.files_checksum)
        return wf_checkpoint_mixed(c, error);
    if (status == WF_OK)
        status = wf_folder_open(&folder, c->calls, c->path, error);
    if (status == WF_OK)
        status = wf_ckpt_check_files(&folder, &c->index, error);
    wf_folder_close(&folder);
    return status;
}
