/*
 * tests/fuzz/fuzz_idx.c - 2 bytes: the size of the .bin file; then an .idx file of Megatron. Of
 * what is accepted, the sequences have to be the .bin file, one after the other, and the
 * documents all of them; windows find theirs.
 */
#include "nn/dataset/megatron_documents.h"
#include "tests/fuzz/fuzz.h"
#include <sys/mman.h>
#include <unistd.h>

/* Files that fuzzers make are small enough to be checked whole. */
static void check_arrays(const wf_megatron_index *index, const uint8_t *file, int64_t bin_size)
{
    int64_t size = wf_megatron_type_size(index->type), end = 0, before = 0;
    const uint8_t *lengths = file + WF_MEGATRON_HEADER_SIZE;
    const uint8_t *pointers = lengths + 4 * index->sequences;
    const uint8_t *bounds = pointers + 8 * index->sequences;

    PROMISE(index->tokens * size == bin_size);
    for (int64_t i = 0; i < index->sequences; i++) {
        int32_t length;
        int64_t pointer;

        memcpy(&length, lengths + 4 * i, 4);
        memcpy(&pointer, pointers + 8 * i, 8);
        PROMISE(length >= 0 && pointer == end);
        end += length * size;
    }
    PROMISE(end == bin_size);
    for (int64_t i = 0; i <= index->documents; i++) {
        int64_t bound;

        memcpy(&bound, bounds + 8 * i, 8);
        PROMISE(bound >= before && (i || bound == 0));
        before = bound;
    }
    PROMISE(before == index->sequences);
}

/* Finds all documents of a checked file, of a window and of the whole. */
static void check_documents(const wf_megatron_documents *d)
{
    static int32_t begins[1 << 16], window[1 << 16];
    int64_t tokens = d->index.tokens, first = tokens / 3, count = tokens / 2;
    wf_error error = {WF_OK, ""};

    PROMISE(wf_megatron_documents_begin(d, 0, tokens, begins, &error) == WF_OK);
    PROMISE(wf_megatron_documents_begin(d, first, count, window, &error) == WF_OK);
    PROMISE(memcmp(begins + first, window, (size_t)count * sizeof *window) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    wf_megatron_index index = {.type = WF_MEGATRON_U8};
    wf_error error = {WF_OK, ""};
    wf_status status;
    int64_t bin_size;

    if (size < 2)
        return 0;
    if (file < 0)
        file = memfd_create("idx", MFD_CLOEXEC);
    bin_size = data[0] | data[1] << 8;
    PROMISE(ftruncate(file, 0) == 0 &&
            pwrite(file, data + 2, size - 2, 0) == (ssize_t)(size - 2));
    status = wf_megatron_index_read(file, "f", bin_size, &index, &error);
    ANSWERED(status, error);
    if (status == WF_OK)
        check_arrays(&index, data + 2, bin_size);
    if (status == WF_OK)
        check_documents(&(wf_megatron_documents){file, "f", index});
    return 0;
}
