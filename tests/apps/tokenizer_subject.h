/* tests/apps/tokenizer_subject.h - a tokenizer of tests/apps/tokenizers, with room for ids and text. */
#ifndef WF_TESTS_APPS_TOKENIZER_SUBJECT_H
#define WF_TESTS_APPS_TOKENIZER_SUBJECT_H

#include "apps/tokenizer/tokenizer.h"
#include "tests/harness.h"
#include <stdio.h>

typedef struct subject {
    app_tokenizer *tokenizer;
    app_tokenizer_encoder *encoder;
    app_tokenizer_ids ids;
    app_tokenizer_bytes text;
    wf_error error;
} subject;

static inline void open_subject(subject *s, const char *name)
{
    char path[1024];

    *s = (subject){0};
    snprintf(path, sizeof path, WEFT_TOKENIZERS "/%s", name);
    app_tokenizer_open(name ? path : NULL, &s->tokenizer, &s->error);
    if (s->error.code != WF_OK)
        printf("\n    %s\n", s->error.text);
    CU_ASSERT_EQUAL_FATAL(s->error.code, WF_OK);
    CU_ASSERT_EQUAL_FATAL(app_tokenizer_encoder_new(s->tokenizer, &s->encoder, &s->error),
                          WF_OK);
}

static inline void close_subject(subject *s)
{
    app_tokenizer_encoder_free(s->encoder);
    app_tokenizer_close(s->tokenizer);
    app_tokenizer_ids_free(&s->ids);
    app_tokenizer_bytes_free(&s->text);
}

#endif
