/*
 * tests/text/test_jinja.c - templates as transformers renders them (tests/text/jinja/make.py
 * records them), what is refused and where, and limits. With the name of a file of cases:
 * those, and how many are equal.
 *
 * ctest: defines WEFT_JINJA=tests/text/jinja
 */
#include "nn/text/chat/json_value_internal.h"
#include "nn/text/tokenizer/load_internal.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct variables {
    const wf_text_json *json;
    uint32_t value;
    wf_jinja_value made;
} variables;

static void make_variables(wf_jinja_run *run, void *arg)
{
    variables *v = arg;

    v->made = wf_chat_json_value(run, v->json, v->value);
}

/* Returns the difference of a case from its record. */
static const char *differs(const wf_text_json *json, uint32_t one, const wf_jinja_output *out)
{
    uint32_t spans = wf_text_json_get(json, one, "spans"), i;
    size_t bytes, span = 0;
    const char *text = wf_text_json_text(json, wf_text_json_get(json, one, "text"), &bytes);

    if (bytes != out->bytes || memcmp(text, out->text, bytes) != 0)
        return "the text";
    if (spans == WF_TEXT_JSON_NONE)
        return NULL;
    for (i = spans + 1; i < json->values[spans].next; i = wf_text_json_after(json, i), span++) {
        uint32_t begin = i + 1, end = wf_text_json_after(json, begin);

        if (span >= out->span_count ||
            wf_text_json_int(json, begin, 0, 1 << 30) != (int64_t)out->spans[span].begin ||
            wf_text_json_int(json, end, 0, 1 << 30) != (int64_t)out->spans[span].end)
            return "a span";
    }
    return span == out->span_count ? NULL : "the number of spans";
}

/* Renders a case; true: as recorded. An error is recorded as "error": true. */
static bool check_case(const wf_text_json *json, uint32_t one, wf_jinja_run *run,
                       const wf_jinja *template, const char *name)
{
    variables v = {.json = json, .value = wf_text_json_get(json, one, "variables")};
    bool fails = wf_text_json_bool(json, one, "error", false);
    wf_error error = {WF_OK, ""};
    wf_jinja_output out = {.text = ""};
    const char *what = NULL;
    size_t bytes;

    wf_jinja_run_reset(run);
    if (wf_jinja_protect(run, make_variables, &v, &error) == WF_OK)
        wf_jinja_render(run, template, v.made, &out, &error);
    if (fails != (error.code != WF_OK))
        what = fails ? "an error is missing" : error.text;
    else if (!fails)
        what = differs(json, one, &out);
    if (what && !fails && error.code == WF_OK) {
        const char *text = wf_text_json_text(json, wf_text_json_get(json, one, "text"), &bytes);

        printf("\n    %s: %s differs: %s\n    wanted: %.*s\n", name, what, out.text, (int)bytes,
               text);
    } else if (what)
        printf("\n    %s: %s\n", name, what);
    return !what;
}

/* Renders the cases of a file: [{"name", "template", "cases": [{"variables", "text"}, ..]},
   ..]. */
static int check_file(const char *path, size_t *equal, size_t *refused)
{
    wf_error error = {WF_OK, ""};
    wf_jinja_run *run = NULL;
    char *text;
    size_t bytes, name_bytes, cases_there = 0;
    wf_text_json json;

    *equal = *refused = 0;
    CU_ASSERT_EQUAL_FATAL(wf_tok_file_read(path, &text, &bytes, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_text_json_open(&json, path, text, bytes, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_jinja_run_new(&run, &error), WF_OK);
    for (uint32_t i = 1; i < json.values[0].next; i = wf_text_json_after(&json, i)) {
        uint32_t cases = wf_text_json_get(&json, i, "cases");
        const char *source =
            wf_text_json_text(&json, wf_text_json_get(&json, i, "template"), &bytes);
        const char *named =
            wf_text_json_text(&json, wf_text_json_get(&json, i, "name"), &name_bytes);
        char name[128];
        wf_error why = {WF_OK, ""};
        wf_jinja *template;

        snprintf(name, sizeof name, "%.*s", (int)name_bytes, named);
        wf_jinja_compile(name, source, bytes, &template, &why);
        for (uint32_t c = cases + 1; c < json.values[cases].next;
             c = wf_text_json_after(&json, c)) {
            const bool fails = wf_text_json_bool(&json, c, "error", false);

            cases_there++;
            *equal += template ? check_case(&json, c, run, template, name) : fails;
            if (!template && !fails) {
                printf("\n    %s\n", why.text);
                ++*refused;
            }
        }
        wf_jinja_free(template);
    }
    wf_jinja_run_free(run);
    wf_text_json_close(&json);
    return (int)cases_there;
}

static const char *path = WEFT_JINJA "/cases.json";

static void as_transformers(void)
{
    size_t equal, refused;
    int there = check_file(path, &equal, &refused);

    printf("%zu of %d equal, %zu of them refused ", equal, there, refused);
    CU_ASSERT(there >= 100);
    CU_ASSERT_EQUAL(equal, (size_t)there);
    CU_ASSERT_EQUAL(refused, 0);
}

static void no_variables(wf_jinja_run *run, void *arg)
{
    *(wf_jinja_value *)arg = wf_jinja_dict(run);
}

/* A template is refused with these words, at its place, when it is read or when it is
   rendered. */
static void check_refused(const char *text, wf_status wanted, const char *words)
{
    wf_error error = {WF_OK, ""};
    wf_jinja_output out;
    wf_jinja_value given;
    wf_jinja *template;
    wf_jinja_run *run = NULL;

    CU_ASSERT_EQUAL_FATAL(wf_jinja_run_new(&run, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_jinja_protect(run, no_variables, &given, &error), WF_OK);
    if (wf_jinja_compile("t", text, strlen(text), &template, &error) == WF_OK)
        wf_jinja_render(run, template, given, &out, &error);
    if (error.code != wanted || !strstr(error.text, words))
        printf("\n    %.60s gave %d: %s\n", text, error.code, error.text);
    CU_ASSERT_EQUAL(error.code, wanted);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    wf_jinja_run_free(run);
    wf_jinja_free(template);
}

/* Renders a template with no variables. */
static void check_gives(const char *text, const char *wanted)
{
    wf_error error = {WF_OK, ""};
    wf_jinja_output out = {0};
    wf_jinja_value given;
    wf_jinja *template = NULL;
    wf_jinja_run *run = NULL;

    CU_ASSERT_EQUAL_FATAL(wf_jinja_run_new(&run, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_jinja_protect(run, no_variables, &given, &error), WF_OK);
    if (wf_jinja_compile("t", text, strlen(text), &template, &error) == WF_OK)
        wf_jinja_render(run, template, given, &out, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    CU_ASSERT(error.code == WF_OK && out.bytes == strlen(wanted) &&
              memcmp(out.text, wanted, out.bytes) == 0);
    wf_jinja_run_free(run);
    wf_jinja_free(template);
}

/* A macro sees what stands where it is defined, not where it is called, and what it sets is its
   own (jinja2 3.1 gives the same). */
static void scopes_of_macros(void)
{
    check_gives("{% set a = 1 %}{% macro f() %}{{ a }}{% set a = 5 %}{{ a }}{% endmacro %}"
                "{% for i in [7] %}{% set a = 2 %}{{ f() }}{% endfor %}{{ a }}",
                "151");
    check_gives("{% macro f() %}[{{ x }}]{% endmacro %}{% macro g(x) %}{{ f() }}{% endmacro %}"
                "{{ g(3) }}",
                "[]");
    check_gives("{% macro f(i) %}{{ i }}{% endmacro %}{% for i in [1, 2] %}{{ f(9) }}{{ i }}"
                "{% endfor %}{{ i }}",
                "9192");
}

static void what_is_refused(void)
{
    check_refused("a\n {% include 'x' %}", WF_EUNSUPPORTED, "t:2:5: the statement include");
    check_refused("{{ 1 is sameas 1 }}", WF_EUNSUPPORTED, "t:1:9: the test sameas");
    check_refused("{{ 'a' | wordwrap }}", WF_EUNSUPPORTED, "t:1:10: the filter wordwrap");
    check_refused("{% for a in b recursive %}", WF_EUNSUPPORTED, "a recursive loop");
    check_refused("{{ f(*a) }}", WF_EUNSUPPORTED, "t:1:6: arguments by *");
    check_refused("{% macro f() %}{{ caller() }}{% endmacro %}", WF_EUNSUPPORTED, "caller");
    check_refused("{{ 'x'.__class__ }}", WF_EUNSUPPORTED, "__class__");
    check_refused("{{ 'x'.zfill(3) }}", WF_EUNSUPPORTED, "the attribute zfill of a str");
    check_refused("{{ '\xc3\xa9' | upper }}", WF_EUNSUPPORTED, "beyond ASCII");
    check_refused("{{ 9223372036854775807 + 1 }}", WF_EUNSUPPORTED, "number of this form");
    check_refused("{{ 2 ** 80 }}", WF_EUNSUPPORTED, "beyond 64 bits");
    check_refused("{% macro f() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ f() }}",
                  WF_EUNSUPPORTED, "a generation block in a macro");
    check_refused("\xff", WF_EDATA, "no UTF-8");
    check_refused("{{ raise_exception('no ' ~ 1) }}", WF_EDATA, "refuses this: no 1");
}

static void limits(void)
{
    static char deep[4096];

    if (!UNDER_SANITIZER) /* 20 million steps take seconds there */
        check_refused("{% set r = range(99999) %}{% for i in range(250) %}"
                      "{% set x = r | sum %}{% endfor %}",
                      WF_EDATA, "more than 20000000 steps");
    check_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", WF_EDATA, "nested deeper");
    check_refused("{{ 'a' * 999999999 }}", WF_EDATA, "t:1:8: ");
    check_refused("{% set n = namespace(x='abcdefgh') %}{% for i in range(99) %}"
                  "{% set n.x = n.x + n.x %}{% endfor %}",
                  WF_EDATA, "MiB");
    check_refused("{% set x = 'a' * 1000000 %}{% for i in range(99) %}{{ x }}{% endfor %}",
                  WF_EDATA, "writes more than 64 MiB");
    check_refused("{% set s = 'a' * 1000000 %}{% for i in range(90000) %}"
                  "{% if 'ab' in s %}{% endif %}{% endfor %}",
                  WF_EDATA, "more than 20000000 steps"); /* it ran for half an hour */
    memset(deep, '(', 2000);
    memcpy(deep, "{{ ", 3);
    check_refused(deep, WF_EDATA, "nested deeper than 150");
}

/* Texts of a megabyte with many lines were refused: each search was counted as one to the
   end. */
static void long_texts(void)
{
    check_gives("{% set s = 'a line of some forty letters in all\n' * 25000 %}"
                "{{ s.split('\n') | length }} {{ s | replace('\n', '  ') | length }}",
                "25001 925000");
}

static const wf_test tests[] = {{"templates render as by transformers", as_transformers},
                                {"scopes of macros", scopes_of_macros},
                                {"what is refused", what_is_refused},
                                {"limits", limits},
                                {"long texts", long_texts},
                                {NULL, NULL}};

int main(int argc, char **argv)
{
    setenv("SOURCE_DATE_EPOCH", "1750000000", 1);
    setenv("TZ", "UTC", 1);
    if (argc > 1)
        path = argv[1];
    return wf_test_main("jinja", tests);
}
