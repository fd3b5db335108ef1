/* tests/text/tokenizer_subject.h - a tokenizer of tests/text/tokenizers, with room for ids and
   text. */
#ifndef WF_TESTS_TEXT_TOKENIZER_SUBJECT_H
#define WF_TESTS_TEXT_TOKENIZER_SUBJECT_H

#include "nn/text/tokenizer/tokenizer.h"
#include "tests/harness.h"
#include <stdio.h>

typedef struct subject {
    wf_tok *tokenizer;
    wf_tok_encoder *encoder;
    wf_tok_ids ids;
    wf_tok_bytes text;
    wf_error error;
} subject;

static inline void open_subject(subject *s, const char *name)
{
    char path[1024];

    *s = (subject){0};
    snprintf(path, sizeof path, WEFT_TOKENIZERS "/%s", name);
    wf_tok_open(name ? path : NULL, &s->tokenizer, &s->error);
    if (s->error.code != WF_OK)
        printf("\n    %s\n", s->error.text);
    CU_ASSERT_EQUAL_FATAL(s->error.code, WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_tok_encoder_new(s->tokenizer, &s->encoder, &s->error), WF_OK);
}

static inline void close_subject(subject *s)
{
    wf_tok_encoder_free(s->encoder);
    wf_tok_close(s->tokenizer);
    wf_tok_ids_free(&s->ids);
    wf_tok_bytes_free(&s->text);
}

#endif
