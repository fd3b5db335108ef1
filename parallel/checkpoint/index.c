/* parallel/checkpoint/index.c - reading and writing index.json; see the header. */
#include "parallel/checkpoint/index_internal.h"
#include "core/files/checksum_internal.h"
#include "parallel/formats/json_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bounds that keep every product of cuts, shapes and ranks within 64 bits. */
static const int64_t most_size = (int64_t)1 << 40, most_count = (int64_t)1 << 56;
static const int64_t most_ranks = 1 << 20, most_bytes = (int64_t)1 << 60;
/* the largest step in a name of a checkpoint */
static const int64_t most_steps = 999999999999999;

enum { INDEX_DEPTH = 5 }; /* index, tensors, tensor, its layout, axes of a dim */

static wf_status wrong(const wf_json_source *s, const char *what)
{
    return wf_error_set(s->error, WF_EDATA, "%s is no index that can be used: %s", s->name,
                        what);
}

static wf_status no_memory(const wf_json_source *s)
{
    return wf_error_set(s->error, WF_ENOMEM, "no memory for the index %s", s->name);
}

static wf_status check_checksum(const wf_json_source *s, const char *text, size_t bytes)
{
    size_t at = wf_index_checksum_offset(text, bytes);
    char digits[WF_CHECKSUM_TEXT] = "";
    uint64_t stated, found;

    if (at)
        memcpy(digits, text + at, sizeof digits - 1);
    if (!wf_checksum_parse(digits, &stated))
        return wrong(s, "its checksum is missing");
    if (wf_index_checksum(text, bytes, at, &found) != WF_OK)
        return no_memory(s);
    return found == stated ? WF_OK : wrong(s, "its checksum does not match: it was changed");
}

static wf_status parse_axis(const wf_json_source *s, const json_t *object, wf_saved_mesh *mesh)
{
    const wf_json_source axis = {s->name, object, s->error};
    int n = mesh->n_axes;
    const char *name;
    int64_t size;
    wf_status status;

    status = wf_json_text(&axis, "name", WF_AXIS_NAME, NULL, &name);
    if (status == WF_OK)
        status = wf_json_int(&axis, "size", 1, most_ranks, NULL, &size);
    if (status == WF_OK)
        status = wf_json_bool(&axis, "fine", NULL, &mesh->fine[n]);
    if (status != WF_OK)
        return status;
    for (int a = 0; a < n; a++)
        if (strcmp(mesh->name[a], name) == 0)
            return wrong(s, "two axes of its mesh have the same name");
    memcpy(mesh->name[n], name, strlen(name) + 1);
    mesh->size[n] = (int)size;
    mesh->n_axes++;
    return wf_saved_mesh_ranks(mesh) <= most_ranks ? WF_OK
                                                   : wrong(s, "its mesh has too many ranks");
}

static wf_status parse_mesh(const wf_json_source *s, wf_saved_mesh *mesh)
{
    const json_t *axes;
    wf_status status = wf_json_array(s, "mesh", 0, WF_MAX_AXES, &axes);

    for (size_t i = 0; status == WF_OK && i < json_array_size(axes); i++)
        status = parse_axis(s, json_array_get(axes, i), mesh);
    return status;
}

static wf_status parse_options(const wf_json_source *s, wf_index *index)
{
    const json_t *options;
    const char *key;
    json_t *value;
    wf_status status = wf_json_object(s, "options", &options);

    if (status != WF_OK)
        return status;
    index->option = calloc(2 * json_object_size(options) + 1, sizeof *index->option);
    if (!index->option)
        return no_memory(s);
    json_object_foreach((json_t *)options, key, value)
    {
        char **pair = index->option + 2 * index->option_count;

        if (!json_is_string(value) || json_string_length(value) >= WF_INDEX_OPTION || !*key ||
            strlen(key) >= WF_INDEX_NAME || !wf_json_printable(key))
            return wrong(s, "an option is no text, or its name or value is too long");
        pair[0] = strdup(key);
        pair[1] = strdup(json_string_value(value));
        index->option_count++;
        if (!pair[0] || !pair[1])
            return no_memory(s);
    }
    return WF_OK;
}

static wf_status parse_kinds(const wf_json_source *s, wf_index_tensor *t)
{
    const json_t *list;
    wf_status status = wf_json_array(s, "kinds", 1, WF_INDEX_KINDS, &list);

    for (size_t i = 0; status == WF_OK && i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        unsigned bit = 0;

        for (int k = 0; text && k < WF_INDEX_KINDS; k++)
            bit |= strcmp(text, wf_nn_kept_suffix(k)) == 0 ? 1u << k : 0;
        if (!bit || (t->kinds & bit))
            return wrong(s, "the kinds of a tensor are not among \"\", \"m\", \"v\", \"s\" and "
                            "\"ema\", each once");
        t->kinds |= bit;
    }
    return status;
}

/* Checks the entries of a path: the parameter's comes first, each kind once and in their
   order. */
static wf_status check_order(const wf_json_source *s, const wf_index *index)
{
    const wf_index_tensor *t = &index->tensor[index->count - 1];
    bool first = index->count == 1 || strcmp(t[-1].path, t->path) != 0;

    if (first && !(t->kinds & WF_INDEX_VALUE))
        return wrong(s, "a tensor has moments, but no values");
    if (first)
        return WF_OK;
    for (int64_t i = index->count - 2; i >= 0 && strcmp(index->tensor[i].path, t->path) == 0;
         i--)
        if (index->tensor[i].kinds & t->kinds)
            return wrong(s, "two tensors of one path have the same kind");
    return (t[-1].kinds & -t[-1].kinds) < (t->kinds & -t->kinds)
               ? WF_OK
               : wrong(s, "the tensors of a path are not in the order of their kinds");
}

static wf_status parse_shape(const wf_json_source *s, wf_index_tensor *t)
{
    const json_t *shape, *grain;
    int64_t count = 1;
    wf_status status = wf_json_array(s, "shape", 0, WF_MAX_DIMS, &shape);

    if (status == WF_OK)
        status =
            wf_json_array(s, "grain", json_array_size(shape), json_array_size(shape), &grain);
    if (status != WF_OK)
        return status;
    t->ndim = (int)json_array_size(shape);
    for (int d = 0; d < t->ndim; d++) {
        const json_t *n = json_array_get(shape, (size_t)d),
                     *g = json_array_get(grain, (size_t)d);

        t->dim[d] = (wf_dim){json_integer_value(n), json_integer_value(g), 0};
        if (!json_is_integer(n) || t->dim[d].size < 0 || t->dim[d].size > most_size)
            return wrong(s, "a size of a tensor is no whole number in [0, 2^40]");
        if (!json_is_integer(g) || t->dim[d].grain < 1 || t->dim[d].size % t->dim[d].grain)
            return wrong(s, "a grain of a tensor does not divide its size");
        if (t->dim[d].size && count > most_count / t->dim[d].size)
            return wrong(s, "a tensor has more than 2^56 elements");
        count *= t->dim[d].size;
    }
    return WF_OK;
}

/* The axes of one dim. No layout cuts between grains what was cut inside them before. */
static wf_status parse_splits(const wf_json_source *s, const wf_saved_mesh *mesh,
                              const json_t *list, int d, bool *taken, wf_index_tensor *t)
{
    bool fine = false;

    if (!json_is_array(list) || json_array_size(list) > (size_t)mesh->n_axes)
        return wrong(s, "the layout of a dim is no list of axes of the mesh");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int axis = 0;

        while (name && axis < mesh->n_axes && strcmp(mesh->name[axis], name) != 0)
            axis++;
        if (!name || axis == mesh->n_axes || taken[axis])
            return wrong(s, "a layout has an axis twice, or one that the mesh has not");
        if (fine && !mesh->fine[axis] && t->dim[d].grain > 1)
            return wrong(s, "a layout cuts between grains what was cut inside them before");
        taken[axis] = true;
        fine = fine || mesh->fine[axis];
        t->layout.axis[d][t->layout.n_axes[d]++] = axis;
    }
    return WF_OK;
}

/* Which pipeline ranks wrote it, where that is said. */
static wf_status parse_pp(const wf_json_source *s, const wf_saved_mesh *mesh, const bool *taken,
                          wf_index_tensor *t)
{
    int axis = wf_saved_mesh_pp(mesh);
    int64_t pp;
    wf_status status;

    t->layout.pp = -1;
    if (!json_object_get(s->object, "pp"))
        return WF_OK;
    if (axis < 0 || taken[axis])
        return wrong(s, "a tensor is of a pipeline rank, and no axis \"pp\" is left for it");
    status = wf_json_int(s, "pp", 0, mesh->size[axis] - 1, NULL, &pp);
    t->layout.pp = status == WF_OK ? (int)pp : -1;
    return status;
}

static wf_status parse_layout(const wf_json_source *s, const wf_saved_mesh *mesh,
                              wf_index_tensor *t)
{
    bool taken[WF_MAX_AXES] = {false};
    const json_t *layout;
    wf_status status = wf_json_array(s, "layout", (size_t)t->ndim, (size_t)t->ndim, &layout);

    for (int d = 0; status == WF_OK && d < t->ndim; d++)
        status = parse_splits(s, mesh, json_array_get(layout, (size_t)d), d, taken, t);
    return status == WF_OK ? parse_pp(s, mesh, taken, t) : status;
}

static wf_status parse_tensor(const wf_json_source *s, const json_t *object, wf_index *index)
{
    wf_index_tensor *t = &index->tensor[index->count];
    const wf_json_source tensor = {s->name, object, s->error};
    const char *path;
    wf_status status = wf_json_text(&tensor, "path", WF_INDEX_NAME, NULL, &path);

    if (status != WF_OK)
        return status;
    if (!*path || (index->count && strcmp(t[-1].path, path) > 0))
        return wrong(s, "its tensors are not in the order of their paths");
    if (!(t->path = strdup(path)))
        return no_memory(s);
    index->count++;
    status = parse_kinds(&tensor, t);
    if (status == WF_OK)
        status = check_order(s, index);
    if (status == WF_OK)
        status = parse_shape(&tensor, t);
    if (status == WF_OK)
        status = parse_layout(&tensor, &index->mesh, t);
    return status;
}

static wf_status parse_tensors(const wf_json_source *s, wf_index *index)
{
    const json_t *list;
    wf_status status = wf_json_array(s, "tensors", 0, WF_INDEX_BYTES, &list);

    if (status != WF_OK)
        return status;
    index->tensor = calloc(json_array_size(list) + 1, sizeof *index->tensor);
    if (!index->tensor)
        return no_memory(s);
    for (size_t i = 0; status == WF_OK && i < json_array_size(list); i++)
        status = parse_tensor(s, json_array_get(list, i), index);
    return status;
}

static wf_status parse_kind(const wf_json_source *s, wf_index *index)
{
    const char *text;
    wf_status status = wf_json_text(s, "kind", WF_INDEX_NAME, NULL, &text);

    for (wf_index_kind k = WF_INDEX_SHARDED; status == WF_OK && k <= WF_INDEX_LOCAL; k++)
        if (strcmp(text, wf_index_kind_name(k)) == 0) {
            index->kind = k;
            return WF_OK;
        }
    return status != WF_OK ? status : wrong(s, "its kind is none of sharded, full and local");
}

static wf_status parse_numbers(const wf_json_source *s, wf_index *index)
{
    const int64_t none = 0;
    const char *strategy;
    wf_status status = parse_kind(s, index);

    if (status == WF_OK)
        status = wf_json_int(s, "step", 0, most_steps, NULL, &index->step);
    if (status == WF_OK)
        status = wf_json_int(s, "skipped", 0, index->step, &none, &index->skipped);
    if (status == WF_OK)
        status = wf_json_int(s, "fresh", 0, index->step, &none, &index->fresh);
    if (status == WF_OK)
        status = wf_json_int(s, "sequences", 0, most_bytes, NULL, &index->sequences);
    if (status == WF_OK)
        status = wf_json_checksum(s, "digest", &index->digest);
    if (status == WF_OK)
        status = wf_json_int(s, "files", 1, most_ranks, NULL, &index->files);
    if (status == WF_OK)
        status = wf_json_int(s, "bytes", 0, most_bytes, NULL, &index->bytes);
    if (status == WF_OK)
        status = wf_json_checksum(s, "files_checksum", &index->files_checksum);
    if (status == WF_OK)
        status = wf_json_text(s, "strategy", sizeof index->strategy, NULL, &strategy);
    if (status == WF_OK)
        memcpy(index->strategy, strategy, strlen(strategy) + 1);
    return status;
}

static wf_status parse_index(const wf_json_source *s, const char *text, size_t bytes,
                             wf_index *index)
{
    const char *format;
    wf_status status = check_checksum(s, text, bytes);

    if (status == WF_OK)
        status = wf_json_text(s, "format", WF_INDEX_NAME, NULL, &format);
    if (status == WF_OK) {
        index->mesh.nested = strcmp(format, WF_INDEX_FORMAT_NESTED) == 0;
        if (!index->mesh.nested && strcmp(format, WF_INDEX_FORMAT) != 0)
            return wf_error_set(
                s->error, WF_EDATA,
                "%s has format \"%.80s\", and this version reads \"%s\" and \"%s\" alone",
                s->name, format, WF_INDEX_FORMAT, WF_INDEX_FORMAT_NESTED);
    }
    if (status == WF_OK)
        status = parse_numbers(s, index);
    if (status == WF_OK)
        status = parse_mesh(s, &index->mesh);
    if (status == WF_OK &&
        index->files != (index->kind == WF_INDEX_FULL ? 1 : wf_saved_mesh_ranks(&index->mesh)))
        return wrong(s, "\"files\" is not as many as its kind has on its mesh");
    if (status == WF_OK)
        status = parse_options(s, index);
    if (status == WF_OK)
        status = parse_tensors(s, index);
    return status;
}

wf_status wf_index_parse(wf_index *index, const char *name, const char *text, size_t bytes,
                         wf_error *error)
{
    wf_json_source s = {.name = name, .error = error};
    json_t *object;
    wf_status status = bytes <= WF_INDEX_BYTES ? WF_OK : wrong(&s, "it is too large");

    memset(index, 0, sizeof *index);
    if (status == WF_OK)
        status = wf_json_parse(&object, name, text, bytes, INDEX_DEPTH, error);
    if (status != WF_OK)
        return status;
    s.object = object;
    status = parse_index(&s, text, bytes, index);
    json_decref(object);
    if (status != WF_OK)
        wf_index_close(index);
    return status;
}

wf_status wf_index_read(wf_index *index, const wf_folder *folder, const char *name,
                        wf_error *error)
{
    char *text = NULL;
    size_t bytes;
    wf_file file;
    wf_status status = wf_folder_file(folder, name, WF_FILE_READ, &file, error);

    memset(index, 0, sizeof *index);
    if (status == WF_OK)
        status = wf_file_take(&file, WF_INDEX_BYTES, &text, &bytes, error);
    if (status == WF_OK)
        status = wf_index_parse(index, file.path, text, bytes, error);
    free(text);
    return status;
}

void wf_index_close(wf_index *index)
{
    for (int64_t i = 0; i < 2 * index->option_count; i++)
        free(index->option[i]);
    for (int64_t i = 0; i < index->count; i++)
        free(index->tensor[i].path);
    free(index->option);
    free(index->tensor);
    memset(index, 0, sizeof *index);
}
