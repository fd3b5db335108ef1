/* tests/lint/text_consumer.c - a program that uses the library of texts by pkg-config, text
   there and back; install.sh builds it against the installed package. */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

int main(void)
{
    wf_error error = {WF_OK, ""};
    wf_tok *tokenizer = NULL;
    wf_tok_encoder *encoder = NULL;
    wf_tok_ids ids = {0};
    wf_tok_bytes text = {0};
    int good = wf_tok_open(NULL, &tokenizer, &error) == WF_OK &&
               wf_tok_encoder_new(tokenizer, &encoder, &error) == WF_OK &&
               wf_tok_encode(encoder, "weft", 4, 0, &ids, &error) == WF_OK && ids.count == 4 &&
               wf_tok_decode(tokenizer, ids.data, ids.count, 0, &text, &error) == WF_OK &&
               text.bytes == 4 && memcmp(text.data, "weft", 4) == 0;

    if (!good)
        fprintf(stderr, "text_consumer: %s\n", error.text);
    wf_tok_bytes_free(&text);
    wf_tok_ids_free(&ids);
    wf_tok_encoder_free(encoder);
    wf_tok_close(tokenizer);
    return good ? 0 : 1;
}
