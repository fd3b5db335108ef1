/*
 * tests/fuzz/fuzz_chat.c - a line of chat data from strangers: what is read becomes text by every template, of which
 * spans lie in the text, one behind another, and as many ids as bytes of it are said to be trained or not.
 */
#include "apps/chat/row.h"
#include "tests/fuzz/fuzz.h"

static void encode(const app_chat_written *w)
{
    static app_tokenizer *bytes;
    static app_tokenizer_encoder *encoder;
    app_tokenizer_ids ids = {0}, trained = {0};
    wf_error error = {WF_OK, ""};
    size_t ones = 0, wanted = 0, end = 0;

    if (!bytes)
        PROMISE(app_tokenizer_open(NULL, &bytes, &error) == WF_OK &&
                app_tokenizer_encoder_new(bytes, &encoder, &error) == WF_OK);
    for (size_t i = 0; i < w->count; i++) {
        PROMISE(w->spans[i].begin >= end && w->spans[i].end >= w->spans[i].begin);
        end = w->spans[i].end;
        wanted += end - w->spans[i].begin;
    }
    PROMISE(end <= w->text.bytes);
    PROMISE(app_chat_encode(encoder, w, &ids, &trained, &error) == WF_OK);
    PROMISE(ids.count == w->text.bytes && trained.count == ids.count);
    for (size_t i = 0; i < trained.count; i++)
        ones += trained.data[i] == 1;
    PROMISE(ones == wanted);
    app_tokenizer_ids_free(&ids);
    app_tokenizer_ids_free(&trained);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"smollm2", "llama3", "llama2", "mistral-v3", "gemma"};
    app_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    const app_chat_message *messages;
    app_chat_row *row;
    size_t count;
    wf_status status = app_chat_row_read("line", (const char *)data, size, &row, &error);

    ANSWERED(status, error);
    PROMISE((status == WF_OK) == (row != NULL));
    for (size_t i = 0; row && i < sizeof names / sizeof *names; i++) {
        const app_chat_template *t;

        PROMISE(app_chat_template_find(NULL, names[i], &t, &error) == WF_OK);
        messages = app_chat_row_messages(row, &count);
        status = app_chat_text(t, messages, count, APP_CHAT_PROMPT, &written, &error);
        ANSWERED(status, error);
        if (status == WF_OK)
            encode(&written);
        error = (wf_error){WF_OK, ""};
    }
    app_chat_row_free(row);
    app_chat_written_free(&written);
    return 0;
}
