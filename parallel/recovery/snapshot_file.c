/*
 * parallel/recovery/snapshot_file.c - a snapshot as a safetensors file, in memory that outlives
 * the process (/dev/shm).
 *
 * Tensor "<number>.<kind>" is a kind of shard <number>, F32, one dim. Of each shard the
 * metadata have, under its number, "state step ndim start.. local.. path"; under "last" the
 * last update: "step lr scale" (floats as bits).
 */
#include "core/files/output_internal.h"
#include "parallel/formats/safetensors_internal.h"
#include "parallel/recovery/snapshot_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DESCRIPTION = 1024 };

/* ---- writing ---- */

typedef struct writing {
    int64_t tensors, texts;
    wf_safetensors_entry *entry;
    const float **data;
    char **text; /* key, value, .. */
} writing;

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool add_text(writing *w, const char *key, const char *value)
{
    w->text[w->texts] = strdup(key);
    w->text[w->texts + 1] = strdup(value);
    w->texts += 2;
    return w->text[w->texts - 2] && w->text[w->texts - 1];
}

static bool describe(writing *w, const wf_kept *kept, int64_t number)
{
    char key[32], value[DESCRIPTION];
    int n = snprintf(value, sizeof value, "%d %" PRId64 " %d", (int)kept->state, kept->step,
                     kept->part.ndim);

    for (int d = 0; d < kept->part.ndim; d++)
        n += snprintf(value + n, sizeof value - (size_t)n, " %" PRId64 " %" PRId64,
                      kept->part.start[d], kept->part.local[d]);
    snprintf(value + n, sizeof value - (size_t)n, " %s", kept->path);
    snprintf(key, sizeof key, "%" PRId64, number);
    return add_text(w, key, value);
}

static bool collect(writing *w, const wf_par_snapshot *k, const char *const *texts, int64_t n)
{
    char value[96], name[48];
    size_t room = (size_t)k->count * WF_PAR_BUDDY_KINDS + 1;
    bool good;

    w->entry = calloc(room, sizeof *w->entry);
    w->data = calloc(room, sizeof *w->data);
    w->text = calloc(2 * ((size_t)k->count + (size_t)n + 2), sizeof *w->text);
    snprintf(value, sizeof value,
             "%" PRId64 " %08" PRIx32 " %08" PRIx32 " %d %" PRId64 " %" PRId64, k->last.step,
             bits_of(k->last.lr), bits_of(k->last.scale), k->last.skip, k->last.skipped,
             k->last.fresh);
    good = w->entry && w->data && w->text && add_text(w, "last", value);
    for (int64_t i = 0; good && i < n; i++)
        good = add_text(w, texts[2 * i], texts[2 * i + 1]);
    for (int64_t i = 0; good && i < k->count; i++) {
        const wf_kept *kept = &k->kept[i];

        good = describe(w, kept, i);
        for (int kind = 0; kind < WF_PAR_BUDDY_KINDS && good; kind++) {
            if (!kept->data[kind])
                continue;
            snprintf(name, sizeof name, "%" PRId64 ".%d", i, kind);
            w->data[w->tensors] = kept->data[kind];
            w->entry[w->tensors++] =
                (wf_safetensors_entry){.name = strdup(name),
                                       .dtype = WF_ST_F32,
                                       .ndim = 1,
                                       .shape = {wf_part_count(&kept->part)}};
            good = w->entry[w->tensors - 1].name != NULL;
        }
    }
    return good;
}

static void writing_close(writing *w)
{
    for (int64_t i = 0; w->entry && i < w->tensors; i++)
        free(w->entry[i].name);
    for (int64_t i = 0; w->text && i < w->texts; i++)
        free(w->text[i]);
    free(w->entry);
    free(w->data);
    free(w->text);
}

static wf_status write_all(const writing *w, const wf_file *file, const char *head,
                           size_t bytes, wf_error *error)
{
    wf_file_write(file, head, bytes, 0, error);
    for (int64_t i = 0; i < w->tensors && error->code == WF_OK; i++)
        wf_file_write(file, w->data[i], (size_t)(w->entry[i].end - w->entry[i].begin),
                      (int64_t)bytes + w->entry[i].begin, error);
    return error->code;
}

wf_status wf_par_snapshot_save(const wf_par_snapshot *k, int folder, const char *name,
                               const char *const *texts, int64_t n, wf_error *error)
{
    const wf_folder in = {.calls = &wf_system_files, .fd = folder, .path = "."};
    writing w = {0};
    wf_output *o = NULL;
    char *head = NULL;
    size_t bytes = 0;

    if (!collect(&w, k, texts, n))
        wf_error_set(error, WF_ENOMEM, "no memory to write %s", name);
    else if (wf_safetensors_format(w.tensors, w.entry, w.texts / 2, (const char *const *)w.text,
                                   &head, &bytes, error) == WF_OK)
        o = wf_output_begin(&in, name, wf_output_mark(), error);
    if (o && fchmod(wf_output_file(o)->fd, 0600) != 0)
        wf_output_failed(o, error);
    if (o && error->code == WF_OK &&
        write_all(&w, wf_output_file(o), head, bytes, error) == WF_OK)
        wf_output_publish(o, error);
    else
        wf_output_discard(o);
    free(head);
    writing_close(&w);
    return error->code;
}

/* ---- reading ---- */

/* The shard that a text describes; false where it is none. */
static bool parse(const char *text, wf_kept *kept)
{
    const long long most = 1LL << 48; /* elements of a shard */
    long long step, start, local, count = 1;
    int state, ndim, at = 0, n;

    if (sscanf(text, "%d %lld %d%n", &state, &step, &ndim, &at) != 3 || ndim < 0 ||
        ndim > WF_MAX_DIMS || state < KEPT_SETTLED || state > KEPT_UNTOUCHED || step < 0)
        return false;
    *kept = (wf_kept){.step = step, .state = (kept_state)state, .part = {.ndim = ndim}};
    for (int d = 0; d < ndim; d++, at += n) {
        if (sscanf(text + at, " %lld %lld%n", &start, &local, &n) != 2 || start < 0 ||
            local < 0 || start > most || local > most / count)
            return false;
        count *= local ? local : 1;
        kept->part.start[d] = start;
        kept->part.local[d] = local;
    }
    if (text[at] != ' ')
        return false;
    kept->path = strdup(text + at + 1);
    return kept->path != NULL;
}

static wf_status read_shard(wf_par_snapshot *k, const wf_safetensors *header,
                            const wf_file *file, wf_kept *kept, int64_t number, wf_error *error)
{
    int64_t count = wf_part_count(&kept->part);
    char name[48];

    for (int kind = 0; kind < WF_PAR_BUDDY_KINDS; kind++) {
        const wf_safetensors_entry *e;

        snprintf(name, sizeof name, "%" PRId64 ".%d", number, kind);
        e = wf_safetensors_find(header, name);
        if (!e)
            continue;
        if (e->dtype != WF_ST_F32 || e->end - e->begin != 4 * count)
            return wf_error_set(error, WF_EDATA, "%s: tensor %s is not of its shard",
                                file->path, name);
        kept->data[kind] = malloc((size_t)(4 * count) + 1);
        if (!kept->data[kind])
            return wf_error_set(error, WF_ENOMEM, "no memory for %s", file->path);
        k->bytes += 4 * count;
        if (wf_file_read(file, kept->data[kind], (size_t)(4 * count), header->data + e->begin,
                         error) != WF_OK)
            return error->code;
    }
    return WF_OK;
}

static wf_status read_all(wf_par_snapshot *k, const wf_safetensors *header, const wf_file *file,
                          wf_error *error)
{
    const char *last = wf_safetensors_metadata(header, "last"), *text;
    wf_par_committed of = {.step = -1};
    uint32_t lr, scale;
    int skip;
    char key[32];

    if (!last || sscanf(last, "%" SCNd64 " %" SCNx32 " %" SCNx32 " %d %" SCNd64 " %" SCNd64,
                        &of.step, &lr, &scale, &skip, &of.skipped, &of.fresh) != 6)
        return wf_error_set(error, WF_EDATA, "%s is no snapshot of a run", file->path);
    of.lr = of_bits(lr);
    of.scale = of_bits(scale);
    of.skip = skip != 0;
    if (of.step > k->last.step)
        k->last = of;
    k->ranks++;
    for (int64_t i = 0;; i++) {
        wf_kept kept;

        snprintf(key, sizeof key, "%" PRId64, i);
        text = wf_safetensors_metadata(header, key);
        if (!text)
            return WF_OK;
        if (!parse(text, &kept))
            return wf_error_set(error, WF_EDATA, "%s: shard %s is described by no shard's text",
                                file->path, key);
        if (read_shard(k, header, file, &kept, i, error) != WF_OK ||
            !wf_par_snapshot_append(k, &kept)) {
            wf_kept_clear(&kept);
            return error->code != WF_OK
                       ? error->code
                       : wf_error_set(error, WF_ENOMEM, "no memory for %s", file->path);
        }
    }
}

wf_status wf_par_snapshot_load(wf_par_snapshot *k, int folder, const char *name,
                               wf_status (*text)(void *arg, const char *key, const char *value,
                                                 wf_error *error),
                               void *arg, wf_error *error)
{
    wf_safetensors header = {0};
    wf_error closing = {WF_OK, ""};
    wf_file file;

    if (wf_file_open_in(&file, &wf_system_files, folder, ".", name, WF_FILE_READ_OWN, error) !=
        WF_OK)
        return error->code;
    wf_safetensors_read(&header, &file, error);
    for (int64_t i = 0; error->code == WF_OK && i < header.metadata_count; i++)
        text(arg, header.metadata[2 * i], header.metadata[2 * i + 1], error);
    if (error->code == WF_OK)
        read_all(k, &header, &file, error);
    wf_safetensors_close(&header);
    wf_file_close(&file, &closing);
    return error->code;
}
