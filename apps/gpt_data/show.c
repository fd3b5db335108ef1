/* apps/gpt_data/show.c - gpt_data show: what a pair of Megatron files has. */
#include "nn/dataset/manifest.h"
#include "nn/dataset/megatron_index.h"
#include "apps/gpt_data/commands.h"
#include "nn/text/tokenizer/tokenizer.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct pair {
    char index_name[4096], data_name[4096];
    int index, data;
    wf_megatron_index has;
} pair;

/* Returns true where one file of a pair was named instead of both. */
static bool is_of_pair(const char *name)
{
    size_t n = strlen(name);

    return n > 4 && (strcmp(name + n - 4, ".idx") == 0 || strcmp(name + n - 4, ".bin") == 0);
}

static wf_status open_pair(pair *p, const char *prefix, wf_error *error)
{
    struct stat s;

    snprintf(p->index_name, sizeof p->index_name, "%.4000s.idx", prefix);
    snprintf(p->data_name, sizeof p->data_name, "%.4000s.bin", prefix);
    p->index = open(p->index_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->index < 0)
        return wf_error_set(error, WF_EIO, "%s: %s%s", p->index_name, strerror(errno),
                            is_of_pair(prefix) ? ": PREFIX is a name without .bin and .idx"
                                               : "");
    p->data = open(p->data_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->data < 0 || fstat(p->data, &s) != 0)
        return wf_error_set(error, WF_EIO, "%s: %s", p->data_name, strerror(errno));
    if (wf_dataset_manifest_check(p->data_name, error) != WF_OK)
        return error->code;
    return wf_megatron_index_read(p->index, p->index_name, s.st_size, &p->has, error);
}

static wf_status read_at(int fd, const char *name, int64_t at, void *to, size_t bytes,
                         wf_error *error)
{
    ssize_t n = pread(fd, to, bytes, at);

    if (n == (ssize_t)bytes)
        return WF_OK;
    return wf_error_set(error, WF_EIO, "%s: %s", name,
                        n < 0 ? strerror(errno) : "it became shorter");
}

/* Reads the index of the first token of a sequence; after the last sequence the number of all
   tokens. */
static wf_status token_at(const pair *p, int64_t sequence, int64_t *token, wf_error *error)
{
    int64_t at = WF_MEGATRON_HEADER_SIZE + 4 * p->has.sequences + 8 * sequence;
    wf_status status = WF_OK;

    *token = p->has.tokens;
    if (sequence < p->has.sequences) {
        status = read_at(p->index, p->index_name, at, token, sizeof *token, error);
        *token /= wf_megatron_type_size(p->has.type);
    }
    return status;
}

/* Finds the bounds of a document, in tokens. */
static wf_status find_document(const pair *p, int64_t number, int64_t bounds[2],
                               wf_error *error)
{
    int64_t at = WF_MEGATRON_HEADER_SIZE + 12 * p->has.sequences + 8 * number, sequences[2];
    wf_status status;

    if (number >= p->has.documents)
        return wf_error_set(error, WF_EINVAL,
                            "--document %" PRId64 ": %s has %" PRId64 " documents, from 0 on",
                            number, p->index_name, p->has.documents);
    status = read_at(p->index, p->index_name, at, sequences, sizeof sequences, error);
    for (int i = 0; i < 2 && status == WF_OK; i++) {
        if (sequences[i] < 0 || sequences[i] > p->has.sequences)
            return wf_error_set(error, WF_EDATA,
                                "%s: document %" PRId64 " has no such sequence", p->index_name,
                                number);
        status = token_at(p, sequences[i], &bounds[i], error);
    }
    if (status == WF_OK &&
        (bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > p->has.tokens))
        status =
            wf_error_set(error, WF_EDATA, "%s: document %" PRId64 " lies outside of the data",
                         p->index_name, number);
    return status;
}

static int32_t id_of(const uint8_t *bytes, int64_t size)
{
    uint32_t id = 0;

    for (int64_t i = 0; i < size; i++)
        id |= (uint32_t)bytes[i] << 8 * i;
    return (int32_t)id;
}

static wf_status print_ids(const wf_tok *tokenizer, const uint8_t *bytes, int64_t count,
                           int64_t size, wf_error *error)
{
    wf_tok_bytes text = {0};
    wf_tok_stream stream = {0};
    wf_status status = WF_OK;

    for (int64_t i = 0; i < count && status == WF_OK; i++) {
        int32_t id = id_of(bytes + i * size, size);

        if (tokenizer)
            status = wf_tok_decode_next(tokenizer, &stream, id, 0, &text, error);
        else
            printf("%s%d", i ? " " : "", id);
    }
    if (status == WF_OK)
        status = wf_tok_decode_end(&stream, &text, error);
    wf_tok_print(text.data, text.bytes, stdout);
    if (status == WF_OK)
        putchar('\n');
    wf_tok_bytes_free(&text);
    return status;
}

static wf_status print_document(const pair *p, const app_gpt_data_request *q, wf_error *error)
{
    int64_t bounds[2], size = wf_megatron_type_size(p->has.type);
    wf_tok *tokenizer = NULL;
    uint8_t *bytes;

    if (find_document(p, q->document, bounds, error) != WF_OK ||
        (q->tokenizer && wf_tok_open(q->tokenizer, &tokenizer, error) != WF_OK))
        return error->code;
    bytes = malloc((size_t)((bounds[1] - bounds[0]) * size) + 1);
    if (!bytes)
        wf_error_set(error, WF_ENOMEM, "out of memory: document %" PRId64, q->document);
    else if (read_at(p->data, p->data_name, bounds[0] * size, bytes,
                     (size_t)((bounds[1] - bounds[0]) * size), error) == WF_OK)
        print_ids(tokenizer, bytes, bounds[1] - bounds[0], size, error);
    free(bytes);
    wf_tok_close(tokenizer);
    return error->code;
}

wf_status app_gpt_data_show(const app_gpt_data_request *q, wf_error *error)
{
    pair p = {.index = -1, .data = -1};
    wf_status status = open_pair(&p, q->files[0], error);

    if (status == WF_OK && q->document >= 0)
        status = print_document(&p, q, error);
    else if (status == WF_OK)
        printf("%s: %" PRId64 " tokens of %" PRId64 " bytes, %" PRId64 " sequences, %" PRId64
               " documents\n",
               p.data_name, p.has.tokens, wf_megatron_type_size(p.has.type), p.has.sequences,
               p.has.documents);
    if (p.index >= 0)
        close(p.index);
    if (p.data >= 0)
        close(p.data);
    return status;
}
