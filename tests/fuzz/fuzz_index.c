/*
 * tests/fuzz/fuzz_index.c - the index of a checkpoint, signed anew so that its checksum is no
 * wall. Of what is accepted, the parts of every tensor have to hold each element once.
 */
#include "core/files/checksum_internal.h"
#include "parallel/checkpoint/index_internal.h"
#include "tests/fuzz/fuzz.h"

static wf_status count_part(void *arg, const int *coordinate, const wf_part *part)
{
    int64_t *count = arg;

    (void)coordinate;
    *count += wf_part_count(part);
    return WF_OK;
}

static void check_tensor(const wf_saved_mesh *mesh, const wf_index_tensor *t)
{
    int at[WF_MAX_AXES];
    wf_part whole = {.ndim = t->ndim};
    int64_t ranks = wf_saved_mesh_ranks(mesh), count = 0;

    for (int64_t r = 0; r<ranks; r += ranks> 1 ? ranks - 1 : 1) {
        wf_part part;

        wf_saved_mesh_coordinates(mesh, r, at);
        part = wf_saved_part(mesh, &t->layout, t->ndim, t->dim, at);
        for (int d = 0; d < t->ndim; d++)
            PROMISE(part.start[d] >= 0 && part.local[d] >= 0 &&
                    part.start[d] + part.local[d] <= t->dim[d].size);
        PROMISE(wf_saved_writer(mesh, &t->layout, t->ndim, 7, at) < ranks);
    }
    if (ranks > 256)
        return;
    for (int d = 0; d < t->ndim; d++)
        whole.local[d] = t->dim[d].size;
    wf_saved_parts_visit(mesh, &t->layout, t->ndim, t->dim, &whole, count_part, &count);
    PROMISE(count == wf_part_count(&whole));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    char *text = malloc(size + 1), *again, digits[WF_CHECKSUM_TEXT];
    size_t offset = wf_index_checksum_offset((const char *)data, size), bytes;
    uint64_t checksum;
    wf_index index;
    wf_status status;

    PROMISE(text);
    memcpy(text, data, size);
    if (offset && wf_index_checksum(text, size, offset, &checksum) == WF_OK)
        memcpy(text + offset, wf_checksum_print(checksum, digits), sizeof digits - 1);
    status = wf_index_parse(&index, "i", text, size, &error);
    ANSWERED(status, error);
    for (int64_t i = 0; i < index.count; i++)
        check_tensor(&index.mesh, &index.tensor[i]);
    if (status == WF_OK) {
        PROMISE(wf_index_format(&index, &again, &bytes, &error) == WF_OK);
        free(again);
    }
    wf_index_close(&index);
    free(text);
    return 0;
}
