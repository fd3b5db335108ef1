/* nn/dataset/megatron_index.c - see megatron_index.h. */
#include "nn/dataset/megatron_index.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUN = 1024, RUNS = 64 };

/* A file while it is checked. */
typedef struct reader {
    int descriptor;
    const char *name;
    int64_t size, bin_size;
    int64_t sequences, bounds; /* counts of the arrays' entries */
    int64_t token_size;
} reader;

int64_t wf_megatron_type_size(wf_megatron_type type)
{
    return type == WF_MEGATRON_U8    ? 1
           : type == WF_MEGATRON_U16 ? 2
           : type == WF_MEGATRON_I32 ? 4
                                     : 0;
}

static wf_status read_at(const reader *r, int64_t at, void *to, int64_t size, wf_error *error)
{
    char *bytes = to;

    while (size) {
        ssize_t got = pread(r->descriptor, bytes, (size_t)size, at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return wf_error_set(error, WF_EIO, "cannot read %s: %s", r->name,
                                got < 0 ? strerror(errno)
                                        : "it became shorter while it was in use");
        at += got;
        bytes += got;
        size -= got;
    }
    return WF_OK;
}

static wf_status read_header(reader *r, wf_megatron_index *index, wf_error *error)
{
    unsigned char header[WF_MEGATRON_HEADER_SIZE];
    int64_t version;

    if (r->size < WF_MEGATRON_HEADER_SIZE)
        return wf_error_set(error, WF_EDATA,
                            "%s has %lld bytes, and the header of an .idx file has %d", r->name,
                            (long long)r->size, WF_MEGATRON_HEADER_SIZE);
    if (read_at(r, 0, header, sizeof header, error) != WF_OK)
        return error->code;
    if (memcmp(header, WF_MEGATRON_MAGIC, WF_MEGATRON_MAGIC_SIZE) != 0)
        return wf_error_set(
            error, WF_EDATA,
            "%s does not begin with MMIDIDX, so it is no .idx file of Megatron%s", r->name,
            memcmp(header, "TNTIDX", 6) == 0
                ? ", but one of its older TNTIDX ones: rewrite it with a newer version"
                : "");
    memcpy(&version, header + 9, 8);
    memcpy(&r->sequences, header + 18, 8);
    memcpy(&r->bounds, header + 26, 8);
    index->type = header[17];
    r->token_size = wf_megatron_type_size(index->type);
    if (version != WF_MEGATRON_VERSION)
        return wf_error_set(error, WF_EDATA, "%s: its version is %llu, and %d is known",
                            r->name, (unsigned long long)version, WF_MEGATRON_VERSION);
    if (!r->token_size)
        return wf_error_set(error, WF_EDATA,
                            "%s: the code of its tokens' type is %d; token ids are 1 (u8), "
                            "4 (i32) or 8 (u16)",
                            r->name, (int)index->type);
    return WF_OK;
}

/* Checks both counts, which have 64 bits and may have any value: they are bounded before they
   are multiplied. */
static wf_status check_counts(const reader *r, wf_error *error)
{
    int64_t rest = r->size - WF_MEGATRON_HEADER_SIZE, arrays;

    if (r->sequences < 1 || r->sequences > rest / 12)
        return wf_error_set(error, WF_EDATA,
                            "%s: its count of sequences is %llu, which take 12 bytes each, and "
                            "after the header it has %lld bytes",
                            r->name, (unsigned long long)r->sequences, (long long)rest);
    if (r->bounds < 2 || r->bounds > (rest - 12 * r->sequences) / 8)
        return wf_error_set(
            error, WF_EDATA,
            "%s: its count of document bounds is %llu, which are at least 2 and "
            "take 8 bytes each, and after %lld sequences it has %lld bytes",
            r->name, (unsigned long long)r->bounds, (long long)r->sequences,
            (long long)(rest - 12 * r->sequences));
    arrays = 12 * r->sequences + 8 * r->bounds;
    if (rest != arrays && rest != arrays + r->sequences) /* modes of multimodal data */
        return wf_error_set(error, WF_EDATA,
                            "%s has %lld bytes, and %lld sequences with %lld document bounds "
                            "take %lld",
                            r->name, (long long)r->size, (long long)r->sequences,
                            (long long)r->bounds,
                            (long long)(arrays + WF_MEGATRON_HEADER_SIZE));
    if (!r->bin_size || r->bin_size % r->token_size)
        return wf_error_set(error, WF_EDATA,
                            "%s: its .bin file has %lld bytes, which are no whole tokens of "
                            "%lld bytes",
                            r->name, (long long)r->bin_size, (long long)r->token_size);
    return WF_OK;
}

static wf_status check_sequence(const reader *r, int64_t i, int32_t length, int64_t pointer,
                                int64_t next, wf_error *error)
{
    if (length < 0)
        return wf_error_set(error, WF_EDATA, "%s: the length of sequence %lld is %d", r->name,
                            (long long)i, length);
    if (pointer < 0 || pointer > r->bin_size - length * r->token_size)
        return wf_error_set(error, WF_EDATA,
                            "%s: the pointer of sequence %lld is %lld, and with %d tokens of "
                            "%lld bytes it ends outside of the .bin file's %lld bytes",
                            r->name, (long long)i, (long long)pointer, length,
                            (long long)r->token_size, (long long)r->bin_size);
    if (pointer + length * r->token_size != next)
        return wf_error_set(error, WF_EDATA,
                            "%s: sequence %lld begins at byte %lld and has %d tokens of %lld "
                            "bytes, but %s at byte %lld; sequences have to lie one after the "
                            "other",
                            r->name, (long long)i, (long long)pointer, length,
                            (long long)r->token_size,
                            i + 1 < r->sequences ? "the next one begins" : "the .bin file ends",
                            (long long)next);
    return WF_OK;
}

/* Checks sequences first .. first + count - 1, and that the one after them begins where they
   end. */
static wf_status check_sequences(const reader *r, int64_t first, int64_t count, wf_error *error)
{
    int32_t lengths[RUN];
    int64_t pointers[RUN + 1], pointers_at = WF_MEGATRON_HEADER_SIZE + 4 * r->sequences;
    bool ends = first + count == r->sequences;

    read_at(r, WF_MEGATRON_HEADER_SIZE + 4 * first, lengths, 4 * count, error);
    if (error->code != WF_OK ||
        read_at(r, pointers_at + 8 * first, pointers, 8 * (count + !ends), error) != WF_OK)
        return error->code;
    if (ends)
        pointers[count] = r->bin_size;
    if (first == 0 && pointers[0] != 0)
        return wf_error_set(error, WF_EDATA, "%s: the pointer of sequence 0 is %lld, not 0",
                            r->name, (long long)pointers[0]);
    for (int64_t i = 0; i < count; i++)
        if (check_sequence(r, first + i, lengths[i], pointers[i], pointers[i + 1], error) !=
            WF_OK)
            return error->code;
    return WF_OK;
}

/* Bounds first .. first + count - 1, and that the first of them is no smaller than the one
   before it. */
static wf_status check_bounds(const reader *r, int64_t first, int64_t count, wf_error *error)
{
    int64_t bounds[RUN + 1], at = WF_MEGATRON_HEADER_SIZE + 12 * r->sequences;
    int64_t from = first ? first - 1 : 0, read = first + count - from;

    if (read_at(r, at + 8 * from, bounds, 8 * read, error) != WF_OK)
        return error->code;
    for (int64_t i = 0; i < read; i++) {
        int64_t low = from + i == r->bounds - 1 ? r->sequences : i ? bounds[i - 1] : 0;
        int64_t high = from + i == 0 ? 0 : r->sequences;

        if (bounds[i] < low || bounds[i] > high)
            return wf_error_set(error, WF_EDATA,
                                "%s: document bound %lld is %lld; bounds begin with 0, never "
                                "fall, and end with the %lld sequences",
                                r->name, (long long)(from + i), (long long)bounds[i],
                                (long long)r->sequences);
    }
    return WF_OK;
}

/* Checks all of an array, or RUNS runs of it, the first and the last ones among them. */
static wf_status check_array(const reader *r, int64_t entries,
                             wf_status (*check)(const reader *r, int64_t first, int64_t count,
                                                wf_error *error),
                             wf_error *error)
{
    int64_t runs = (entries + RUN - 1) / RUN;

    if (runs > RUNS)
        runs = RUNS;
    for (int64_t k = 0; k < runs; k++) {
        int64_t count = entries < RUN ? entries : RUN, steps = runs > 1 ? runs - 1 : 1;
        /* (entries - count) k / steps, whose product could overflow */
        int64_t first = (entries - count) / steps * k + (entries - count) % steps * k / steps;

        if (check(r, first, count, error) != WF_OK)
            return error->code;
    }
    return WF_OK;
}

wf_status wf_megatron_index_read(int descriptor, const char *name, int64_t bin_size,
                                 wf_megatron_index *index, wf_error *error)
{
    reader r = {.descriptor = descriptor, .name = name, .bin_size = bin_size};
    struct stat info;

    if (fstat(descriptor, &info) != 0)
        return wf_error_set(error, WF_EIO, "cannot read %s: %s", name, strerror(errno));
    r.size = info.st_size;
    if (read_header(&r, index, error) != WF_OK || check_counts(&r, error) != WF_OK ||
        check_array(&r, r.sequences, check_sequences, error) != WF_OK ||
        check_array(&r, r.bounds, check_bounds, error) != WF_OK)
        return error->code;
    index->sequences = r.sequences;
    index->documents = r.bounds - 1;
    index->tokens = bin_size / r.token_size;
    return WF_OK;
}
