/*
 * tests/text/test_chat.c - conversations as transformers writes them (tests/text/chat/make.py),
 * by a folder's template and by one that is named; what of them is trained; rows that are
 * damaged, or say what nothing here honours.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers WEFT_CHAT=tests/text/chat
 */
#include "nn/text/tokenizer/load_internal.h"
#include "tests/text/chat_lines.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 128 };

static char folder[WF_TEST_FOLDER];

static void write_file(const char *name, const char *text, size_t bytes)
{
    char path[PATH + 64];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fwrite(text, 1, bytes, file);
    fclose(file);
}

static void remove_file(const char *name)
{
    char path[PATH + 64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* The folder gets a template and opens it. */
static wf_chat_template *open_text(const char *jinja, size_t bytes)
{
    wf_error error = {WF_OK, ""};
    wf_chat_template *t;

    write_file("chat_template.jinja", jinja, bytes);
    wf_chat_template_open(&(wf_chat_options){.tokenizer = folder}, &t, &error);
    if (!t)
        printf("\n    %s\n", error.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static void check_case(const wf_text_json *json, uint32_t one, const wf_chat_template *t)
{
    uint32_t wanted = wf_text_json_get(json, one, "text");
    wf_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    size_t bytes;
    const char *line = wf_text_json_text(json, wf_text_json_get(json, one, "row"), &bytes);
    bool prompt = wf_text_json_bool(json, one, "prompt", false);
    wf_status status =
        write_row(t, line, bytes, prompt ? WF_CHAT_PROMPT : WF_CHAT_ALL, 0, &written, &error);

    if (wanted == WF_TEXT_JSON_NONE) {
        CU_ASSERT_EQUAL(status, WF_EDATA);
    } else {
        const char *text = wf_text_json_text(json, wanted, &bytes);

        if (status != WF_OK || written.text.bytes != bytes ||
            memcmp(written.text.data, text, bytes) != 0)
            printf("\n    %s: %.*s %s\n    wanted: %.*s\n", wf_chat_template_name(t),
                   (int)written.text.bytes, written.text.data, error.text, (int)bytes, text);
        CU_ASSERT_EQUAL_FATAL(status, WF_OK);
        CU_ASSERT_FATAL(written.text.bytes == bytes);
        CU_ASSERT_EQUAL(memcmp(written.text.data, text, bytes), 0);
    }
    wf_chat_written_free(&written);
}

/* A guard's template writes nothing of the messages in front, which is refused here. */
static bool is_case_of(const char *name, uint32_t number)
{
    return strcmp(name, "like a guard") != 0 || number < 2;
}

static void texts_are_those_of_transformers(void)
{
    wf_error error = {WF_OK, ""};
    char *text, name[64], config[128];
    size_t bytes, name_bytes;
    int templates = 0;
    wf_text_json json;

    CU_ASSERT_EQUAL_FATAL(wf_tok_file_read(WEFT_CHAT "/cases.json", &text, &bytes, &error),
                          WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_text_json_open(&json, "cases.json", text, bytes, &error), WF_OK);
    for (uint32_t i = 1; i < json.values[0].next;
         i = wf_text_json_after(&json, i), templates++) {
        uint32_t cases = wf_text_json_get(&json, i, "cases"), number = 0;
        const char *jinja =
            wf_text_json_text(&json, wf_text_json_get(&json, i, "jinja"), &bytes);
        const char *found =
            wf_text_json_text(&json, wf_text_json_get(&json, i, "name"), &name_bytes);
        wf_chat_template *own, *named = NULL;

        snprintf(name, sizeof name, "%.*s", (int)name_bytes, found);
        snprintf(config, sizeof config,
                 "{\"bos_token\": {\"content\": \"%s\"}, \"eos_token\": \"</s>\", "
                 "\"add_bos_token\": true}",
                 strncmp(name, "llama3", 6) == 0  ? "<|begin_of_text|>"
                 : strncmp(name, "gemma", 5) == 0 ? "<bos>"
                                                  : "<s>");
        write_file("tokenizer_config.json", config, strlen(config));
        own = open_text(jinja, bytes);
        if (strncmp(name, "like", 4) != 0)
            named = open_name(name);
        for (uint32_t c = cases + 1; c < json.values[cases].next;
             c = wf_text_json_after(&json, c), number++) {
            if (is_case_of(name, number))
                check_case(&json, c, own);
            if (named)
                check_case(&json, c, named);
        }
        wf_chat_template_close(own);
        wf_chat_template_close(named);
    }
    CU_ASSERT(templates >= 17);
    wf_text_json_close(&json);
}

/* The parts that are trained, with | between them; or the error. */
static void check_spans(const wf_chat_template *t, const char *line, wf_chat_train train,
                        size_t part, const char *wanted)
{
    wf_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    char text[1024] = "";
    size_t used = 0;

    if (write_row(t, line, strlen(line), train, part, &written, &error) == WF_OK)
        for (size_t i = 0; i < written.count; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", i ? "|" : "",
                                     (int)(written.spans[i].end - written.spans[i].begin),
                                     written.text.data + written.spans[i].begin);
    else
        snprintf(text, sizeof text, "%.1000s", error.text);
    if (error.code == WF_OK ? strcmp(text, wanted) != 0 : !strstr(text, wanted))
        printf("\n    %s\n    gave   %s\n    wanted %s\n", line, text, wanted);
    CU_ASSERT(error.code == WF_OK ? strcmp(text, wanted) == 0 : strstr(text, wanted) != NULL);
    wf_chat_written_free(&written);
}

#define U(text)        "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text)        "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define A_(text, more) "{\"role\": \"assistant\", \"content\": \"" text "\", " more "}"
#define AND            ", "
#define ROW(messages)  "{\"messages\": [" messages "]}"

static const char plain[] = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content "
                            "}}</{{ m.role }}>\n{% endfor %}"
                            "{% if add_generation_prompt %}<assistant>{% endif %}",
                  marked[] = "{% for m in messages %}<{{ m.role }}>{% generation %}{{ "
                             "m.content }}!{% endgeneration %}{% endfor %}",
                  answers[] =
                      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% "
                      "generation %}{{ m.content }}!{% endgeneration %}"
                      "{% else %}{{ m.content }}{% endif %}{% endfor %}",
                  forgets[] =
                      "{% for m in messages %}<{{ m.role }}>{% if m.thinking and loop.last "
                      "%}({{ m.thinking }}){% endif %}{{ m.content }};"
                      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
                  asks[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor "
                           "%}{% if add_generation_prompt %}<assistant><think>{% endif %}";

static void what_is_trained(void)
{
    static const char two[] = ROW(U("a") AND A("b") AND U("c") AND A("d"));
    wf_chat_template *t = open_text(plain, sizeof plain - 1);

    check_spans(t, two, WF_CHAT_ASSISTANT, 0, "b</assistant>\n|d</assistant>\n");
    check_spans(t, two, WF_CHAT_LAST, 0, "d</assistant>\n");
    check_spans(t, two, WF_CHAT_EACH, 0, "b</assistant>\n");
    check_spans(t, two, WF_CHAT_EACH, 1, "d</assistant>\n");
    check_spans(t, ROW(U("a") AND A("b") AND U("c")), WF_CHAT_LAST, 0, "b</assistant>\n");
    check_spans(
        t, ROW(U("a") AND A_("b", "\"weight\": 0") AND U("c") AND A_("d", "\"weight\": 1")),
        WF_CHAT_ASSISTANT, 0, "d</assistant>\n");
    check_spans(t, ROW(U("a") AND A("b") AND U("c") AND A_("d", "\"train\": false")),
                WF_CHAT_ASSISTANT, 0, "b</assistant>\n");
    check_spans(t, ROW(U("a") AND A("b") AND U("c") AND A_("d", "\"train\": false")),
                WF_CHAT_LAST, 0, "b</assistant>\n");
    check_spans(t, ROW(U("a") AND A_("b", "\"weight\": 0.0") AND U("c") AND A("d")),
                WF_CHAT_EACH, 0, "d</assistant>\n");
    check_spans(t, ROW(U("a") AND A_("b", "\"weight\": 0")), WF_CHAT_ASSISTANT, 0,
                "nothing to train on");
    check_spans(t, ROW(U("a") AND A_("b", "\"weight\": 0")), WF_CHAT_ALL, 0,
                "message 1 is not to be trained");
    check_spans(
        t, "{\"prompt\": [" U("a") ", " A("b") ", " U("c") "], \"completion\": [" A("d") "]}",
        WF_CHAT_ASSISTANT, 0, "d</assistant>\n");
    check_spans(t, "{\"prompt\": \"a\", \"completion\": \"b\"}", WF_CHAT_ASSISTANT, 0,
                "b</assistant>\n");
    wf_chat_template_close(t);

    t = open_text(answers, sizeof answers - 1);
    check_spans(t, two, WF_CHAT_ASSISTANT, 0, "b!|d!");
    check_spans(t, two, WF_CHAT_LAST, 0, "d!");
    check_spans(t, two, WF_CHAT_EACH, 0, "b!");
    check_spans(t, ROW(U("a") AND A_("b", "\"weight\": 0") AND U("c") AND A("d")),
                WF_CHAT_ASSISTANT, 0, "d!");
    wf_chat_template_close(t);
    t = open_text(marked, sizeof marked - 1); /* as transformers: what a template marks */
    check_spans(t, two, WF_CHAT_ASSISTANT, 0, "a!|b!|c!|d!");
    check_spans(t, ROW(U("a") AND A_("b", "\"weight\": 0") AND U("c") AND A("d")),
                WF_CHAT_ASSISTANT, 0, "marks 4 parts of 2 turns");
    wf_chat_template_close(t);
}

static void templates_that_part(void)
{
    static const char think[] = ROW(U("a") AND A_("b", "\"reasoning_content\": \"t\"")
                                        AND U("c") AND A_("d", "\"thinking\": \"u\""));
    wf_chat_template *t = open_text(forgets, sizeof forgets - 1);

    check_spans(t, think, WF_CHAT_ASSISTANT, 0, "message 1 in another way once others follow");
    check_spans(t, think, WF_CHAT_LAST, 0, "(u)d;");
    check_spans(t, think, WF_CHAT_EACH, 0, "(t)b;");
    check_spans(t, think, WF_CHAT_EACH, 1, "(u)d;");
    wf_chat_template_close(t);
    t = open_text(asks, sizeof asks - 1);
    check_spans(t, ROW(U("a") AND A("b")), WF_CHAT_ASSISTANT, 0,
                "asks for an answer by another text");
    check_spans(t, ROW(U("a") AND A("<think>b")), WF_CHAT_ASSISTANT, 0, "b;");
    check_spans(t, think, WF_CHAT_ASSISTANT, 0, "does not write its field reasoning_content");
    wf_chat_template_close(t);
}

/* White space behind the token that ends a turn is not trained; ids of other tokenizers have
   none that ends it. */
static void ids_are_marked(void)
{
    static const char line[] = ROW(U("ab") AND A("cd") AND U("e") AND A(""));
    static const char text[] =
        "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\ncd<|im_end|>\n"
        "<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n";
    wf_error error = {WF_OK, ""};
    wf_chat_written written = {.count = 0};
    wf_tok_ids ids = {0}, trained = {0};
    wf_tok_encoder *encoder;
    wf_tok *bytes;
    wf_chat_template *t = open_name("chatml");
    size_t ones = 0;

    CU_ASSERT_EQUAL_FATAL(
        write_row(t, line, sizeof line - 1, WF_CHAT_ASSISTANT, 0, &written, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(written.text.bytes, sizeof text - 1);
    CU_ASSERT_EQUAL(memcmp(written.text.data, text, sizeof text - 1), 0);
    CU_ASSERT_EQUAL_FATAL(wf_tok_open(NULL, &bytes, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_tok_encoder_new(bytes, &encoder, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_chat_encode(encoder, &written, &ids, &trained, &error), WF_OK);
    CU_ASSERT_EQUAL(ids.count, trained.count);
    for (size_t i = 0; i < trained.count; i++)
        ones += trained.data[i] == 1;
    CU_ASSERT_EQUAL(ones, strlen("cd<|im_end|>") + strlen("<|im_end|>"));
    CU_ASSERT_EQUAL(written.count, 2);
    CU_ASSERT_EQUAL(trained.data[written.spans[0].begin], 1);
    CU_ASSERT_EQUAL(trained.data[written.spans[0].begin - 1], 0);
    CU_ASSERT_EQUAL(trained.data[written.spans[1].end], 0);
    wf_tok_encoder_free(encoder);
    wf_tok_close(bytes);
    wf_tok_ids_free(&ids);
    wf_tok_ids_free(&trained);
    wf_chat_written_free(&written);
    wf_chat_template_close(t);
}

static void ends_are_trimmed_without_generation_blocks(void)
{
    static const char jinja[] =
        "{% for m in messages %}{{ m.role }}:{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}";
    wf_error error = {WF_OK, ""};
    wf_chat_written written = {.count = 0};
    wf_tok_ids ids = {0}, trained = {0};
    wf_tok_encoder *encoder = NULL;
    wf_tok *tokenizer = NULL;
    const char *line = ROW(U("ab") AND A("cd"));
    wf_chat_template *t = WEFT_HAS_PCRE2 ? open_text(jinja, strlen(jinja)) : NULL;

    if (!t)
        return;
    wf_tok_open(WEFT_TOKENIZERS "/smollm.json", &tokenizer, &error);
    wf_tok_encoder_new(tokenizer, &encoder, &error);
    write_row(t, line, strlen(line), WF_CHAT_ASSISTANT, 0, &written, &error);
    wf_chat_encode(encoder, &written, &ids, &trained, &error);
    CU_ASSERT_TRUE_FATAL(error.code == WF_OK && trained.count == ids.count && ids.count > 4);
    CU_ASSERT(trained.data[ids.count - 2] == 1 && trained.data[ids.count - 1] == 0);
    wf_tok_encoder_free(encoder);
    wf_tok_close(tokenizer);
    wf_tok_ids_free(&ids);
    wf_tok_ids_free(&trained);
    wf_chat_written_free(&written);
    wf_chat_template_close(t);
}

static void check_open(wf_chat_options o, wf_status wanted, const char *words)
{
    wf_error error = {WF_OK, ""};
    wf_chat_template *t;
    wf_status status = wf_chat_template_open(&o, &t, &error);

    if (status != wanted || !strstr(error.text, words))
        printf("\n    gave %d: %s\n", status, error.text);
    CU_ASSERT_EQUAL(status, wanted);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    wf_chat_template_close(t);
}

static void templates_are_found(void)
{
    static const char several[] = "{\"chat_template\": [{\"name\": \"default\", \"template\": "
                                  "\"D{% for m in messages %}{{ m.content }}{% endfor %}\"}, "
                                  "{\"name\": \"tool_use\", \"template\": \"T{{ tools[0].n "
                                  "}}{% for m in messages %}{{ m.content }}{% endfor %}\"}]}";
    static const char row[] = "{\"messages\": [" U("a") "], \"tools\": [{\"n\": 5}]}";
    char path[PATH + 64];
    wf_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    wf_chat_template *t;

    remove_file("chat_template.jinja");
    check_open((wf_chat_options){.tokenizer = folder}, WF_EINVAL,
               ".name takes one of smollm2, ");
    check_open((wf_chat_options){.name = "nobody"}, WF_EINVAL, "no chat template nobody");
    check_open((wf_chat_options){.name = "gemma"}, WF_OK, "");
    check_open((wf_chat_options){.name = "gemma", .variables = "{\"a\": 1}"}, WF_EINVAL,
               "is no variable of the chat template gemma");
    check_open((wf_chat_options){.name = "gemma", .variables = "{\"messages\": 1}"}, WF_EDATA,
               "cannot be set here");
    check_open(
        (wf_chat_options){.name = "llama3.1", .variables = "{\"date_string\": \"1 May\"}"},
        WF_OK, "");
    write_file("tokenizer_config.json", several, sizeof several - 1);
    CU_ASSERT_EQUAL_FATAL(
        wf_chat_template_open(&(wf_chat_options){.tokenizer = folder}, &t, &error), WF_OK);
    CU_ASSERT_EQUAL(write_row(t, row, sizeof row - 1, WF_CHAT_PROMPT, 0, &written, &error),
                    WF_OK);
    CU_ASSERT(written.text.bytes == 3 && memcmp(written.text.data, "T5a", 3) == 0);
    CU_ASSERT_EQUAL(
        write_row(t, ROW(U("a")), strlen(ROW(U("a"))), WF_CHAT_PROMPT, 0, &written, &error),
        WF_OK);
    CU_ASSERT(written.text.bytes == 2 && memcmp(written.text.data, "Da", 2) == 0);
    wf_chat_template_close(t);
    check_open((wf_chat_options){.tokenizer = folder, .name = "tool_use"}, WF_OK, "");
    write_file("bad.jinja", "{{ messages\n  | nope }}", 23);
    snprintf(path, sizeof path, "%s/bad.jinja", folder);
    check_open((wf_chat_options){.name = path}, WF_EUNSUPPORTED,
               "bad.jinja:2:5: the filter nope is not supported");
    wf_chat_written_free(&written);
}

static const wf_test tests[] = {
    {"texts are those of transformers", texts_are_those_of_transformers},
    {"what is trained", what_is_trained},
    {"templates that part", templates_that_part},
    {"ids are marked", ids_are_marked},
    {"ends of turns are trimmed", ends_are_trimmed_without_generation_blocks},
    {"templates are found", templates_are_found},
    {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("chat", tests);
}
