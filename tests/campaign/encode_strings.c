/*
 * tests/campaign/encode_strings.c - encode_strings TOKENIZER [FLAGS]: strings from stdin as
 * ids, for scripts/peers/tokenizers.py, which compares them with those of other tokenizers.
 *
 * A string is a u32 of its bytes and these bytes; what is written of it is a u32 of its ids and
 * these ids. Each is decoded, at once and id by id; where that gives another text, and the
 * tokenizer restores texts, the program ends with 1. FLAGS is a number of WF_TOK_ flags, 4
 * more: texts come back whole, 8 more: time alone is written, as text, of encoding the strings
 * once more.
 */
#include "nn/text/tokenizer/tokenizer.h"
#include "tests/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = 4, TIME = 8 };

typedef struct job {
    wf_tok *tokenizer;
    wf_tok_encoder *encoder;
    wf_tok_ids ids;
    wf_tok_bytes text, again;
    wf_error error;
    int flags;
} job;

static bool read_string(char **text, uint32_t *bytes)
{
    if (fread(bytes, sizeof *bytes, 1, stdin) != 1)
        return false;
    free(*text);
    *text = malloc(*bytes + 1);
    return *text && fread(*text, 1, *bytes, stdin) == *bytes;
}

/* Returns true where ids decode to a text, and one by one to the same. */
static bool decodes(job *j, const char *text, size_t bytes)
{
    wf_tok_stream stream = {0};
    bool ok = true;

    j->text.bytes = j->again.bytes = 0;
    ok =
        wf_tok_decode(j->tokenizer, j->ids.data, j->ids.count, 0, &j->text, &j->error) == WF_OK;
    for (size_t i = 0; ok && i < j->ids.count; i++)
        ok = wf_tok_decode_next(j->tokenizer, &stream, j->ids.data[i], 0, &j->again,
                                &j->error) == WF_OK;
    ok = ok && wf_tok_decode_end(&stream, &j->again, &j->error) == WF_OK &&
         j->text.bytes == j->again.bytes &&
         (!j->text.bytes || memcmp(j->text.data, j->again.data, j->text.bytes) == 0);
    return ok && (!(j->flags & WHOLE) || (j->text.bytes == bytes &&
                                          (!bytes || memcmp(j->text.data, text, bytes) == 0)));
}

static int run(job *j)
{
    double spent = 0;
    char *text = NULL;
    uint32_t bytes, count;

    while (read_string(&text, &bytes)) {
        double begin = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);

        j->ids.count = 0;
        if (wf_tok_encode(j->encoder, text, bytes, j->flags & 3, &j->ids, &j->error) != WF_OK)
            break;
        spent += wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - begin;
        count = (uint32_t)j->ids.count;
        if (j->flags & TIME)
            continue;
        fwrite(&count, sizeof count, 1, stdout);
        fwrite(j->ids.data, sizeof *j->ids.data, count, stdout);
        if (!decodes(j, text, bytes))
            wf_error_set(&j->error, WF_EDATA, "a string of %u bytes does not come back", bytes);
        if (j->error.code != WF_OK)
            break;
    }
    free(text);
    if (j->flags & TIME)
        printf("%.6f\n", spent);
    return j->error.code != WF_OK;
}

int main(int argc, char **argv)
{
    job j = {.flags = argc > 2 ? atoi(argv[2]) : 0};
    int status = 1;

    if (wf_tok_open(argc > 1 ? argv[1] : NULL, &j.tokenizer, &j.error) == WF_OK &&
        wf_tok_encoder_new(j.tokenizer, &j.encoder, &j.error) == WF_OK)
        status = run(&j);
    if (j.error.code != WF_OK)
        fprintf(stderr, "encode_strings: %s\n", j.error.text);
    wf_tok_encoder_free(j.encoder);
    wf_tok_close(j.tokenizer);
    wf_tok_ids_free(&j.ids);
    wf_tok_bytes_free(&j.text);
    wf_tok_bytes_free(&j.again);
    return status;
}
