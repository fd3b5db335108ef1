/* tests/text/test_chat_rows.c - rows of chat data that are damaged, or say what nothing here
   honours. */
#include "tests/text/chat_lines.h"
#include <stdio.h>
#include <string.h>

#define U(text)        "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text)        "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define A_(text, more) "{\"role\": \"assistant\", \"content\": \"" text "\", " more "}"
#define AND            ", "
#define ROW(messages)  "{\"messages\": [" messages "]}"

static void check_row(const char *text, wf_status wanted, const char *words)
{
    wf_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    wf_chat_template *t = open_name("chatml");
    wf_status status = write_row(t, text, strlen(text), WF_CHAT_ASSISTANT, 0, &written, &error);

    if (status != wanted || !strstr(error.text, words))
        printf("\n    %s\n    gave %d: %s\n", text, status, error.text);
    CU_ASSERT_EQUAL(status, wanted);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    CU_ASSERT(wanted == WF_OK || strstr(error.text, "rows:7"));
    wf_chat_written_free(&written);
    wf_chat_template_close(t);
}

static void rows(void)
{
    check_row("{\"messages\": [" U("a") ", " A_(
                  "b", "\"tool_calls\": null") "], \"id\": 1, \"source\": {}, \"score\": null}",
              WF_OK, "");
    check_row("{\"prompt\": \"a\", \"completion\": \"b\"}", WF_OK, "");
    check_row("{\"prompt\": [" U("a") "], \"completion\": [" A("b") "]}", WF_OK, "");
    check_row("{\"text\": \"a\"}", WF_EDATA, "the key \"messages\" is missing");
    check_row("{\"prompt\": \"a\"}", WF_EDATA, "completion");
    check_row("[1]", WF_EDATA, "rows:7");
    check_row("{\"messages\": []}", WF_EDATA, "no messages");
    check_row("{\"messages\": [{\"role\": \"asistant\", \"content\": \"a\"}]}", WF_EUNSUPPORTED,
              "messages[0].role: is none of system, ");
    check_row("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}, " A(
                  "b") "]}",
              WF_EDATA, "rows:7");
    check_row("{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", WF_EDATA,
              "messages[0].content: is neither a text nor a list");
    check_row(ROW(U("a") AND A_("b", "\"tool_calls\": []")), WF_EUNSUPPORTED,
              "message 1: the chat template chatml does not write its field tool_calls");
    check_row(ROW(U("a") AND A_("b", "\"reasoning_content\": \"c\"")), WF_EUNSUPPORTED,
              "does not write its field reasoning_content");
    check_row(ROW(U("a") AND A_("b", "\"weight\": 0.5")), WF_EUNSUPPORTED,
              "messages[1].weight: is neither 0 nor 1");
    check_row(ROW(U("a") AND A_("b", "\"weight\": \"0\"")), WF_EUNSUPPORTED, "weight");
    check_row(ROW(U("a") AND A_("b", "\"train\": 0")), WF_EDATA,
              "messages[1].train: is neither true nor false");
    check_row(ROW(U("a") AND A_("b", "\"train\": false, \"weight\": 1")), WF_EDATA,
              "says something else");
    check_row(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 1}, " A("b") "]}",
        WF_EUNSUPPORTED, "no assistant says");
    check_row(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 0}, " A("b") "]}",
        WF_OK, "");
    check_row("{\"messages\": [" U("a") ", " A("b") "], \"weight\": 0}", WF_EUNSUPPORTED,
              "weight: is a field that is not known here");
    check_row("{\"messages\": [" U("a") ", " A("b") "], \"system\": \"s\"}", WF_EUNSUPPORTED,
              ".ignored system");
    check_row("{\"messages\": [" U("a") ", " A("b") "], \"tools\": [{}]}", WF_EUNSUPPORTED,
              "tools: is nothing that the chat template chatml writes");
    check_row("{\"messages\": [{\"role\": \"user\"}]}", WF_EDATA, "rows:7");
    check_row("{\"messages\": [7]}", WF_EDATA, "messages[0]");
    check_row("{\"messages\": ", WF_EDATA, "rows:7");
}

static void ignored_fields(void)
{
    static const char line[] =
        "{\"messages\": [" U("a") ", " A_("b", "\"rating\": 1") "], \"system\": \"s\"}";
    wf_chat_written written = {.count = 0};
    wf_error error = {WF_OK, ""};
    wf_chat_template *t;

    CU_ASSERT_EQUAL_FATAL(
        wf_chat_template_open(&(wf_chat_options){.name = "chatml", .ignored = "system,rating"},
                              &t, &error),
        WF_OK);
    CU_ASSERT_EQUAL(write_row(t, line, sizeof line - 1, WF_CHAT_LAST, 0, &written, &error),
                    WF_OK);
    CU_ASSERT(wf_chat_is_ignored(t, "rating", 6) && !wf_chat_is_ignored(t, "ratin", 5) &&
              !wf_chat_is_ignored(t, "", 0));
    wf_chat_template_close(t);
    wf_chat_written_free(&written);
}

static const wf_test tests[] = {
    {"rows", rows}, {"ignored fields", ignored_fields}, {NULL, NULL}};

int main(void)
{
    return wf_test_main("chat rows", tests);
}
