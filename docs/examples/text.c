/*
 * text.c - text to text: tokenises files with a model's own tokenizer, trains a small model on a mixture of them with logs and
 * checkpoints, evaluates it, and lets it write. All flags but four are those of wf_par_run:
 *
 *     text --tokenizer tokenizer.json --a one.txt --b two.txt --dp 2 --log-jsonl run.jsonl --tensorboard events
 *     text .. --tp 2 --strategy no_shard                 the same digest
 *     text .. --plan --dp 64                             what a rank of 64 takes and moves
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { TOKENS = 32, TABLE = 65536 };

static const char *tokenizer_file, *a_file, *b_file, *prompt = "The";
static const wf_flag flags[] = {
    {"tokenizer", WF_FLAG_TEXT, &tokenizer_file, 0, 0, NULL, NULL, "FILE a model's tokenizer"},
    {"a", WF_FLAG_TEXT, &a_file, 0, 0, NULL, NULL,
     "FILE text, of which 0.7 of the samples are"},
    {"b", WF_FLAG_TEXT, &b_file, 0, 0, NULL, NULL, "FILE text, the rest"},
    {"prompt", WF_FLAG_TEXT, &prompt, 0, 0, NULL, NULL, "TEXT what the model continues"},
    {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
static char names[2][32],
    mixture[2][64]; /* files of this process: several on a host make their own */
static wf_tok *tokenizer;
static wf_dataset *dataset;

/* Tokenises a file of text into PREFIX.bin and PREFIX.idx. */
static wf_status tokenise(const char *path, const char *prefix, wf_error *error)
{
    static char text[1 << 22];
    FILE *file = path ? fopen(path, "rb") : NULL;
    size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
    wf_tok_encoder *encoder = NULL;
    wf_megatron_writer *writer = NULL;
    wf_tok_ids ids = {0};

    if (!file)
        return wf_error_set(error, WF_EINVAL, "give --a FILE and --b FILE, of text");
    fclose(file);
    if (wf_tok_encoder_new(tokenizer, &encoder, error) == WF_OK &&
        wf_tok_encode(encoder, text, bytes, 0, &ids, error) == WF_OK &&
        wf_megatron_writer_open(prefix, wf_tok_size(tokenizer), &writer, error) == WF_OK &&
        wf_megatron_writer_add(writer, ids.data, (int64_t)ids.count, error) == WF_OK &&
        wf_megatron_writer_end_document(writer, error) == WF_OK)
        wf_megatron_writer_finish(writer, NULL, error);
    wf_tok_ids_free(&ids);
    wf_tok_encoder_free(encoder);
    return error->code;
}

static wf_status prepare(wf_par_program *p, wf_error *error)
{
    char *const sources[] = {mixture[0], mixture[1]};
    const wf_dataset_options options = {.data = sources,
                                        .data_count = 2,
                                        .val_fraction = 0.1,
                                        .validates = true,
                                        .seq_len = TOKENS,
                                        .seed = 1,
                                        .global_batch = p->job.train.global_batch,
                                        .vocabulary = {.size = TABLE, .given = true}};

    for (int i = 0; i < 2; i++) {
        snprintf(names[i], sizeof names[i], "text-%c.%d", "ab"[i],
                 wf_launcher_detected().process);
        snprintf(mixture[i], sizeof mixture[i], "%c=%s:%s.bin", "ab"[i], i ? "0.3" : "0.7",
                 names[i]);
    }
    if (wf_tok_open(tokenizer_file, &tokenizer, error) == WF_OK &&
        tokenise(a_file, names[0], error) == WF_OK &&
        tokenise(b_file, names[1], error) == WF_OK)
        wf_dataset_open(&options, &dataset, error);
    return error->code;
}

static void done(wf_par_program *p)
{
    (void)p;
    wf_dataset_close(dataset);
    wf_tok_close(tokenizer);
}

static wf_status read_part(void *part, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    return wf_dataset_read(dataset, *(wf_dataset_part *)part, step, first, count, field[0],
                           field[1], error);
}

static wf_nn_module *make(wf_par *par, void *arg)
{
    const wf_nn_gpt_config config = {.vocabulary = wf_tok_size(tokenizer),
                                     .positions = TOKENS,
                                     .layers = 2,
                                     .heads = 4,
                                     .kv_heads = 4,
                                     .width = 64,
                                     .ffn = 256};
    wf_nn_gpt *model = wf_nn_gpt_new(wf_par_context(par), &config);

    (void)arg;
    if (model)
        wf_par_plan(par, &model->base, wf_par_gpt_plan);
    return model ? &model->base : NULL;
}

static void print_text(void *rank, wf_gen_text *t)
{
    if (wf_context_rank(wf_par_context(((wf_par_running *)rank)->par)) == 0)
        printf("%s%.*s\n", prompt, (int)t->text.bytes, t->text.data);
}

/* Continues the prompt by the likeliest tokens. */
static wf_status write_text(wf_par_running *r, void *arg)
{
    wf_gen_engine engine = {.ctx = NULL};
    wf_tok_encoder *encoder = NULL;
    wf_tok_ids ids = {0};
    wf_error error = {WF_OK, ""};

    (void)arg;
    if (wf_tok_encoder_new(tokenizer, &encoder, &error) == WF_OK &&
        wf_tok_encode(encoder, prompt, strlen(prompt), 0, &ids, &error) == WF_OK &&
        wf_gen_engine_open(&engine, &(wf_gen_engine_options){.par = r->par,
                                                             .slots = 1,
                                                             .model = (wf_nn_gpt *)r->model,
                                                             .positions = TOKENS}) == WF_OK)
        wf_gen_run(&engine,
                   &(wf_gen_options){.sampling = {.repetition_penalty = 1.5, .top_p = 1},
                                     .most = 16,
                                     .tokenizer = tokenizer,
                                     .size = wf_tok_size(tokenizer)},
                   &(wf_gen_prompt){.ids = ids.data, .count = (int64_t)ids.count}, 1, 0, 1,
                   &(wf_gen_events){.finished = print_text, .arg = r});
    wf_gen_engine_close(&engine);
    wf_tok_ids_free(&ids);
    wf_tok_encoder_free(encoder);
    return error.code;
}

int main(int argc, char **argv)
{
    static wf_dataset_part train = WF_DATASET_TRAIN, validation = WF_DATASET_VALIDATION;
    wf_par_program p = {
        .flags = flags,
        .about = "Trains a small model on two texts, and lets it write.",
        .prepare = prepare,
        .done = done,
        .job = {
            .model = make,
            .steps = 40,
            .eval_interval = 20,
            .data = {.read = read_part, .self = &train},
            .eval_data = {.read = read_part, .self = &validation},
            .after = write_text,
            .train = {.global_batch = 8,
                      .field = WF_PAR_GPT_FIELDS(TOKENS),
                      .clip = 1,
                      .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
                      .schedule = {.lr = 3e-3, .min_lr = 3e-4, .warmup = 4, .steps = 40},
                      .loss = wf_par_gpt_loss}}};

    return wf_par_run(argc, argv, &p);
}
