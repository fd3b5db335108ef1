/*
 * tests/fuzz/fuzz_chat.c - a line of chat data from strangers: what is read becomes text by
 * every template, of which spans lie in the text, one after another, and as many ids as bytes
 * of it are said to be trained or not.
 */
#include "nn/text/chat/chat.h"
#include "tests/fuzz/fuzz.h"

static void encode(const wf_chat_written *w)
{
    static wf_tok *bytes;
    static wf_tok_encoder *encoder;
    wf_tok_ids ids = {0}, trained = {0};
    wf_error error = {WF_OK, ""};
    size_t ones = 0, wanted = 0, end = 0;

    if (!bytes)
        PROMISE(wf_tok_open(NULL, &bytes, &error) == WF_OK &&
                wf_tok_encoder_new(bytes, &encoder, &error) == WF_OK);
    for (size_t i = 0; i < w->count; i++) {
        PROMISE(w->spans[i].begin >= end && w->spans[i].end >= w->spans[i].begin);
        end = w->spans[i].end;
        wanted += end - w->spans[i].begin;
    }
    PROMISE(end <= w->text.bytes);
    PROMISE(wf_chat_encode(encoder, w, &ids, &trained, &error) == WF_OK);
    PROMISE(ids.count == w->text.bytes && trained.count == ids.count);
    for (size_t i = 0; i < trained.count; i++)
        ones += trained.data[i] == 1;
    PROMISE(ones == wanted);
    wf_tok_ids_free(&ids);
    wf_tok_ids_free(&trained);
}

/* Writes a row in each way. */
static void write_row(const wf_chat_template *t, const char *data, size_t size)
{
    wf_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    wf_chat_writer *writer = NULL;
    wf_chat_row *row;
    wf_status status = wf_chat_row_read(t, "line", data, size, &row, &error);

    ANSWERED(status, error);
    PROMISE((status == WF_OK) == (row != NULL));
    if (row)
        PROMISE(wf_chat_writer_new(t, &writer, &error) == WF_OK);
    for (int train = WF_CHAT_PROMPT; row && train <= WF_CHAT_ALL; train++)
        for (size_t part = 0; part < wf_chat_parts(row, (wf_chat_train)train); part++) {
            error = (wf_error){WF_OK, ""};
            status = wf_chat_write(writer, row, (wf_chat_train)train, part, &written, &error);
            ANSWERED(status, error);
            if (status == WF_OK)
                encode(&written);
        }
    wf_chat_writer_free(writer);
    wf_chat_row_free(row);
    wf_chat_written_free(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"smollm2",    "llama3.1", "llama2",
                                        "mistral-v3", "gemma3",   "tests/fuzz/tools.jinja"};
    enum { NAMES = sizeof names / sizeof *names };
    static wf_chat_template *templates[NAMES];
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < NAMES; i++) {
        const wf_chat_options options = {.name = names[i], .ignored = "a"};

        if (!templates[i])
            PROMISE(wf_chat_template_open(&options, &templates[i], &error) == WF_OK);
        write_row(templates[i], (const char *)data, size);
    }
    return 0;
}
