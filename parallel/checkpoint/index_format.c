/* parallel/checkpoint/index_format.c - writing index.json; see index.h. */
#include "core/files/checksum_internal.h"
#include "parallel/checkpoint/index_internal.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char checksum_key[] = "\"checksum\": \"", zeros[] = "0000000000000000";

const char *wf_index_kind_name(wf_index_kind kind)
{
    static const char *const name[] = {"sharded", "full", "local"};

    return name[kind];
}

char *wf_index_name(const char *path, int bit, char name[WF_INDEX_FULL_NAME])
{
    snprintf(name, WF_INDEX_FULL_NAME, "%s%s%s", path, bit ? "." : "", wf_nn_kept_suffix(bit));
    return name;
}

size_t wf_index_checksum_offset(const char *text, size_t bytes)
{
    const char *at = memmem(text, bytes, checksum_key, sizeof checksum_key - 1);
    size_t offset = at ? (size_t)(at - text) + sizeof checksum_key - 1 : 0;

    return at && bytes - offset >= sizeof zeros ? offset : 0;
}

wf_status wf_index_checksum(const char *text, size_t bytes, size_t offset, uint64_t *checksum)
{
    wf_checksum_stream *stream = wf_checksum_begin();
    size_t after = offset + sizeof zeros - 1;

    if (!stream)
        return WF_ENOMEM;
    wf_checksum_add(stream, text, offset);
    wf_checksum_add(stream, zeros, sizeof zeros - 1);
    wf_checksum_add(stream, text + after, bytes - after);
    *checksum = wf_checksum_end(stream);
    return WF_OK;
}

static json_t *number_text(uint64_t number)
{
    char text[WF_CHECKSUM_TEXT];

    return json_string(wf_checksum_print(number, text));
}

static json_t *describe_mesh(const wf_saved_mesh *mesh)
{
    json_t *axes = json_array();

    for (int a = 0; a < mesh->n_axes; a++)
        json_array_append_new(axes, json_pack("{s:s, s:i, s:b}", "name", mesh->name[a], "size",
                                              mesh->size[a], "fine", mesh->fine[a]));
    return axes;
}

static json_t *describe_tensor(const wf_index *index, const wf_index_tensor *t)
{
    json_t *kinds = json_array(), *shape = json_array(), *grain = json_array();
    json_t *layout = json_array(), *object;

    for (int k = 0; k < WF_INDEX_KINDS; k++)
        if (t->kinds >> k & 1)
            json_array_append_new(kinds, json_string(wf_nn_kept_suffix(k)));
    for (int d = 0; d < t->ndim; d++) {
        json_t *axes = json_array();

        for (int i = 0; i < t->layout.n_axes[d]; i++)
            json_array_append_new(axes, json_string(index->mesh.name[t->layout.axis[d][i]]));
        json_array_append_new(shape, json_integer(t->dim[d].size));
        json_array_append_new(grain, json_integer(t->dim[d].grain));
        json_array_append_new(layout, axes);
    }
    object = json_pack("{s:s, s:o, s:o, s:o, s:o}", "path", t->path, "kinds", kinds, "shape",
                       shape, "grain", grain, "layout", layout);
    if (wf_saved_mesh_pp(&index->mesh) >= 0 && t->layout.pp >= 0)
        json_object_set_new(object, "pp", json_integer(t->layout.pp));
    return object;
}

static json_t *describe(const wf_index *index)
{
    json_t *options = json_object(), *tensors = json_array(), *object;

    for (int64_t i = 0; i < index->option_count; i++)
        json_object_set_new(options, index->option[2 * i],
                            json_string(index->option[2 * i + 1]));
    for (int64_t i = 0; i < index->count; i++)
        json_array_append_new(tensors, describe_tensor(index, &index->tensor[i]));
    object = json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:I, s:I, s:o, s:s, s:o, s:o, s:o}",
                       "format", index->mesh.nested ? WF_INDEX_FORMAT_NESTED : WF_INDEX_FORMAT,
                       "checksum", zeros, "kind", wf_index_kind_name(index->kind), "step",
                       (json_int_t)index->step, "sequences", (json_int_t)index->sequences,
                       "digest", number_text(index->digest), "files", (json_int_t)index->files,
                       "bytes", (json_int_t)index->bytes, "files_checksum",
                       number_text(index->files_checksum), "strategy", index->strategy, "mesh",
                       describe_mesh(&index->mesh), "options", options, "tensors", tensors);
    if (index->skipped)
        json_object_set_new(object, "skipped", json_integer(index->skipped));
    if (index->fresh)
        json_object_set_new(object, "fresh", json_integer(index->fresh));
    return object;
}

/* Returns true where the object is complete: jansson drops entries that it has no memory
   for. */
static bool complete(const json_t *object, const wf_index *index)
{
    return object &&
           json_array_size(json_object_get(object, "tensors")) == (size_t)index->count &&
           json_object_size(json_object_get(object, "options")) ==
               (size_t)index->option_count &&
           json_array_size(json_object_get(object, "mesh")) == (size_t)index->mesh.n_axes;
}

static wf_status sign(char *text, size_t bytes, wf_error *error)
{
    size_t offset = wf_index_checksum_offset(text, bytes);
    char digits[WF_CHECKSUM_TEXT];
    uint64_t checksum;
    wf_status status = wf_index_checksum(text, bytes, offset, &checksum);

    if (status != WF_OK)
        return wf_error_set(error, status, "no memory for the checksum of the index");
    memcpy(text + offset, wf_checksum_print(checksum, digits), sizeof digits - 1);
    return WF_OK;
}

wf_status wf_index_format(const wf_index *index, char **text, size_t *bytes, wf_error *error)
{
    wf_index reread;
    wf_status status;
    json_t *object = describe(index);

    *text = complete(object, index) ? json_dumps(object, 0) : NULL;
    json_decref(object);
    if (*text) {
        *bytes = strlen(*text);
        status = sign(*text, *bytes, error);
    } else {
        status = wf_error_set(error, WF_ENOMEM,
                              "no memory for the index, or a text in it is no UTF-8");
    }
    /* an index that could not be parsed back is not written */
    if (status == WF_OK)
        status = wf_index_parse(&reread, "the index to be written", *text, *bytes, error);
    if (status == WF_OK) {
        wf_index_close(&reread);
        return WF_OK;
    }
    free(*text);
    *text = NULL;
    return status;
}
