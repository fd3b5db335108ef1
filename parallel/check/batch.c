/* parallel/check/batch.c - the batch of a check: token ids, which of them are predicted,
   documents. */
#include "parallel/check/check_internal.h"
#include <stdlib.h>
#include <string.h>

enum { IGNORED = -100 }; /* a label of torch's cross_entropy that does not count */

typedef struct reader {
    wf_check_files files;
    wf_check_batch *batch;
    const wf_check_sizes *sizes;
    wf_error *error;
} reader;

/* Reads a field [sequences, tokens], or [tokens] for one sequence; *numbers NULL: there is
   none. */
static wf_status read_field(reader *r, const char *name, int64_t **numbers)
{
    wf_check_batch *b = r->batch;
    int64_t file, sequences, tokens;
    const wf_safetensors_entry *e = wf_check_files_find(&r->files, name, &file);
    char text[96];

    *numbers = NULL;
    if (!e)
        return WF_OK;
    sequences = e->ndim == 2 ? e->shape[0] : 1;
    tokens = e->ndim == 2 ? e->shape[1] : e->ndim == 1 ? e->shape[0] : 0;
    if (e->ndim > 2 || sequences < 1 || tokens < 1 ||
        (b->tokens && (sequences != b->sequences || tokens != b->tokens)))
        return wf_error_set(r->error, WF_EDATA,
                            "%s: \"%s\" is %s, and has to be [sequences, tokens]%s",
                            r->files.path, name, wf_check_shape(e->ndim, e->shape, text),
                            b->tokens ? ", as input_ids" : "");
    b->sequences = sequences;
    b->tokens = tokens;
    return wf_check_files_integers(&r->files, e, file, numbers, r->error);
}

static wf_status no_memory(reader *r)
{
    return wf_error_set(r->error, WF_ENOMEM, "no memory for a batch of %lld x %lld tokens",
                        (long long)r->batch->sequences, (long long)r->batch->tokens);
}

static wf_status take_ids(reader *r)
{
    wf_check_batch *b = r->batch;
    int64_t *ids;

    if (read_field(r, "input_ids", &ids) != WF_OK)
        return r->error->code;
    if (!ids)
        return wf_error_set(r->error, WF_EDATA, "%s has no tensor \"input_ids\"",
                            r->files.path);
    b->ids = malloc((size_t)(b->sequences * b->tokens) * sizeof *b->ids);
    b->labels = malloc((size_t)(b->sequences * b->tokens) * sizeof *b->labels);
    if (!b->ids || !b->labels)
        no_memory(r);
    else if (b->tokens < 2 || b->tokens > r->sizes->positions)
        wf_error_set(
            r->error, WF_EINVAL,
            "%s: sequences of %lld tokens: at least 2 are needed, and the model has %lld "
            "positions",
            r->files.path, (long long)b->tokens, (long long)r->sizes->positions);
    for (int64_t i = 0; r->error->code == WF_OK && i < b->sequences * b->tokens; i++) {
        if (ids[i] < 0 || ids[i] >= r->sizes->vocabulary)
            wf_error_set(r->error, WF_EDATA,
                         "%s: input_ids[%lld, %lld] is %lld, and the model has %lld tokens",
                         r->files.path, (long long)(i / b->tokens), (long long)(i % b->tokens),
                         (long long)ids[i], (long long)r->sizes->vocabulary);
        b->ids[i] = b->labels[i] = (int32_t)ids[i];
    }
    free(ids);
    return r->error->code;
}

static wf_status take_labels(reader *r)
{
    wf_check_batch *b = r->batch;
    int64_t *labels, *mask = NULL;

    if (read_field(r, "labels", &labels) == WF_OK)
        read_field(r, "loss_mask", &mask);
    if (labels && mask)
        wf_error_set(r->error, WF_EINVAL,
                     "%s has both \"labels\" and \"loss_mask\": give one of the two",
                     r->files.path);
    b->has_labels = labels || mask;
    for (int64_t i = 0; r->error->code == WF_OK && i < b->sequences * b->tokens; i++) {
        if (mask)
            b->labels[i] = mask[i] ? b->labels[i] : IGNORED;
        if (labels && labels[i] != IGNORED &&
            (labels[i] < 0 || labels[i] >= r->sizes->vocabulary))
            wf_error_set(
                r->error, WF_EDATA,
                "%s: labels[%lld, %lld] is %lld: it has to be %d, which does not count, "
                "or one of %lld tokens",
                r->files.path, (long long)(i / b->tokens), (long long)(i % b->tokens),
                (long long)labels[i], IGNORED, (long long)r->sizes->vocabulary);
        else if (labels)
            b->labels[i] = (int32_t)labels[i];
    }
    free(labels);
    free(mask);
    return r->error->code;
}

/* Documents of numbers, or of positions that restart at 0. */
static wf_status put_documents(reader *r, const int64_t *position, const int64_t *document)
{
    wf_check_batch *b = r->batch;
    const int64_t n = b->sequences * b->tokens;

    b->first = malloc((size_t)n * sizeof *b->first);
    b->position = malloc((size_t)n * sizeof *b->position);
    if (!b->first || !b->position)
        return no_memory(r);
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = i % b->tokens;
        bool begins = t == 0 || (position && position[i] == 0) ||
                      (document && document[i] != document[i - 1]);

        b->first[i] = begins ? (int32_t)t : b->first[i - 1];
        b->position[i] = (int32_t)t - b->first[i];
        b->has_documents |= begins && t > 0;
        if (position && position[i] != b->position[i])
            return wf_error_set(r->error, WF_EUNSUPPORTED,
                                "%s: position_ids[%lld, %lld] is %lld where %d would follow: "
                                "positions count from 0 in each document",
                                r->files.path, (long long)(i / b->tokens), (long long)t,
                                (long long)position[i], b->position[i]);
    }
    return WF_OK;
}

static wf_status take_documents(reader *r)
{
    int64_t *position, *document = NULL;

    if (read_field(r, "position_ids", &position) == WF_OK)
        read_field(r, "documents", &document);
    if (r->error->code == WF_OK && (position || document))
        put_documents(r, position, document);
    free(position);
    free(document);
    return r->error->code;
}

/* Checks that padding comes after its text only, where it changes nothing before it. */
static wf_status check_padding(reader *r)
{
    const wf_check_batch *b = r->batch;
    int64_t *mask;

    if (read_field(r, "attention_mask", &mask) != WF_OK || !mask)
        return r->error->code;
    for (int64_t i = 0; r->error->code == WF_OK && i < b->sequences * b->tokens; i++) {
        const int64_t t = i % b->tokens;

        if (!mask[i] &&
            (b->labels[i] != IGNORED || (t + 1 < b->tokens && b->labels[i + 1] != IGNORED)))
            wf_error_set(r->error, WF_EUNSUPPORTED,
                         "%s: attention_mask[%lld, %lld] is 0, and the loss counts there: pad "
                         "after the text, with labels of %d",
                         r->files.path, (long long)(i / b->tokens), (long long)t, IGNORED);
        else if (mask[i] && t > 0 && !mask[i - 1])
            wf_error_set(r->error, WF_EUNSUPPORTED,
                         "%s: attention_mask[%lld, ..] has a 1 after a 0: pad after the text",
                         r->files.path, (long long)(i / b->tokens));
    }
    free(mask);
    return r->error->code;
}

/* Sorts the experts of a token; refuses one that is none, or there twice. */
static wf_status sort_choice(const reader *r, int64_t at, int32_t *expert)
{
    const wf_check_batch *b = r->batch;

    for (int64_t i = 0; i < b->chosen; i++) {
        const int32_t e = expert[i];
        int64_t k = i;

        for (; k > 0 && expert[k - 1] > e; k--)
            expert[k] = expert[k - 1];
        expert[k] = e;
        if (e < 0 || e >= r->sizes->experts || (k > 0 && expert[k - 1] == e))
            return wf_error_set(
                r->error, WF_EDATA,
                "%s: routed_experts[%lld, %lld, %lld, ..] has %d%s: a token's experts are "
                "%lld different ones of %lld",
                r->files.path, (long long)(at / b->layers / b->tokens),
                (long long)(at / b->layers % b->tokens), (long long)(at % b->layers), e,
                k > 0 && expert[k - 1] == e ? " twice" : "", (long long)b->chosen,
                (long long)r->sizes->experts);
    }
    return WF_OK;
}

/* Takes the choices of their routers, [sequences, tokens, layers, chosen]. */
static wf_status take_choices(reader *r)
{
    wf_check_batch *b = r->batch;
    const int64_t shape[] = {b->sequences, b->tokens, r->sizes->mixtures, r->sizes->chosen};
    const int64_t rows = shape[0] * shape[1] * shape[2];
    int64_t file, *numbers = NULL;
    const wf_safetensors_entry *e = wf_check_files_find(&r->files, "routed_experts", &file);
    char theirs[96], ours[96];

    if (!e)
        return WF_OK;
    if (!r->sizes->mixtures)
        return wf_error_set(
            r->error, WF_EDATA,
            "%s has \"routed_experts\", and the model has no mixture of experts",
            r->files.path);
    if (e->ndim != 4 || memcmp(e->shape, shape, sizeof shape) != 0)
        return wf_error_set(
            r->error, WF_EDATA,
            "%s: \"routed_experts\" is %s, and has to be %s: [sequences, tokens, "
            "layers that are mixtures, a token's experts]",
            r->files.path, wf_check_shape(e->ndim, e->shape, theirs),
            wf_check_shape(4, shape, ours));
    if (wf_check_files_integers(&r->files, e, file, &numbers, r->error) != WF_OK)
        return r->error->code;
    b->layers = shape[2];
    b->chosen = shape[3];
    b->choice = malloc((size_t)(rows * b->chosen) * sizeof *b->choice);
    if (!b->choice)
        no_memory(r);
    for (int64_t i = 0; b->choice && i < rows * b->chosen; i++) /* beyond 32 bits: none */
        b->choice[i] = numbers[i] == (int32_t)numbers[i] ? (int32_t)numbers[i] : -1;
    for (int64_t i = 0; r->error->code == WF_OK && i < rows; i++)
        sort_choice(r, i, b->choice + i * b->chosen);
    free(numbers);
    return r->error->code;
}

wf_status wf_check_batch_read(const char *path, const wf_check_sizes *sizes,
                              wf_check_batch *batch, wf_error *error)
{
    reader r = {.batch = batch, .sizes = sizes, .error = error};
    const char *unused;

    *batch = (wf_check_batch){.ids = NULL};
    if (wf_check_files_open(&r.files, path, error) == WF_OK && take_ids(&r) == WF_OK &&
        take_labels(&r) == WF_OK && take_documents(&r) == WF_OK && check_padding(&r) == WF_OK &&
        take_choices(&r) == WF_OK) {
        unused = wf_check_files_unused(&r.files);
        if (unused)
            wf_error_set(error, WF_EDATA,
                         "%s: \"%s\" is nothing that a batch has: input_ids, labels or "
                         "loss_mask, position_ids or documents, attention_mask, "
                         "routed_experts",
                         path, unused);
    }
    wf_check_files_close(&r.files);
    return error->code;
}

void wf_check_batch_free(wf_check_batch *batch)
{
    free(batch->ids);
    free(batch->labels);
    free(batch->first);
    free(batch->position);
    free(batch->choice);
    *batch = (wf_check_batch){.ids = NULL};
}

int64_t wf_check_targets(const wf_check_batch *batch, wf_check_reading reading,
                         int64_t sequence, int32_t *target)
{
    const int32_t *ids = batch->ids + sequence * batch->tokens;
    const int32_t *labels = batch->labels + sequence * batch->tokens;
    const int64_t shift = reading == WF_CHECK_UNSHIFTED       ? 0
                          : reading == WF_CHECK_SHIFTED_TWICE ? 2
                                                              : 1;
    int64_t counted = 0;

    for (int64_t t = 0; t < batch->tokens; t++) {
        const bool there = t + shift < batch->tokens;

        target[t] = there ? labels[t + shift] : -1;
        if (there && reading == WF_CHECK_MASK_IGNORED)
            target[t] = ids[t + shift];
        target[t] = target[t] < 0 ? -1 : target[t];
        counted += target[t] >= 0;
    }
    return counted;
}

bool wf_check_reading_differs(const wf_check_batch *batch, wf_check_reading reading)
{
    bool masked = false;

    for (int64_t i = 0; i < batch->sequences * batch->tokens && !masked; i++)
        masked = batch->labels[i] == IGNORED;
    return reading == WF_CHECK_MASK_IGNORED   ? masked
           : reading == WF_CHECK_ONE_DOCUMENT ? batch->has_documents
                                              : reading != WF_CHECK_RIGHT;
}
