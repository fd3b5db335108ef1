/* nn/dataset/token_file.c - see token_file.h. Files are read with pread: shared by all ranks,
   no copy. */
#include "nn/dataset/token_file.h"
#include "nn/dataset/file_kind.h"
#include "core/files/input.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The header of llm.c's dev/data before the tokens of its two families of tokenizers. */
enum { LLMC_HEADER = 256 * 4, LLMC_QUESTIONS = 20240522 };
static const struct llmc_kind {
    int32_t magic, version;
    wf_token_type type;
} llmc_kinds[] = {{20240520, 1, WF_TOKEN_U16}, {20240801, 7, WF_TOKEN_U32}};

static int64_t type_size(wf_token_type type)
{
    return type == WF_TOKEN_U8 ? 1 : type == WF_TOKEN_U16 ? 2 : 4;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Raises the limit of descriptors as far as the system allows: a set of thousands of files
   needs more than are usual. */
static bool raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int wf_dataset_file_open(const char *name)
{
    int descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (descriptor < 0 && errno == EMFILE && raise_limit())
        descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return descriptor;
}

/* Returns whether a name lacks the ending of a set of token ids, as gpt_data's output has
   it. */
static bool is_pair(const char *name)
{
    char index[4200];

    return snprintf(index, sizeof index, "%s.idx", name) < (int)sizeof index &&
           access(index, R_OK) == 0;
}

/* Opens a regular file that is not empty. */
static wf_status open_regular(const char *name, const char *flag, int *descriptor,
                              int64_t *size, wf_error *error)
{
    struct stat info;

    *size = 0;
    *descriptor = wf_dataset_file_open(name);
    if (*descriptor < 0 || fstat(*descriptor, &info)) {
        int why = errno;

        if (why == ENOENT && is_pair(name))
            return wf_error_set(error, WF_EIO, "there is no data file %s: give %s.idx", name,
                                name);
        return wf_error_set(error, WF_EIO, "cannot open data file %s: %s", name, strerror(why));
    }
    if (!S_ISREG(info.st_mode))
        return wf_error_set(error, WF_EIO, "data file %s is %s; %s takes regular files", name,
                            S_ISDIR(info.st_mode) ? "a directory" : "not a regular file", flag);
    if (!info.st_size)
        return wf_error_set(error, WF_EINVAL, "data file %s is empty; leave it out of %s", name,
                            flag);
    *size = info.st_size;
    return WF_OK;
}

static wf_status open_llmc(wf_token_file *file, const struct llmc_kind *kind,
                           const int32_t *header, int64_t size, wf_error *error)
{
    int64_t tokens = header[2], bytes = LLMC_HEADER + tokens * type_size(kind->type);

    if (header[1] != kind->version)
        return wf_error_set(error, WF_EDATA,
                            "%s: its header of llm.c %d has version %d, and %d is known",
                            file->name, kind->magic, header[1], kind->version);
    if (tokens < 1 || size != bytes)
        return wf_error_set(
            error, WF_EDATA,
            "%s: its header of llm.c %d says %lld tokens, which with the header "
            "take %lld bytes, and it has %lld",
            file->name, kind->magic, (long long)tokens, (long long)bytes, (long long)size);
    file->format = "llm.c";
    file->type = kind->type;
    file->begin = LLMC_HEADER;
    file->tokens = tokens;
    return WF_OK;
}

/* idx: the open .idx file; file is its .bin file. */
static wf_status open_megatron(wf_token_file *file, int idx, const char *idx_name, int64_t size,
                               wf_error *error)
{
    wf_megatron_index index;

    if (wf_megatron_index_read(idx, idx_name, size, &index, error) != WF_OK)
        return error->code;
    file->documents.index = index;
    file->format = "Megatron";
    file->type = index.type == WF_MEGATRON_U8    ? WF_TOKEN_U8
                 : index.type == WF_MEGATRON_U16 ? WF_TOKEN_U16
                                                 : WF_TOKEN_I32;
    file->tokens = index.tokens;
    return WF_OK;
}

static wf_status open_headerless(wf_token_file *file, wf_token_count vocabulary, int64_t size,
                                 wf_error *error)
{
    if (!vocabulary.given)
        return wf_error_set(
            error, WF_EINVAL,
            "data file %s does not say what it has: there is no header of llm.c in it and no "
            ".idx file of Megatron beside it; give the vocabulary of its tokens, two bytes "
            "each, by .vocabulary N, or text another ending than .bin",
            file->name);
    if (size % 2)
        return wf_error_set(error, WF_EDATA,
                            "data file %s has %lld bytes, which are no whole tokens of two "
                            "bytes",
                            file->name, (long long)size);
    file->format = "u16";
    file->type = WF_TOKEN_U16;
    file->tokens = size / 2;
    return WF_OK;
}

/* Text is trained on byte by byte, and nothing that only looks like it. */
static wf_status open_text(wf_token_file *file, int64_t size, wf_error *error)
{
    const char *advice;
    const wf_dataset_file_kind kind =
        wf_dataset_file_look(file->descriptor, file->name, &advice);

    if (kind == WF_DATASET_FILE_ROWS)
        return wf_error_set(error, WF_EINVAL,
                            "data file %s has rows of JSON, whose braces and keys would be "
                            "trained on: convert it to token ids by gpt_data tokenize (rows of "
                            "chats: gpt_data chat)",
                            file->name);
    if (kind != WF_DATASET_FILE_TEXT)
        return wf_error_set(error, WF_EUNSUPPORTED, "data file %s %s", file->name, advice);
    file->format = "text";
    file->type = WF_TOKEN_U8;
    file->is_text = true;
    file->tokens = size;
    return WF_OK;
}

/* Opens a .bin file beside an .idx file, which is open if it is there. */
static wf_status open_bin(wf_token_file *file, const char *flag, wf_token_count vocabulary,
                          int idx, const char *idx_name, wf_error *error)
{
    int32_t header[LLMC_HEADER / 4] = {0};
    int64_t size;
    ssize_t got;

    if (open_regular(file->name, flag, &file->descriptor, &size, error) != WF_OK)
        return error->code;
    if (idx >= 0)
        return open_megatron(file, idx, idx_name, size, error);
    got = pread(file->descriptor, header, sizeof header, 0);
    if (got > 0 && wf_input_pointer(header, (size_t)got))
        return open_text(file, size, error);
    if (got == sizeof header)
        for (size_t k = 0; k < sizeof llmc_kinds / sizeof *llmc_kinds; k++)
            if (header[0] == llmc_kinds[k].magic)
                return open_llmc(file, &llmc_kinds[k], header, size, error);
    if (header[0] == LLMC_QUESTIONS)
        return wf_error_set(error, WF_EINVAL,
                            "data file %s has questions and answers of llm.c for evaluations, "
                            "which are not to be trained on",
                            file->name);
    if (memcmp(header, WF_MEGATRON_MAGIC, WF_MEGATRON_MAGIC_SIZE) == 0)
        return wf_error_set(error, WF_EINVAL,
                            "data file %s is an .idx file of Megatron; name it X.idx, with its "
                            "X.bin beside it",
                            file->name);
    if (ends_with(file->name, ".bin"))
        return open_headerless(file, vocabulary, size, error);
    return open_text(file, size, error);
}

wf_status wf_token_file_open(const char *name, const char *flag, wf_token_count vocabulary,
                             wf_token_file *file, wf_error *error)
{
    bool is_idx = ends_with(name, ".idx"), is_bin = ends_with(name, ".bin");
    char *idx_name = strdup(name);
    int64_t idx_size;
    int idx = -1;
    wf_status status = WF_OK;

    *file = (wf_token_file){.name = strdup(name),
                            .descriptor = -1,
                            .vocabulary = vocabulary.size,
                            .documents = {.descriptor = -1}};
    if (!file->name || !idx_name) {
        free(idx_name);
        return wf_error_set(error, WF_ENOMEM, "no memory for the data file's name");
    }
    if (is_idx)
        memcpy(file->name + strlen(name) - 4, ".bin", 4);
    if (is_bin)
        memcpy(idx_name + strlen(name) - 4, ".idx", 4);
    if (is_idx || (is_bin && access(idx_name, F_OK) == 0))
        status = open_regular(idx_name, flag, &idx, &idx_size, error);
    if (status == WF_OK)
        status = open_bin(file, flag, vocabulary, idx, idx_name, error);
    file->documents.descriptor = idx;
    file->documents.name = file->index_name = idx_name;
    return status;
}

void wf_token_file_close(wf_token_file *file)
{
    if (file->name && file->descriptor >= 0)
        close(file->descriptor);
    if (file->name && file->documents.descriptor >= 0)
        close(file->documents.descriptor);
    free(file->name);
    free(file->index_name);
    *file = (wf_token_file){.descriptor = -1};
}

/* Ids from what the file has; the largest of them as unsigned numbers. */
static uint32_t widen(wf_token_type type, const void *from, int64_t count, int32_t *ids)
{
    uint32_t largest = 0;

#define WIDEN(stored)                                                                          \
    for (int64_t i = 0; i < count; i++) {                                                      \
        uint32_t id = ((const stored *)from)[i];                                               \
        ids[i] = (int32_t)id;                                                                  \
        largest = id > largest ? id : largest;                                                 \
    }
    if (type == WF_TOKEN_U8) {
        WIDEN(uint8_t)
    } else if (type == WF_TOKEN_U16) {
        WIDEN(uint16_t)
    } else {
        WIDEN(uint32_t)
    }
#undef WIDEN
    return largest;
}

static wf_status outside(const wf_token_file *file, int64_t first, const int32_t *ids,
                         wf_error *error)
{
    int64_t i = 0, id;

    while ((uint32_t)ids[i] < (uint64_t)file->vocabulary)
        i++;
    id = file->type == WF_TOKEN_I32 ? ids[i] : (int64_t)(uint32_t)ids[i];
    return wf_error_set(error, WF_EDATA,
                        "%s: token %lld has id %lld, and the model's vocabulary has %lld: use "
                        "the tokenizer that belongs to the model, or a .vocabulary that has "
                        "the id",
                        file->name, (long long)(first + i), (long long)id,
                        (long long)file->vocabulary);
}

wf_status wf_token_file_read(const wf_token_file *file, int64_t first, int64_t count,
                             int32_t *ids, wf_error *error)
{
    int64_t size = type_size(file->type);
    _Alignas(8) char bytes[16384];

    while (count) {
        int64_t most = (int64_t)sizeof bytes / size, some = count < most ? count : most;
        int64_t at = file->begin + first * size;
        ssize_t got = pread(file->descriptor, bytes, (size_t)(some * size), at);

        if (got < 0 && errno == EINTR)
            continue;
        some = got / size; /* a part of a token is reread with its remainder */
        if (some <= 0)
            return wf_error_set(error, WF_EIO, "cannot read data file %s: %s", file->name,
                                got < 0 ? strerror(errno)
                                        : "it became shorter while it was in use");
        if (widen(file->type, bytes, some, ids) >= (uint64_t)file->vocabulary)
            return outside(file, first, ids, error);
        first += some;
        count -= some;
        ids += some;
    }
    return WF_OK;
}
