/*
 * nn/dataset/megatron_writer.c - see the header. Tokens are written at their offsets, and no
 * further than they are known. While documents come, their lengths go to where the .idx file
 * has them, after its header; the pointers and bounds after them are computed by rereading
 * these.
 */
#include "nn/dataset/megatron_writer.h"
#include "nn/dataset/manifest.h"
#include "nn/dataset/megatron_format.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOME = 16384 }; /* ids that are stored at once */

struct wf_megatron_writer {
    char *prefix;
    wf_output *bin, *idx;
    int64_t vocabulary;
    wf_megatron_type type;
    int64_t tokens, documents;
    int64_t length; /* tokens of the open document */
    int64_t held;   /* tokens that were added and are not written yet */
    _Alignas(8) char some[4 * SOME];
    wf_error error; /* the first one, after which nothing is written any more */
};

static int64_t type_size(wf_megatron_type type)
{
    return type == WF_MEGATRON_U8 ? 1 : type == WF_MEGATRON_U16 ? 2 : 4;
}

static void put_little_endian(unsigned char *to, uint64_t value, int64_t size)
{
    for (int64_t i = 0; i < size; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static wf_status write_failed(wf_megatron_writer *w, const wf_output *o)
{
    return wf_output_failed(o, &w->error);
}

static wf_status put(wf_megatron_writer *w, const wf_output *o, const void *bytes, size_t size)
{
    if (w->error.code == WF_OK && fwrite(bytes, 1, size, wf_output_stream(o)) != size)
        write_failed(w, o);
    return w->error.code;
}

static wf_status put_number(wf_megatron_writer *w, uint64_t value, int64_t size)
{
    unsigned char bytes[8];

    put_little_endian(bytes, value, size);
    return put(w, w->idx, bytes, (size_t)size);
}

/* PREFIX and an ending as an output to write. */
static wf_output *open_part(wf_megatron_writer *w, const char *prefix, const char *ending)
{
    char path[4200];
    wf_output *o;

    if (snprintf(path, sizeof path, "%s%s", prefix, ending) >= (int)sizeof path) {
        wf_error_set(&w->error, WF_EINVAL, "the name %.200s.. is too long", prefix);
        return NULL;
    }
    o = wf_output_open(path, &w->error);
    if (o && !wf_output_stream(o))
        wf_output_failed(o, &w->error);
    return o;
}

wf_status wf_megatron_writer_open(const char *prefix, int64_t vocabulary,
                                  wf_megatron_writer **writer, wf_error *error)
{
    static const unsigned char header[WF_MEGATRON_HEADER_SIZE];
    wf_megatron_writer *w;

    *writer = NULL;
    if (vocabulary < 1 || vocabulary > INT32_MAX)
        return wf_error_set(error, WF_EINVAL,
                            "a vocabulary has from 1 to %d token ids, not %lld", INT32_MAX,
                            (long long)vocabulary);
    w = calloc(1, sizeof *w);
    if (!w)
        return wf_error_set(error, WF_ENOMEM, "no memory for a writer of %s", prefix);
    w->vocabulary = vocabulary;
    w->type = vocabulary <= 256     ? WF_MEGATRON_U8
              : vocabulary <= 65536 ? WF_MEGATRON_U16
                                    : WF_MEGATRON_I32;
    w->bin = open_part(w, prefix, ".bin");
    w->idx = w->bin ? open_part(w, prefix, ".idx") : NULL;
    w->prefix = strdup(prefix);
    if (!w->prefix)
        wf_error_set(&w->error, WF_ENOMEM, "no memory for a writer of %s", prefix);
    if (w->idx && put(w, w->idx, header, sizeof header) == WF_OK) {
        *writer = w;
        return WF_OK;
    }
    wf_error_set(error, w->error.code, "%s", w->error.text);
    wf_megatron_writer_discard(w);
    return error->code;
}

/* Reports the writer's first error to a caller. */
static wf_status report(const wf_megatron_writer *w, wf_error *error)
{
    return w->error.code == WF_OK ? WF_OK
                                  : wf_error_set(error, w->error.code, "%s", w->error.text);
}

static wf_status end_document(wf_megatron_writer *w)
{
    if (!w->length || put_number(w, (uint64_t)w->length, 4) != WF_OK)
        return w->error.code;
    w->documents++;
    w->length = 0;
    return WF_OK;
}

/* Ids as they are stored; the largest of them as unsigned numbers. */
static uint32_t narrow(wf_megatron_type type, const int32_t *ids, int64_t count, void *to)
{
    uint32_t largest = 0;

#define NARROW(stored)                                                                         \
    for (int64_t i = 0; i < count; i++) {                                                      \
        uint32_t id = (uint32_t)ids[i];                                                        \
        ((stored *)to)[i] = (stored)id;                                                        \
        largest = id > largest ? id : largest;                                                 \
    }
    if (type == WF_MEGATRON_U8) {
        NARROW(uint8_t)
    } else if (type == WF_MEGATRON_U16) {
        NARROW(uint16_t)
    } else {
        NARROW(uint32_t)
    }
#undef NARROW
    return largest;
}

/* Tokens [at, ..) of the file, some of which are none. */
static wf_status refuse_id(const wf_megatron_writer *w, const int32_t *ids, int64_t at,
                           wf_error *error)
{
    int64_t i = 0;

    while ((uint32_t)ids[i] < (uint64_t)w->vocabulary)
        i++;
    return wf_error_set(
        error, WF_EINVAL,
        "token %lld of %s would be id %d, which a vocabulary of %lld does not have",
        (long long)(at + i), wf_output_path(w->bin), ids[i], (long long)w->vocabulary);
}

/* Writes tokens as they are stored, at their offset in the file. */
static wf_status write_tokens(const wf_megatron_writer *w, const char *bytes, int64_t at,
                              int64_t count, wf_error *error)
{
    int64_t size = type_size(w->type), from = at * size, end = (at + count) * size;

    while (from < end) {
        ssize_t n = pwrite(fileno(wf_output_stream(w->bin)), bytes, (size_t)(end - from), from);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return wf_output_failed(w->bin, error);
        bytes += n;
        from += n;
    }
    return WF_OK;
}

static wf_status write_held(wf_megatron_writer *w)
{
    if (w->error.code == WF_OK && w->held)
        write_tokens(w, w->some, w->tokens - w->held, w->held, &w->error);
    w->held = 0;
    return w->error.code;
}

/* Adds tokens, at most SOME, all of one document. */
static wf_status add_some(wf_megatron_writer *w, const int32_t *ids, int64_t count)
{
    if (w->held + count > SOME && write_held(w) != WF_OK)
        return w->error.code;
    if (narrow(w->type, ids, count, w->some + w->held * type_size(w->type)) >=
        (uint64_t)w->vocabulary)
        return refuse_id(w, ids, w->tokens, &w->error);
    w->held += count;
    w->tokens += count;
    w->length += count;
    return WF_OK;
}

/* Returns how many of `count` tokens still fit in the open document; where it is full, another
   one begins. */
static int64_t some_of(wf_megatron_writer *w, int64_t count)
{
    if (w->length == INT32_MAX)
        end_document(w);
    return count < INT32_MAX - w->length ? count : INT32_MAX - w->length;
}

wf_status wf_megatron_writer_add(wf_megatron_writer *writer, const int32_t *ids, int64_t count,
                                 wf_error *error)
{
    wf_megatron_writer *w = writer;

    for (int64_t i = 0; i < count && w->error.code == WF_OK;) {
        int64_t some = some_of(w, count - i < SOME ? count - i : SOME);

        if (w->error.code == WF_OK)
            add_some(w, ids + i, some);
        i += some;
    }
    return report(w, error);
}

/* Tokens that are written later go to the open document. */
static void extend(wf_megatron_writer *w, int64_t count)
{
    while (count && w->error.code == WF_OK) {
        int64_t some = some_of(w, count);

        w->tokens += some;
        w->length += some;
        count -= some;
    }
}

wf_status wf_megatron_writer_reserve(wf_megatron_writer *writer, int64_t count,
                                     const size_t *end, size_t ends, int64_t *at,
                                     wf_error *error)
{
    wf_megatron_writer *w = writer;
    int64_t begin = 0;

    write_held(w);
    *at = w->tokens;
    for (size_t i = 0; i < ends && w->error.code == WF_OK; i++) {
        extend(w, (int64_t)end[i] - begin);
        end_document(w);
        begin = (int64_t)end[i];
    }
    extend(w, count - begin);
    return report(w, error);
}

/* Begins to bring these tokens to the disk while others are made, so that the end does not wait
   for all of the file. */
static void begin_sync(const wf_megatron_writer *w, int64_t at, int64_t count)
{
    int64_t size = type_size(w->type);

    sync_file_range(fileno(wf_output_stream(w->bin)), at * size, count * size,
                    SYNC_FILE_RANGE_WRITE);
}

wf_status wf_megatron_writer_put(const wf_megatron_writer *w, int64_t at, const int32_t *ids,
                                 int64_t count, wf_error *error)
{
    _Alignas(8) char bytes[4 * SOME];
    wf_status status = WF_OK;

    for (int64_t i = 0; i < count && status == WF_OK; i += SOME) {
        int64_t some = count - i < SOME ? count - i : SOME;

        status = narrow(w->type, ids + i, some, bytes) >= (uint64_t)w->vocabulary
                     ? refuse_id(w, ids + i, at + i, error)
                     : write_tokens(w, bytes, at + i, some, error);
    }
    begin_sync(w, at, count);
    return status;
}

wf_status wf_megatron_writer_end_document(wf_megatron_writer *writer, wf_error *error)
{
    end_document(writer);
    return report(writer, error);
}

int64_t wf_megatron_writer_tokens(const wf_megatron_writer *writer)
{
    return writer->tokens;
}

int64_t wf_megatron_writer_documents(const wf_megatron_writer *writer)
{
    return writer->documents;
}

/* Writes the pointers: the sums of the lengths, which are read back. */
static wf_status put_pointers(wf_megatron_writer *w)
{
    int64_t pointer = 0;

    if (fflush(wf_output_stream(w->idx)) != 0)
        return write_failed(w, w->idx);
    for (int64_t first = 0; first < w->documents && w->error.code == WF_OK; first += 4096) {
        int64_t count = w->documents - first < 4096 ? w->documents - first : 4096;
        unsigned char lengths[4 * 4096];

        errno = EIO; /* for a file that another process makes shorter */
        if (pread(fileno(wf_output_stream(w->idx)), lengths, (size_t)(4 * count),
                  WF_MEGATRON_HEADER_SIZE + 4 * first) != 4 * count)
            return write_failed(w, w->idx);
        for (int64_t i = 0; i < count; i++) {
            const unsigned char *l = lengths + 4 * i;

            put_number(w, (uint64_t)pointer, 8);
            pointer += (l[0] | (int64_t)l[1] << 8 | (int64_t)l[2] << 16 | (int64_t)l[3] << 24) *
                       type_size(w->type);
        }
    }
    return w->error.code;
}

static wf_status put_header(wf_megatron_writer *w)
{
    if (fseek(wf_output_stream(w->idx), 0, SEEK_SET) != 0)
        return write_failed(w, w->idx);
    put(w, w->idx, WF_MEGATRON_MAGIC, WF_MEGATRON_MAGIC_SIZE);
    put_number(w, WF_MEGATRON_VERSION, 8);
    put_number(w, w->type, 1);
    put_number(w, (uint64_t)w->documents, 8);
    return put_number(w, (uint64_t)w->documents + 1, 8);
}

/* Completes both files; they still have other names. */
static wf_status complete(wf_megatron_writer *w)
{
    if (w->error.code == WF_OK && !w->tokens)
        wf_error_set(&w->error, WF_EINVAL,
                     "%s would have no token: what it is made of is empty",
                     wf_output_path(w->bin));
    if (w->error.code == WF_OK && write_held(w) == WF_OK && end_document(w) == WF_OK &&
        put_pointers(w) == WF_OK) {
        for (int64_t i = 0; i <= w->documents; i++)
            put_number(w, (uint64_t)i, 8);
        put_header(w);
    }
    return w->error.code;
}

/* Gives both writers' files their names. */
static wf_status publish(wf_megatron_writer *w, wf_megatron_writer *mask)
{
    wf_dataset_manifest_part part[WF_DATASET_MANIFEST_PARTS] = {{".bin", w->bin},
                                                                {".idx", w->idx}};
    int parts = 2;

    if (mask) {
        part[parts++] = (wf_dataset_manifest_part){WF_DATASET_MANIFEST_MASK ".bin", mask->bin};
        part[parts++] = (wf_dataset_manifest_part){WF_DATASET_MANIFEST_MASK ".idx", mask->idx};
        mask->bin = mask->idx = NULL;
    }
    w->bin = w->idx = NULL;
    return wf_dataset_manifest_publish(w->prefix, part, parts, w->tokens, w->documents,
                                       &w->error);
}

wf_status wf_megatron_writer_finish(wf_megatron_writer *writer, wf_megatron_writer *mask,
                                    wf_error *error)
{
    wf_megatron_writer *w = writer;
    wf_status status;

    if (mask && complete(mask) != WF_OK)
        wf_error_set(&w->error, mask->error.code, "%s", mask->error.text);
    if (complete(w) == WF_OK)
        publish(w, mask);
    status = report(w, error);
    wf_megatron_writer_discard(mask);
    wf_megatron_writer_discard(w);
    return status;
}

void wf_megatron_writer_discard(wf_megatron_writer *writer)
{
    if (!writer)
        return;
    wf_output_discard(writer->bin);
    wf_output_discard(writer->idx);
    free(writer->prefix);
    free(writer);
}
