/* nn/text/tokenizer/encode_text.c - a text, or a file of it, as ids in one call; see
   tokenizer.h. */
#include "nn/text/tokenizer/tokenizer.h"
#include "core/files/input.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 };

wf_status wf_tok_encode_text(const wf_tok *tokenizer, const char *text, size_t bytes, int flags,
                             wf_tok_ids *ids, wf_error *error)
{
    wf_tok_encoder *encoder = NULL;

    if (wf_tok_encoder_new(tokenizer, &encoder, error) == WF_OK)
        wf_tok_encode(encoder, text, bytes, flags, ids, error);
    wf_tok_encoder_free(encoder);
    return error->code;
}

/* Reads all of a file. Owner of text->data: the caller, free, also after errors. */
static wf_status read_text(FILE *file, const char *path, wf_tok_bytes *text, wf_error *error)
{
    size_t n;

    do {
        if (text->bytes == text->room) {
            char *more = realloc(text->data, text->room ? 2 * text->room : PIECE);

            if (!more)
                return wf_error_set(error, WF_ENOMEM, "no memory for the text of %s", path);
            text->data = more;
            text->room = text->room ? 2 * text->room : PIECE;
        }
        n = fread(text->data + text->bytes, 1, text->room - text->bytes, file);
        text->bytes += n;
    } while (n > 0);
    return ferror(file) ? wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno)) : WF_OK;
}

wf_status wf_tok_encode_file(const wf_tok *tokenizer, const char *path, int flags,
                             wf_tok_ids *ids, wf_error *error)
{
    FILE *file = wf_input_open(path);
    wf_tok_bytes text = {.data = NULL};

    if (!file)
        return wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    if (read_text(file, path, &text, error) == WF_OK)
        wf_tok_encode_text(tokenizer, text.data, text.bytes, flags, ids, error);
    fclose(file);
    wf_tok_bytes_free(&text);
    return error->code;
}
