/*
 * tests/apps/test_chat.c - conversations as transformers writes them (tests/apps/chat/make.py), by templates that are
 * known by their Jinja; what of them is trained; rows that are damaged.
 */
#include "apps/chat/row.h"
#include "apps/tokenizer/load_internal.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 128, MESSAGES = 8 };

static char folder[PATH];

static void write_template(const char *jinja, size_t bytes)
{
    char path[PATH + 32];
    FILE *file;

    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fwrite(jinja, 1, bytes, file);
    fclose(file);
}

/* The messages of a case. */
static size_t messages_of(const app_json *json, uint32_t list, app_chat_message m[MESSAGES])
{
    size_t count = 0;

    for (uint32_t i = list + 1; i < json->values[list].next; i = app_json_after(json, i)) {
        size_t bytes;
        const char *role = app_json_text(json, app_json_get(json, i, "role"), &bytes);

        CU_ASSERT_FATAL(count < MESSAGES && app_chat_role_of(role, bytes, &m[count].role));
        m[count].content =
            app_json_text(json, app_json_get(json, i, "content"), &m[count].bytes);
        count++;
    }
    return count;
}

static void check_case(const app_json *json, uint32_t one, const app_chat_template *t)
{
    app_chat_message m[MESSAGES];
    size_t count = messages_of(json, app_json_get(json, one, "messages"), m), bytes;
    uint32_t wanted = app_json_get(json, one, "text");
    app_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    bool prompt = app_json_bool(json, one, "prompt", false);
    wf_status status =
        app_chat_text(t, m, count, prompt ? APP_CHAT_PROMPT : 0, &written, &error);

    if (wanted == APP_JSON_NONE) {
        CU_ASSERT_EQUAL(status, WF_EDATA);
    } else {
        const char *text = app_json_text(json, wanted, &bytes);

        CU_ASSERT_EQUAL(status, WF_OK);
        if (written.text.bytes != bytes || memcmp(written.text.data, text, bytes) != 0)
            printf("\n    %s: %.*s\n    wanted: %.*s\n", app_chat_template_name(t),
                   (int)written.text.bytes, written.text.data, (int)bytes, text);
        CU_ASSERT_FATAL(written.text.bytes == bytes);
        CU_ASSERT_EQUAL(memcmp(written.text.data, text, bytes), 0);
    }
    app_chat_written_free(&written);
}

static void texts_are_those_of_transformers(void)
{
    wf_error error = {WF_OK, ""};
    char *text;
    size_t bytes, name_bytes;
    int templates = 0;
    app_json json;

    CU_ASSERT_EQUAL_FATAL(app_file_read(WEFT_CHAT "/cases.json", &text, &bytes, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(app_json_open(&json, "cases.json", text, bytes, &error), WF_OK);
    for (uint32_t i = 1; i < json.values[0].next; i = app_json_after(&json, i), templates++) {
        uint32_t cases = app_json_get(&json, i, "cases");
        const char *jinja = app_json_text(&json, app_json_get(&json, i, "jinja"), &bytes);
        const char *name = app_json_text(&json, app_json_get(&json, i, "name"), &name_bytes);
        const app_chat_template *t;

        write_template(jinja, bytes);
        CU_ASSERT_EQUAL_FATAL(app_chat_template_find(folder, NULL, &t, &error), WF_OK);
        CU_ASSERT_EQUAL(strlen(app_chat_template_name(t)), name_bytes);
        CU_ASSERT_EQUAL(memcmp(app_chat_template_name(t), name, name_bytes), 0);
        for (uint32_t c = cases + 1; c < json.values[cases].next; c = app_json_after(&json, c))
            check_case(&json, c, t);
    }
    CU_ASSERT(templates >= 12);
    app_json_close(&json);
}

static void what_is_trained(void)
{
    static const app_chat_message m[] = {{APP_CHAT_USER, "ab", 2},
                                         {APP_CHAT_ASSISTANT, "cd", 2},
                                         {APP_CHAT_USER, "e", 1},
                                         {APP_CHAT_ASSISTANT, "", 0}};
    static const char text[] =
        "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\ncd<|im_end|>\n"
        "<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n";
    wf_error error = {WF_OK, ""};
    app_chat_written written = {.count = 0};
    app_tokenizer_ids ids = {0}, trained = {0};
    app_tokenizer_encoder *encoder;
    app_tokenizer *bytes;
    const app_chat_template *t;
    size_t ones = 0;

    CU_ASSERT_EQUAL_FATAL(app_chat_template_find(NULL, "chatml", &t, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(app_chat_text(t, m, 4, 0, &written, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(written.text.bytes, sizeof text - 1);
    CU_ASSERT_EQUAL(memcmp(written.text.data, text, sizeof text - 1), 0);
    CU_ASSERT_EQUAL_FATAL(app_tokenizer_open(NULL, &bytes, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(app_tokenizer_encoder_new(bytes, &encoder, &error), WF_OK);
    CU_ASSERT_EQUAL(app_chat_encode(encoder, &written, &ids, &trained, &error), WF_OK);
    CU_ASSERT_EQUAL(ids.count, trained.count);
    for (size_t i = 0; i < trained.count; i++)
        ones += trained.data[i] == 1;
    CU_ASSERT_EQUAL(ones, strlen("cd<|im_end|>") + strlen("<|im_end|>"));
    CU_ASSERT_EQUAL(written.count, 2);
    CU_ASSERT_EQUAL(trained.data[written.spans[0].begin], 1);
    CU_ASSERT_EQUAL(trained.data[written.spans[0].begin - 1], 0);
    CU_ASSERT_EQUAL(trained.data[written.spans[1].end], 0);
    app_tokenizer_encoder_free(encoder);
    app_tokenizer_close(bytes);
    app_tokenizer_ids_free(&ids);
    app_tokenizer_ids_free(&trained);
    app_chat_written_free(&written);
}

static void templates_that_are_not_known(void)
{
    wf_error error = {WF_OK, ""};
    const app_chat_template *t;

    write_template("{{ messages }}", 14);
    CU_ASSERT_EQUAL(app_chat_template_find(folder, NULL, &t, &error), WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "--chat-template takes one of smollm2, "));
    error.code = WF_OK;
    CU_ASSERT_EQUAL(app_chat_template_find(folder, "nobody", &t, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "no chat template nobody"));
    error.code = WF_OK;
    CU_ASSERT_EQUAL(app_chat_template_find(folder, "gemma", &t, &error), WF_OK);
}

static void check_row(const char *text, wf_status wanted, const char *words)
{
    wf_error error = {WF_OK, ""};
    app_chat_row *row;
    size_t count = 0;
    wf_status status = app_chat_row_read("rows:7", text, strlen(text), &row, &error);

    if (status != wanted || !strstr(error.text, words))
        printf("\n    %s\n    gave %d: %s\n", text, status, error.text);
    CU_ASSERT_EQUAL(status, wanted);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    CU_ASSERT_EQUAL(row == NULL, wanted != WF_OK);
    if (row) {
        app_chat_row_messages(row, &count);
        CU_ASSERT_EQUAL(count, 2);
    }
    app_chat_row_free(row);
}

static void rows(void)
{
    check_row(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\", \"tool_calls\": null}], \"id\": 1}",
        WF_OK, "");
    check_row("{\"prompt\": \"a\", \"completion\": \"b\"}", WF_OK, "");
    check_row("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": "
              "[{\"role\": \"assistant\", \"content\": \"b\"}]}",
              WF_OK, "");
    check_row("{\"text\": \"a\"}", WF_EDATA, "the key \"messages\" is missing");
    check_row("{\"prompt\": \"a\"}", WF_EDATA, "completion");
    check_row("[1]", WF_EDATA, "rows:7");
    check_row("{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", WF_EUNSUPPORTED,
              "messages[0].role: is none of system, user and assistant");
    check_row("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}",
              WF_EUNSUPPORTED, "messages[0].content: is a list of parts");
    check_row("{\"messages\": [{\"role\": \"user\", \"content\": \"\", \"tool_calls\": []}]}",
              WF_EUNSUPPORTED, "messages[0].tool_calls");
    check_row("{\"messages\": [{\"role\": \"user\"}]}", WF_EDATA, "content");
    check_row("{\"messages\": [7]}", WF_EDATA, "messages[0]");
    check_row("{\"messages\": ", WF_EDATA, "rows:7");
}

static const wf_test tests[] = {
    {"texts are those of transformers", texts_are_those_of_transformers},
    {"what is trained", what_is_trained},
    {"templates that are not known", templates_that_are_not_known},
    {"rows", rows},
    {NULL, NULL}};

int main(void)
{
    int failed;

    snprintf(folder, sizeof folder, "/tmp/weft-chat-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    failed = wf_test_main("chat", tests);
    wf_test_remove(folder);
    return failed;
}
