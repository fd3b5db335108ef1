/* tests/apps/test_options.c - the command line: values, defaults, every kind of bad flag. */
#include "tests/apps/options_line.h"

/* Each line is wrong in one way; the words are what the user has to read. */
static const struct {
    const char *line, *words;
} bad_line[] = {
    {"--data a --micro-batch 2",
     "unknown flag --micro-batch; did you mean --micro-batch-size?"},
    {"--data a --nlayer 2", "did you mean --n-layer?"},
    {"--data a --setps=2", "unknown flag --setps; did you mean --steps?"},
    {"--data a --warmup 2", "did you mean --warmup-steps?"},
    {"--data a --learning-rate 1", "unknown flag --learning-rate; did you mean --lr?"},
    {"--data a --learning_rate=1", "unknown flag --learning_rate; did you mean --lr?"},
    {"--data a --batch-size 2", "did you mean --micro-batch-size or --global-batch-size?"},
    {"--data a --max_iters 2", "unknown flag --max_iters; did you mean --steps?"},
    {"--data a --tensor-model-parallel-size 2", "did you mean --tp?"},
    {"--data a --tensor-parallel 2", "unknown flag --tensor-parallel; did you mean --tp?"},
    {"--data a --per-device-batch-size 2", "did you mean --micro-batch-size?"},
    {"--data a --checkpoint-dir a", "did you mean --save or --resume?"},
    {"--data a --parallelism.tensor_parallel_degree 2",
     "unknown flag --parallelism.tensor_parallel_degree; did you mean --tp?"},
    {"--data a --checkpoint.folder a", "did you mean --save?"},
    {"--data a --training.seq_len 2", "did you mean --seq-len?"},
    {"--data a --log-interval 2", "unknown flag --log-interval: each step has a line"},
    {"--data a --frobnicate", "unknown flag --frobnicate; gpt_train --help lists all flags"},
    {"--data a -tp 2", "unknown flag -tp; did you mean --tp?"},
    {"", "--data is missing"},
    {"--data", "--data needs a value: --data FILE..."},
    {"--data --tp 2", "--data needs a value"},
    {"--data=", "--data is given an empty file name"},
    {"--data _", "--data is given an empty file name"},
    {"book.txt", "unexpected argument 'book.txt': every value follows a flag"},
    {"--data a --digest off", "--digest takes no value (--digest=off switches it off)"},
    {"--data a --digest=maybe", "--digest 'maybe' is unknown; use one of: off, on, tensors"},
    {"--data a --find-batch=maybe", "--find-batch 'maybe' is neither on nor off"},
    {"--data a --data -b", "--data needs a value"},
    {"--data a --tp", "--tp needs a value: --tp N"},
    {"--data a --tp --dp 2", "--tp needs a value"},
    {"--data a --tp two", "--tp 'two' is not a whole number"},
    {"--data a --tp 2.5", "--tp '2.5' is not a whole number"},
    {"--data a --tp=", "--tp '' is not a whole number"},
    {"--data a --tp 0", "--tp 0 is not in [1, 4096]"},
    {"--data a --tp -4", "--tp -4 is not in [1, 4096]"},
    {"--data a --steps 99999999999999999999", "--steps 99999999999999999999 does not fit"},
    {"--data a --seed -1", "--seed -1 is not in [0, inf)"},
    {"--data a --lr fast", "--lr 'fast' is not a number"},
    {"--data a --lr nan", "--lr 'nan' is not a number"},
    {"--data a --lr 0x1p3", "--lr '0x1p3' is not a number"},
    {"--data a --lr 0", "--lr 0 is not in (0, 1000]"},
    {"--data a --lr 1e999", "--lr 1e999 is not in (0, 1000]"},
    {"--data a --lr 1e-3x", "--lr '1e-3x' is not a number"},
    {"--data a --dropout 1", "--dropout 1 is not in [0, 1)"},
    {"--data a --beta1 1", "--beta1 1 is not in [0, 1)"},
    {"--data a --beta2 -0.1", "--beta2 -0.1 is not in [0, 1)"},
    {"--data a --eps 0", "--eps 0 is not in (0, 1]"},
    {"--data a --clip-grad -1", "--clip-grad -1 is not in [0, inf)"},
    {"--data a --clip-grad 1e999", "--clip-grad 1e999 is not in [0, inf)"},
    {"--data a --val-fraction 1", "--val-fraction 1 is not in [0, 1)"},
    {"--data a --vocab-size 1", "--vocab-size 1 is not in [2, 16777216]"},
    {"--data a --arch bert", "--arch 'bert' is unknown; use one of: gpt2, llama, mistral"},
    {"--data a --optimizer adam",
     "--optimizer 'adam' is unknown; use one of: adamw, adamw8bit, sgd"},
    {"--data a --exact maybe", "--exact 'maybe' is neither on nor off"},
    {"--data a --strategy zero9", "use one of: full_shard, shard_grad_op, "},
    {"--data a --wrap-type mlp --wrap-min-params 9", "both choose units"},
    {"--data a --reshard-after-forward maybe", "use one of: default, always, never"},
    {"--data a --accumulate all", "use one of: auto, local, reduced"},
    {"--data a --prefetch -1", "--prefetch -1 is not in"},
    {"--data a --log-jsonl=", "--log-jsonl is given an empty file name"},
    {"--data a --n-embd 100 --n-head 6", "use --n-embd 96 or 102"},
    {"--data a --n-embd 4 --n-head 6",
     "--n-embd 4 is not a multiple of --n-head 6; use --n-embd 6"},
    {"--data a --arch llama --n-embd 90 --n-head 6", "odd head size 15"},
    {"--data a --arch llama --n-kv-head 4 --n-head 6",
     "does not divide --n-head 6; use --n-kv-head 3"},
    {"--data a --arch llama --n-kv-head 12 --n-head 6", "use --n-kv-head 6"},
    {"--data a --n-kv-head 4", "--n-kv-head 4 does not divide --n-head 6"},
    {"--data a --global-batch-size 12 --dp 4 --micro-batch-size 2",
     "--dp 4 x --micro-batch-size 2 = 8; use --global-batch-size 8 or 16, or "
     "--micro-batch-size 1"},
    {"--data a --tp 4096 --dp 2 --global-batch-size 2", "8192 ranks"},
    {"--data a --steps 10 --warmup-steps 11", "--warmup-steps 11 is more than --steps 10"},
    {"--data a --lr 1e-4 --min-lr 1e-3", "--min-lr 0.001 is above --lr 0.0001"},
    {"--data a --val-fraction 0 --eval-interval 5", "needs validation data"},
    {"--data a --val-data b --val-fraction 0.2", "--val-data and --val-fraction 0.2 both give"},
    {"--data a --val-data b --eval-interval 0", "--val-data is for evaluations, and"},
    {"--data a --epochs -1", "--epochs -1 is not in [0, 1000000]"},
    {"--data a=x:b --log-jsonl l", "--data a=x:b: the weight of a source is a positive number"},
    {"--data a=1:b,l --log-jsonl l", "--log-jsonl l is the file of --data l too"},
    {"--data a --val-data v=1:l --log-jsonl l",
     "--log-jsonl l is the file of --val-data l too"},
    {"--data a --sample 10 --sample-prompt=", "--sample-prompt is empty"},
    {"--data a --tokenizer t", "--tokenizer is of --sample N"},
    {"--data a --sample-temperature 1", "--sample-temperature belongs to --sample N"},
    {"--data a --sample-prompt A", "--sample-prompt belongs to --sample N"},
    {"--data a --optimizer sgd --beta2 .9", "--beta2 is of adamw"},
    {"--data a --optimizer sgd --eps 1e-6", "--eps is of adamw"},
    {"--data a --keep 5", "--keep belongs to --save DIR"},
    {"--data a --checkpoint full", "--checkpoint belongs to --save DIR"},
    {"--data a --eval-interval 0 --eval-iters 4", "--eval-iters is of evaluations, and"},
    {"--data a --val-fraction 0 --eval-iters 4", "--eval-iters is of evaluations, and"},
    {"--data a --rope-base 20000", "--rope-base is for RoPE, and --arch gpt2"},
    {"--data a --transport fake", "--transport fake moves no data"},
    {"--data a --device-memory lots",
     "--device-memory 'lots' is not a size; it takes a number"},
    {"--data a --device-memory 80Gib", "80GiB, 512MiB, 1.5TB"},
    {"--data a --device-memory -1", "is not a size"},
    {"--data a --device-memory .", "is not a size"},
    {"--data a --device-memory 9000TiB", "of at most 8192 TiB"},
    {"--data a --find-batch", "--find-batch belongs to a plan; use it with --plan"},
    {"--data a --json x", "--json belongs to a plan; use it with --plan, or --report-json"},
    {"--plan --find-batch", "use it with --device-memory SIZE"},
    {"--plan --report-json x", "with --plan use --json FILE"},
    {"--plan --transport threads", "--plan moves nothing"},
    {"--plan --tp 4096 --dp 512 --global-batch-size 512",
     "2097152 ranks, and a plan has at most 1048576"},
    {"--plan --tp 2 --rank 2", "--rank 2 is not one of the 2 ranks of --tp 2 x --dp 1"},
    {"--data a --rank 0",
     "--rank belongs to --plan, --report-json, --comm-report, --trace or "},
    {"--steps 0 --report-json x", "--report-json is of a step"},
    {"--steps 0 --comm-report", "--comm-report is of a step, and --steps is 0"},
    {"--data a --exit-duration-in-mins 1", "stops, belongs to --save DIR"},
    {"--data a --log-jsonl a", "--log-jsonl a is the file of --data a too"},
    {"--data a --log-jsonl x --trace x", "--trace x is the file of --log-jsonl x too"},
    {"--steps 0 --sample 3 --transport fake", "so it cannot make --sample 3"},
    {"--data a --trace-steps 2-3", "--trace-steps belongs to a timeline or a profile; use it"},
    {"--data a --profile 5 --steps 4 --trace-steps 4-5", "goes beyond --steps 4"},
    {"--data a --eval-ema", "--eval-ema evaluates a moving average, and --ema is 0"},
    {"--data a --eval-ema --ema 0.9 --eval-interval 0", "and --eval-interval is 0"},
    {"--data a --reset-optimizer", "--reset-optimizer needs --resume PATH"},
    {"--data a --save s --resume auto --reset-optimizer", "each start would begin anew"},
    {"--profile 5 --plan", "--profile is of steps that run, and --plan runs none"},
    {"--data a --trace t --trace-steps 3-2", "'3-2' is not a range of steps"},
    {"--data a --trace t --trace-steps 0-2", "'0-2' is not a range of steps"},
    {"--data a --trace t --trace-steps 1-", "'1-' is not a range of steps"},
    {"--data a --trace t --trace-steps two", "2-3, or 5"},
    {"--data a --trace t --trace-steps 99999999999999999999", "is not a range of steps"},
    {"--data a --trace t --steps 4 --trace-steps 4-5", "goes beyond --steps 4"},
    {"--data a --trace t --steps 0", "--steps is 0"},
    {"--trace t --plan", "--plan runs none"},
    {"--data a --completion fish", "--completion 'fish' is unknown; use one of: bash, zsh"},
};

static void bad_flags(void)
{
    for (size_t i = 0; i < sizeof bad_line / sizeof *bad_line; i++)
        check_fails(bad_line[i].line, WF_EINVAL, bad_line[i].words);
}

static void values_and_defaults(void)
{
    app_options o;
    wf_error error;

    CU_ASSERT_EQUAL_FATAL(
        parse("--data a b --tp 8 --dp=4 --data c --sequence-parallel --lr 2e-3 "
              "--exact off --strategy ddp --tp 2 --digest=off",
              &o, &error),
        WF_OK);
    CU_ASSERT_EQUAL(o.data.count, 3);
    CU_ASSERT_STRING_EQUAL(o.data.item[2], "c");
    CU_ASSERT_EQUAL(o.tp, 2); /* the last one counts */
    CU_ASSERT_EQUAL(o.dp, 4);
    CU_ASSERT_TRUE(o.sequence_parallel);
    CU_ASSERT_FALSE(o.exact);
    CU_ASSERT_STRING_EQUAL(o.digest, "off");
    CU_ASSERT_STRING_EQUAL(o.strategy, "no_shard");
    CU_ASSERT_STRING_EQUAL(o.arch, "gpt2");
    CU_ASSERT_EQUAL(o.lr, 2e-3);
    CU_ASSERT_EQUAL(o.min_lr, 2e-3 / 10);
    CU_ASSERT_EQUAL(o.warmup_steps, 20);
    CU_ASSERT_EQUAL(o.micro_batch_size, 4);
    CU_ASSERT_EQUAL(o.n_kv_head, 6);
    CU_ASSERT_EQUAL(o.ffn, 4 * 384);
    CU_ASSERT_PTR_NULL(o.log_jsonl);
    CU_ASSERT_STRING_EQUAL(o.param_dtype, "fp32");
    app_options_free(&o);

    CU_ASSERT_EQUAL_FATAL(parse("--data a --dtype bf16", &o, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(o.param_dtype, "bf16"); /* as activations are */
    app_options_free(&o);
    CU_ASSERT_EQUAL_FATAL(parse("--data a --dtype bf16 --param-dtype fp32", &o, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(o.param_dtype, "fp32");
    app_options_free(&o);

    CU_ASSERT_EQUAL_FATAL(parse("--data a --arch llama --n-embd 384 --n-kv-head 2 --min-lr 0 "
                                "--warmup-steps 0 --val-fraction 0",
                                &o, &error),
                          WF_OK);
    CU_ASSERT_EQUAL(o.ffn, 1024);
    CU_ASSERT_EQUAL(o.n_kv_head, 2);
    CU_ASSERT_EQUAL(o.min_lr, 0);
    CU_ASSERT_EQUAL(o.warmup_steps, 0);
    CU_ASSERT_EQUAL(o.eval_interval, 0); /* nothing to evaluate on */
    CU_ASSERT_EQUAL(o.val_fraction, 0);
    app_options_free(&o);

    CU_ASSERT_EQUAL_FATAL(parse("--data a --val-data b", &o, &error), WF_OK);
    CU_ASSERT_EQUAL(o.val_fraction, 0);
    CU_ASSERT_EQUAL(o.eval_interval, 100);
    CU_ASSERT_FALSE(app_options_data(&o).vocabulary.given);
    app_options_free(&o);
    CU_ASSERT_EQUAL_FATAL(parse("--data a --vocab-size 256 --eval-iters 0", &o, &error), WF_OK);
    CU_ASSERT_EQUAL(o.val_fraction, 0.1);
    CU_ASSERT_TRUE(app_options_data(&o).vocabulary.given && app_options_data(&o).every_window);
    app_options_free(&o);
}

/* Reports need no data; help and completion stop reading. */
static void without_a_run(void)
{
    app_options o;
    wf_error error;

    CU_ASSERT_EQUAL(parse("--steps 0 --show-layout --transport fake", &o, &error), WF_OK);
    app_options_free(&o);
    CU_ASSERT_EQUAL(parse("--plan --tp 8 --dp 2048 --global-batch-size 2048", &o, &error),
                    WF_OK);
    CU_ASSERT_EQUAL(o.rank, 16383);
    CU_ASSERT_EQUAL(o.device_memory, 0);
    app_options_free(&o);
    CU_ASSERT_EQUAL(parse("--plan --dp 3 --find-batch --device-memory 1GiB", &o, &error),
                    WF_OK);
    CU_ASSERT_EQUAL(o.micro_batch_size, 6); /* 16 sequences do not divide: one micro-step */
    app_options_free(&o);
    CU_ASSERT_EQUAL(parse("--tp 2 --help --nonsense", &o, &error), WF_OK);
    CU_ASSERT_TRUE(o.help);
    app_options_free(&o);
    CU_ASSERT_EQUAL(parse("-h", &o, &error), WF_OK);
    CU_ASSERT_TRUE(o.help);
    app_options_free(&o);
    CU_ASSERT_EQUAL(parse("--steps 3 --version --nonsense", &o, &error), WF_OK);
    CU_ASSERT_TRUE(o.version && app_options_asks(&o));
    app_options_free(&o);
    CU_ASSERT_EQUAL(parse("--completion zsh", &o, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(o.completion, "zsh");
    app_options_free(&o);
}

static void sizes(void)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {{"0", 0},
                 {"512", 512},
                 {"512B", 512},
                 {"1KiB", 1024},
                 {"1.5KB", 1500},
                 {"64MiB", 64 << 20},
                 {"80GiB", (int64_t)80 << 30},
                 {"0.5GiB", 1 << 29},
                 {"80GB", 80000000000},
                 {"2TiB", (int64_t)2 << 40},
                 {"2TB", 2000000000000}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[64];
        app_options o;
        wf_error error;

        snprintf(line, sizeof line, "--plan --device-memory %s", cases[i].text);
        CU_ASSERT_EQUAL_FATAL(parse(line, &o, &error), WF_OK);
        CU_ASSERT_EQUAL(o.device_memory, cases[i].bytes);
        app_options_free(&o);
    }
}

/* Batches that ranks divide, and others. */
static void micro_steps(void)
{
    static const struct {
        const char *line;
        int64_t micro, steps, idle;
    } cases[] = {{"--global-batch-size 12 --dp 4", 3, 1, 0},
                 {"--global-batch-size 12 --dp 4 --micro-batch-size 1", 1, 3, 0},
                 {"--global-batch-size 10 --dp 4", 1, 3, 2},
                 {"--global-batch-size 2 --dp 4 --micro-batch-size 1", 1, 1, 2}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[96];
        app_options o;
        wf_error error;

        snprintf(line, sizeof line, "--plan %s", cases[i].line);
        CU_ASSERT_EQUAL_FATAL(parse(line, &o, &error), WF_OK);
        CU_ASSERT_EQUAL(o.micro_batch_size, cases[i].micro);
        CU_ASSERT_EQUAL(app_options_micro_steps(&o), cases[i].steps);
        CU_ASSERT_EQUAL(app_options_idle(&o), cases[i].idle);
        app_options_free(&o);
    }
}

static void ranges_of_steps(void)
{
    static const struct {
        const char *line;
        int64_t first, last;
    } cases[] = {{"--trace-steps 5-8", 5, 8},
                 {"--trace-steps 7", 7, 7},
                 {"--steps 9", 2, 3},
                 {"--steps 2", 2, 2},
                 {"--steps 1", 1, 1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[96];
        app_options o;
        wf_error error;

        snprintf(line, sizeof line, "--data a --trace t %s", cases[i].line);
        CU_ASSERT_EQUAL_FATAL(parse(line, &o, &error), WF_OK);
        CU_ASSERT_EQUAL(o.trace_steps.first, cases[i].first);
        CU_ASSERT_EQUAL(o.trace_steps.last, cases[i].last);
        app_options_free(&o);
    }
}

/* The table itself: whatever has a default accepts it, names fit, no flag stands twice. */
static void table_is_sound(void)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        const char *cursor = row->domain;
        app_choice choice;

        if (row->kind == APP_KIND_GROUP)
            continue;
        CU_ASSERT_PTR_EQUAL(app_option_find(row->name, strlen(row->name)), row);
        CU_ASSERT_TRUE(strlen(app_option_flag(row).text) == strlen(row->name) + 2);
        CU_ASSERT_TRUE(row->metavar || row->kind == APP_KIND_BOOL);
        CU_ASSERT_TRUE(row->domain ||
                       (row->kind != APP_KIND_INT && row->kind != APP_KIND_REAL &&
                        row->kind != APP_KIND_FLOAT));
        while (row->kind == APP_KIND_CHOICE && app_choice_next(&cursor, &choice)) {
            CU_ASSERT_TRUE(strlen(choice.name) < APP_CHOICE_LENGTH - 1);
            CU_ASSERT_TRUE(choice.alias == (strcmp(choice.name, choice.means) != 0));
        }
    }
}

/* Rows of other tools' names: what they stand for is a flag of gpt_train or of a program that
   `elsewhere` has, and no row is of a flag that gpt_train has itself. */
static void other_names_are_sound(void)
{
    static const struct {
        const char *theirs, *ours[2];
    } rows[] = {
#define NAME(theirs, ours)        {#theirs, {#ours, #ours}},
#define NAME2(theirs, one, other) {#theirs, {#one, #other}},
#define NONE(theirs, why)         {#theirs, {NULL, NULL}},
#include "parallel/program/other_names.def"
#undef NAME
#undef NAME2
#undef NONE
    };
    static const char elsewhere[] = " max_new_tokens temperature n top_k top_p "
                                    "repetition_penalty system stop prompt prompts batch_size "
                                    "prefill_chunk seq_length jsonl_key output threads "
                                    "gguf_type gguf ";

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool own = app_option_find(rows[i].theirs, strlen(rows[i].theirs));

        for (int k = 0; k < 2 && rows[i].ours[k]; k++) {
            bool trains = app_option_find(rows[i].ours[k], strlen(rows[i].ours[k]));
            char word[48];

            snprintf(word, sizeof word, " %s ", rows[i].ours[k]);
            if (trains ? own : !strstr(elsewhere, word)) {
                printf("\n    %s, %s\n", rows[i].theirs, rows[i].ours[k]);
                CU_FAIL("a name that is no other tool's, or stands for no flag");
            }
        }
        CU_ASSERT_FALSE(own && !rows[i].ours[0]);
    }
}

static const wf_test tests[] = {
    {"bad flags", bad_flags},
    {"values and defaults", values_and_defaults},
    {"without a run", without_a_run},
    {"sizes with units", sizes},
    {"micro-steps", micro_steps},
    {"ranges of steps", ranges_of_steps},
    {"the table is sound", table_is_sound},
    {"names of other tools", other_names_are_sound},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("options", tests);
}
