/* tests/apps/test_options_config.c - config files: precedence, every kind of bad one, and
 * options as JSON that is such a file. */
#include "tests/apps/options_line.h"

static char *write_config(const char *text)
{
    static char path[64];
    int file;

    strcpy(path, "/tmp/weft-options-XXXXXX");
    file = mkstemp(path);
    CU_ASSERT_FATAL(file >= 0);
    CU_ASSERT_EQUAL_FATAL(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    return path;
}

/* Parses "--config FILE" with this text in it, and more flags before and after. */
static wf_status parse_config(const char *text, const char *before, const char *after,
                              app_options *options, wf_error *error)
{
    const char *path = write_config(text);
    char line[1024];
    wf_status status;

    snprintf(line, sizeof line, "%s%s--config %s%s%s", before, *before ? " " : "", path,
             *after ? " " : "", after);
    status = parse(line, options, error);
    unlink(path);
    return status;
}

static void config_and_precedence(void)
{
    app_options o;
    wf_error error;
    const char *text =
        "{\"tp\": 4, \"n-layer\": 3, \"n_embd\": 48, \"lr\": 1, \"digest\": true,"
        " \"device_memory\": \"2MiB\","
        " \"exact\": \"off\", \"arch\": \"llama\", \"data\": [\"x\", \"y\"],"
        " \"sample_prompt\": \"two words\", \"min-lr\": null}";

    CU_ASSERT_EQUAL_FATAL(parse_config(text, "--tp 2", "--digest=off", &o, &error), WF_OK);
    CU_ASSERT_EQUAL(o.tp, 2); /* flags win, before the file or after it */
    CU_ASSERT_STRING_EQUAL(o.digest, "off");
    CU_ASSERT_EQUAL(o.n_layer, 3);
    CU_ASSERT_EQUAL(o.device_memory, 2 << 20);
    CU_ASSERT_EQUAL(o.n_embd, 48);
    CU_ASSERT_EQUAL(o.lr, 1.0);
    CU_ASSERT_EQUAL(o.min_lr, 0.1); /* null leaves the default */
    CU_ASSERT_FALSE(o.exact);
    CU_ASSERT_STRING_EQUAL(o.arch, "llama");
    CU_ASSERT_STRING_EQUAL(o.sample_prompt, "two words");
    CU_ASSERT_EQUAL(o.data.count, 2);
    CU_ASSERT_TRUE(o.given[APP_OPTION_n_layer] && !o.given[APP_OPTION_min_lr]);
    app_options_free(&o);

    CU_ASSERT_EQUAL_FATAL(parse_config(text, "--data mine", "", &o, &error), WF_OK);
    CU_ASSERT_EQUAL(o.data.count, 1); /* a list is replaced, not added to */
    CU_ASSERT_STRING_EQUAL(o.data.item[0], "mine");
    app_options_free(&o);
    CU_ASSERT_EQUAL_FATAL(parse_config("{\"data\": \"one\"}", "", "", &o, &error), WF_OK);
    CU_ASSERT_EQUAL(o.data.count, 1);
    app_options_free(&o);
}

static void bad_configs(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"tq\": 1}", "\"tq\" is an unknown key; did you mean \"tp\"?"},
        {"{\"log_interval\": 1}", "\"log_interval\" is an unknown key: each step has a line"},
        {"{\"batch_size\": 1}", "did you mean \"micro_batch_size\" or \"global_batch_size\"?"},
        {"{\"derived\": 3}", "\"derived\" must be an object"},
        {"{\"derived\": {\"min-rl\": 1}}",
         "\"derived\": \"min-rl\" is an unknown key; did you mean \"min_lr\"?"},
        {"{\"nothing_like_it\": 1}", "\"nothing_like_it\" is an unknown key; gpt_train --help"},
        {"{\"tp\": \"2\"}", "\"tp\" must be a whole number, and is \"2\""},
        {"{\"tp\": 2.0}", "\"tp\" must be a whole number"},
        {"{\"tp\": 0}", "\"tp\" 0 is not in [1, 4096]"},
        {"{\"lr\": true}", "\"lr\" must be a number"},
        {"{\"digest\": 1}", "\"digest\" must be true or false"},
        {"{\"device_memory\": true}", "\"device_memory\" must be a number of bytes, or a size"},
        {"{\"plan\": true}", "\"plan\" cannot stand in a config file"},
        {"{\"arch\": 2}", "\"arch\" must be a word in quotes"},
        {"{\"arch\": \"bert\"}", "\"arch\" 'bert' is unknown; use one of: gpt2, llama"},
        {"{\"arch\": \"gpt2\\u0000\"}", "\\u0000 is not allowed"},
        {"{\"data\": [\"a\", 2]}", "\"data\" must be a list of file names"},
        {"{\"tp\": [2]}", "\"tp\" must be a whole number"},
        {"{\"config\": \"b.json\"}", "\"config\" cannot stand in a config file"},
        {"{\"help\": true}", "\"help\" cannot stand in a config file"},
        {"{\"tp\": 1, \"tp\": 2}", "duplicate object key"},
        {"{\"n-head\": 1, \"n_head\": null}", "\"n_head\" is there as \"n-head\" too"},
        {"[1, 2]", "must hold one JSON object"},
        {"{\"tp\": 1,\n \"dp\": }", "line 2"},
        {"", "'[' or '{' expected"},
    };
    app_options o;
    wf_error error;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_status status = parse_config(cases[i].text, "--steps 0", "", &o, &error);
        bool good = status == WF_EINVAL && strstr(error.text, cases[i].words);

        if (!good)
            printf("\n    %s\n    gave %d: %s\n", cases[i].text, status, error.text);
        CU_ASSERT_TRUE(good);
    }
    check_fails("--config /nowhere/x.json", WF_EIO, "No such file or directory");
    check_fails("--config /tmp", WF_EIO, "cannot read --config /tmp: Is a directory");
}

/* Options that are printed as JSON and read back as a config file print the same. */
static void json_round_trip(void)
{
    app_options first, second;
    wf_error error;
    json_t *one, *two;
    char *text;

    CU_ASSERT_EQUAL_FATAL(
        parse("--data a b --tp 2 --arch llama --n-kv-head 3 --lr 0.0123456789 "
              "--digest=tensors --exact off --steps 1234 --seed 9223372036854775807 "
              "--log-jsonl out.jsonl --device-memory 3GiB",
              &first, &error),
        WF_OK);
    one = app_options_json(&first);
    CU_ASSERT_PTR_NOT_NULL_FATAL(one);
    for (int i = 0; i < APP_OPTION_COUNT; i++)
        CU_ASSERT_EQUAL(json_object_get(one, app_option_rows[i].name) != NULL,
                        app_option_in_config(&app_option_rows[i]));
    text = json_dumps(one, 0);
    CU_ASSERT_EQUAL_FATAL(parse_config(text, "", "", &second, &error), WF_OK);
    two = app_options_json(&second);
    CU_ASSERT_TRUE(json_equal(one, two));
    CU_ASSERT_EQUAL(second.seed, INT64_MAX);
    CU_ASSERT_EQUAL(second.lr, 0.0123456789);
    CU_ASSERT_STRING_EQUAL(second.digest, "tensors");
    CU_ASSERT_EQUAL(second.device_memory, (int64_t)3 << 30);
    free(text);
    json_decref(one);
    json_decref(two);
    app_options_free(&first);
    app_options_free(&second);
}

/* A file of --save-config has the given options; the others follow anew from those given beside
   it. */
static void derived_follows_anew(void)
{
    const char *path = write_config(""),
               *line = "--data a --lr 0.01 --steps 50 --dp 2 --dtype fp32";
    char text[256];
    app_options o;
    wf_error error;
    json_error_t problem;
    json_t *saved;

    snprintf(text, sizeof text, "%s --global-batch-size 8 --save-config %s", line, path);
    CU_ASSERT_EQUAL_FATAL(parse(text, &o, &error), WF_OK);
    CU_ASSERT_EQUAL(o.micro_batch_size, 4);
    CU_ASSERT_EQUAL_FATAL(app_options_show(&o, stdout, &error), WF_OK);
    app_options_free(&o);
    saved = json_load_file(path, 0, &problem);
    CU_ASSERT_PTR_NOT_NULL_FATAL(saved);
    CU_ASSERT_EQUAL(json_real_value(json_object_get(saved, "lr")), 0.01);
    CU_ASSERT_PTR_NULL(json_object_get(saved, "min_lr"));
    CU_ASSERT_EQUAL(
        json_real_value(json_object_get(json_object_get(saved, "derived"), "min_lr")), 0.001);
    json_decref(saved);
    snprintf(text, sizeof text, "--config %s --lr 1 --steps 200 --dp 4", path);
    CU_ASSERT_EQUAL_FATAL(parse(text, &o, &error), WF_OK);
    CU_ASSERT_EQUAL(o.min_lr, 0.1);
    CU_ASSERT_EQUAL(o.warmup_steps, 20);
    CU_ASSERT_EQUAL(o.micro_batch_size, 2);
    CU_ASSERT_FALSE(o.given[APP_OPTION_min_lr]);
    app_options_free(&o);
    unlink(path);
}

/* A name that is not UTF-8 still gives JSON. */
static void json_of_foreign_names(void)
{
    app_options o;
    wf_error error;
    json_t *made;

    CU_ASSERT_EQUAL_FATAL(parse("--data caf\xe9.txt", &o, &error), WF_OK);
    made = app_options_json(&o);
    CU_ASSERT_PTR_NOT_NULL_FATAL(made);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_array_get(json_object_get(made, "data"), 0)),
                           "caf?.txt");
    json_decref(made);
    app_options_free(&o);
}

int main(void)
{
    static const wf_test tests[] = {
        {"config file and precedence", config_and_precedence},
        {"bad config files", bad_configs},
        {"JSON round trip", json_round_trip},
        {"derived values of a saved config follow anew", derived_follows_anew},
        {"JSON of foreign names", json_of_foreign_names},
        {NULL, NULL},
    };

    return wf_test_main("options of config files", tests);
}
