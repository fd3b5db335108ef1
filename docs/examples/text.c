/*
 * text.c - tokenises files with a model's own tokenizer, trains a small model on a mixture of
 * them, evaluates it, and lets it write. All flags but four are those of wf_par_run:
 *
 *     text --tokenizer tokenizer.json --a one.txt --b two.txt --dp 2 --log-jsonl run.jsonl
 *     --tensorboard events
 *     text .. --tp 2 --strategy no_shard                 the same digest
 *     text .. --plan --dp 64                             what a rank of 64 takes and moves
 */
#include <stdio.h>
#include <weft/weft.h>

enum { TOKENS = 32, TABLE = 65536 };

static const char *tokenizer_file, *file[2], *prompt = "The";
static const wf_flag flags[] = {
    {"tokenizer", WF_FLAG_TEXT, &tokenizer_file, 0, 0, NULL, NULL, "FILE a model's tokenizer"},
    {"a", WF_FLAG_TEXT, &file[0], 0, 0, NULL, NULL,
     "FILE text, of which 0.7 of the samples are"},
    {"b", WF_FLAG_TEXT, &file[1], 0, 0, NULL, NULL, "FILE text, the other share"},
    {"prompt", WF_FLAG_TEXT, &prompt, 0, 0, NULL, NULL, "TEXT what the model continues"},
    {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
static wf_nn_gpt_config model = {
    .positions = TOKENS, .layers = 2, .heads = 4, .kv_heads = 4, .width = 64, .ffn = 256};
static wf_tok *tokenizer;
static wf_dataset *dataset;

/* Tokenises a file of text into PREFIX.bin and PREFIX.idx. */
static wf_status tokenise(const char *path, const char *prefix, wf_error *error)
{
    wf_tok_ids ids = {0};

    if (!path)
        return wf_error_set(error, WF_EINVAL, "give --a FILE and --b FILE, of text");
    if (wf_tok_encode_file(tokenizer, path, 0, &ids, error) == WF_OK)
        wf_megatron_write(prefix, wf_tok_size(tokenizer), ids.data, (int64_t)ids.count, error);
    wf_tok_ids_free(&ids);
    return error->code;
}

/* Several processes on a host make files of their own. */
static wf_status prepare(wf_par_program *p, wf_error *error)
{
    char name[2][32], mixture[2][64];
    char *const sources[] = {mixture[0], mixture[1]};
    const wf_dataset_options options = {.data = sources,
                                        .data_count = 2,
                                        .val_fraction = 0.1,
                                        .validates = true,
                                        .seq_len = TOKENS,
                                        .seed = 1,
                                        .global_batch = p->job.train.global_batch,
                                        .vocabulary = {.size = TABLE, .given = true}};

    if (wf_tok_open(tokenizer_file, &tokenizer, error) == WF_OK)
        model.vocabulary = wf_tok_size(tokenizer);
    for (int i = 0; i < 2 && error->code == WF_OK; i++) {
        snprintf(name[i], sizeof name[i], "text-%c.%d", "ab"[i],
                 wf_launcher_detected().process);
        snprintf(mixture[i], sizeof mixture[i], "%c=%s:%s.bin", "ab"[i], i ? "0.3" : "0.7",
                 name[i]);
        tokenise(file[i], name[i], error);
    }
    if (error->code == WF_OK && wf_dataset_open(&options, &dataset, error) == WF_OK) {
        p->job.data = wf_par_dataset(dataset, WF_DATASET_TRAIN);
        p->job.eval_data = wf_par_dataset(dataset, WF_DATASET_VALIDATION);
    }
    return error->code;
}

static void done(wf_par_program *p)
{
    (void)p;
    wf_dataset_close(dataset);
    wf_tok_close(tokenizer);
}

/* Continues the prompt by the likeliest tokens. */
static wf_status write_text(wf_par_running *r, void *arg)
{
    const wf_gen_options options = {.sampling = {.repetition_penalty = 1.5, .top_p = 1},
                                    .most = 16,
                                    .tokenizer = tokenizer};
    const wf_gen_engine_options engine = {
        .par = r->par, .model = (wf_nn_gpt *)r->model, .positions = TOKENS};
    wf_gen_text text;

    (void)arg;
    if (wf_gen_continue(&engine, &options, prompt, &text) == WF_OK &&
        wf_context_rank(wf_par_context(r->par)) == 0) {
        printf("%s", prompt);
        wf_tok_print(text.text.data, text.text.bytes, stdout);
        putchar('\n');
    }
    wf_gen_text_free(&text);
    return WF_OK;
}

int main(int argc, char **argv)
{
    wf_par_program p = {
        .flags = flags,
        .about = "Trains a small model on two texts, and lets it write.",
        .prepare = prepare,
        .done = done,
        .job = {
            .model = wf_par_gpt_make,
            .arg = &model,
            .steps = 40,
            .eval_interval = 20,
            .after = write_text,
            .train = {.global_batch = 8,
                      .field = WF_PAR_GPT_FIELDS(TOKENS),
                      .clip = 1,
                      .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
                      .schedule = {.lr = 3e-3, .min_lr = 3e-4, .warmup = 4, .steps = 40},
                      .loss = wf_par_gpt_loss}}};

    return wf_par_run(argc, argv, &p);
}
