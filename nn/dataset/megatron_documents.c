/* nn/dataset/megatron_documents.c - see megatron_documents.h. */
#include "nn/dataset/megatron_documents.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static wf_status read_number(const wf_megatron_documents *d, int64_t at, int64_t *number,
                             wf_error *error)
{
    ssize_t got;

    do
        got = pread(d->descriptor, number, sizeof *number, at);
    while (got < 0 && errno == EINTR);
    if (got == sizeof *number)
        return WF_OK;
    return wf_error_set(error, WF_EIO, "cannot read %s: %s", d->name,
                        got < 0 ? strerror(errno) : "it became shorter while it was in use");
}

wf_status wf_megatron_document_at(const wf_megatron_documents *d, int64_t document,
                                  int64_t *token, wf_error *error)
{
    const wf_megatron_index *x = &d->index;
    int64_t pointers = WF_MEGATRON_HEADER_SIZE + 4 * x->sequences, sequence, byte = 0;
    int64_t size = wf_megatron_type_size(x->type), bounds = pointers + 8 * x->sequences;

    if (read_number(d, bounds + 8 * document, &sequence, error) != WF_OK)
        return error->code;
    if (sequence < 0 || sequence > x->sequences)
        return wf_error_set(
            error, WF_EDATA, "%s: document bound %lld is %lld, and there are %lld sequences",
            d->name, (long long)document, (long long)sequence, (long long)x->sequences);
    *token = x->tokens;
    if (sequence == x->sequences)
        return WF_OK;
    if (read_number(d, pointers + 8 * sequence, &byte, error) != WF_OK)
        return error->code;
    if (byte < 0 || byte % size || byte / size > x->tokens)
        return wf_error_set(
            error, WF_EDATA,
            "%s: the pointer of sequence %lld is %lld, which is no token of %lld bytes among "
            "%lld",
            d->name, (long long)sequence, (long long)byte, (long long)size,
            (long long)x->tokens);
    *token = byte / size;
    return WF_OK;
}

/* Finds the first document that begins at a token or after it. */
static wf_status find(const wf_megatron_documents *d, int64_t token, int64_t *document,
                      wf_error *error)
{
    int64_t low = 0, high = d->index.documents;

    while (low < high) {
        int64_t middle = low + (high - low) / 2, at;

        if (wf_megatron_document_at(d, middle, &at, error) != WF_OK)
            return error->code;
        if (at < token)
            low = middle + 1;
        else
            high = middle;
    }
    *document = low;
    return WF_OK;
}

wf_status wf_megatron_documents_begin(const wf_megatron_documents *d, int64_t first,
                                      int64_t count, int32_t *begins, wf_error *error)
{
    int64_t document = 0, last = first;

    memset(begins, 0, (size_t)count * sizeof *begins);
    if (find(d, first, &document, error) != WF_OK)
        return error->code;
    for (; document < d->index.documents; document++) {
        int64_t at;

        if (wf_megatron_document_at(d, document, &at, error) != WF_OK)
            return error->code;
        if (at >= first + count)
            break;
        if (at < last)
            return wf_error_set(error, WF_EDATA,
                                "%s: document %lld begins at token %lld, before the one before "
                                "it, or before token %lld that was looked for",
                                d->name, (long long)document, (long long)at, (long long)last);
        begins[at - first] = 1;
        last = at;
    }
    return WF_OK;
}
