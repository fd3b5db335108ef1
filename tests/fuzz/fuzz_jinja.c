/*
 * tests/fuzz/fuzz_jinja.c - a chat template from strangers: what compiles is rendered, and ends
 * within its limits; spans lie in the text, one after another; the same template renders the
 * same text a second time.
 */
#include "nn/text/chat/json_value_internal.h"
#include "tests/fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" be brief \"}, {\"role\": \"user\", "
    "\"content\": \"na\\u00efve \\ud83d\\ude00\\n\"},"
    " {\"role\": \"assistant\", \"content\": \"<think>a</think>b\", \"tool_calls\": "
    "[{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5, \"y\": "
    "[null, true]}}}]}, {\"role\": \"tool\", \"content\": \"{}\"}], \"tools\": [{\"function\": "
    "{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"n\": -3, \"x\": {\"a\": 1, "
    "\"1\": 2}, \"l\": [3, 1, 2]}";

static void build(wf_jinja_run *run, void *arg)
{
    static wf_text_json json;
    static wf_error error;

    if (!json.count) {
        char *copy = strdup(variables);

        PROMISE(copy && wf_text_json_open(&json, "variables", copy, sizeof variables - 1,
                                          &error) == WF_OK);
    }
    *(wf_jinja_value *)arg = wf_chat_json_value(run, &json, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_jinja_output out = {.text = ""};
    wf_error error = {WF_OK, ""};
    wf_jinja_run *run = NULL;
    wf_jinja *template;
    wf_jinja_value values;
    char *first = NULL;
    size_t end = 0;
    const int fixed = setenv("SOURCE_DATE_EPOCH", "1750000000", 1); /* strftime_now */
    wf_status status =
        wf_jinja_compile("template", (const char *)data, size, &template, &error);

    PROMISE(fixed == 0);
    ANSWERED(status, error);
    PROMISE((status == WF_OK) == (template != NULL));
    if (!template)
        return 0;
    PROMISE(wf_jinja_run_new(&run, &error) == WF_OK);
    PROMISE(wf_jinja_protect(run, build, &values, &error) == WF_OK);
    status = wf_jinja_render(run, template, values, &out, &error);
    ANSWERED(status, error);
    for (size_t i = 0; i < out.span_count; i++) {
        PROMISE(out.spans[i].begin >= end && out.spans[i].end >= out.spans[i].begin);
        end = out.spans[i].end;
    }
    PROMISE(end <= out.bytes);
    if (status == WF_OK) {
        size_t bytes = out.bytes;

        first = malloc(bytes + 1);
        PROMISE(first);
        memcpy(first, out.text, bytes);
        PROMISE(wf_jinja_render(run, template, values, &out, &error) == WF_OK);
        PROMISE(out.bytes == bytes && memcmp(first, out.text, bytes) == 0);
    }
    free(first);
    wf_jinja_run_free(run);
    wf_jinja_free(template);
    return 0;
}
