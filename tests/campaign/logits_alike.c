/*
 * tests/campaign/logits_alike.c - logits of every position, of the trainer's forward pass and
 * of a generator with its cache, on six layouts, all compared by memcmp with those of the
 * trainer on one rank; for scripts/peers/generation.py: logits_alike MODEL TEXT POSITIONS. The
 * text's bytes are the ids.
 */
#include "parallel/generate/engine.h"
#include <weft/weft.h>
#include "parallel/generate/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, CHUNKED = 150, CHUNK = 37 };

typedef struct campaign {
    wf_gen_model source;
    int32_t *ids;
    int64_t length, batches, vocabulary; /* a batch is BATCH windows of so many tokens */
    float *wanted;                       /* [batches][BATCH][length][vocabulary] */
    bool first;                          /* wanted is written, not compared */
    const wf_par_options *layout;
    int64_t other; /* positions with other logits */
} campaign;

static int64_t per_batch(const campaign *c)
{
    return BATCH * c->length * c->vocabulary;
}

/* A batch of windows, split over the data-parallel ranks as in training. */
static wf_tensor *batch_of(wf_par *par, const campaign *c, int64_t batch)
{
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(c->length)};
    wf_tensor *t = wf_tensor_new(wf_par_context(par), WF_I32, 2, dims, wf_par_batch_layout(par),
                                 WF_MEMORY_ACTIVATION);
    wf_host_data view;
    int32_t *to = t ? wf_data_write(t, false, &view) : NULL;

    if (to)
        memcpy(to, c->ids + (batch * BATCH + t->start[0]) * c->length,
               (size_t)(t->local[0] * c->length) * sizeof *to);
    if (t)
        wf_data_close(&view);
    return t;
}

static void compare(campaign *c, int64_t batch, const float *logits)
{
    float *wanted = c->wanted + batch * per_batch(c);

    if (c->first)
        memcpy(wanted, logits, (size_t)per_batch(c) * sizeof *logits);
    for (int64_t i = 0; i < per_batch(c); i += c->vocabulary)
        c->other += memcmp(wanted + i, logits + i, (size_t)c->vocabulary * sizeof *logits) != 0;
}

static void train_batch(wf_par *par, wf_nn_gpt *model, campaign *c, int64_t batch,
                        float *logits)
{
    wf_tensor *y;

    wf_scope_open(wf_par_context(par));
    y = wf_whole(wf_nn_gpt_logits(model, batch_of(par, c, batch)));
    if (y)
        wf_data_get(y, 0, per_batch(c), logits);
    wf_scope_close(wf_par_context(par));
}

/* The first tokens of each text in chunks, one text after the other; then one token of each
   text at a time. */
static void generate_batch(wf_gen_engine *e, const campaign *c, int64_t batch, float *logits,
                           float *step)
{
    const int32_t *ids = c->ids + batch * BATCH * c->length;
    int64_t chunked = c->length < CHUNKED ? c->length / 2 : CHUNKED;
    wf_gen_engine_row row[BATCH];

    for (int64_t b = 0; b < BATCH; b++)
        wf_gen_engine_prefill(e, b, chunked, 0, ids + b * c->length, chunked,
                              logits + b * c->length * c->vocabulary, NULL);
    for (int64_t t = chunked; t < c->length; t++) {
        for (int64_t b = 0; b < BATCH; b++)
            row[b] = (wf_gen_engine_row){b, t, ids[b * c->length + t], ids + b * c->length};
        wf_gen_engine_next(e, BATCH, row, step, NULL);
        for (int64_t b = 0; b < BATCH; b++)
            memcpy(logits + (b * c->length + t) * c->vocabulary, step + b * c->vocabulary,
                   (size_t)c->vocabulary * sizeof *logits);
    }
}

static void run(campaign *c, wf_rank *rank, wf_par *par, wf_nn_gpt *model, bool generates)
{
    const wf_gen_engine_options options = {
        .par = par, .model = model, .slots = BATCH, .positions = c->length, .chunk = CHUNK};
    wf_context *ctx = wf_par_context(par);
    float *logits = malloc((size_t)per_batch(c) * sizeof *logits);
    float *step = malloc((size_t)(BATCH * c->vocabulary) * sizeof *step);
    wf_gen_engine e = {.cache = NULL};

    if (!logits || !step)
        wf_fail(ctx, WF_ENOMEM, "no memory for a batch of logits");
    wf_context_training(ctx, false);
    if (generates)
        wf_gen_engine_open(&e, &options);
    for (int64_t i = 0; i < c->batches && wf_context_status(ctx) == WF_OK; i++) {
        if (generates)
            generate_batch(&e, c, i, logits, step);
        else
            train_batch(par, model, c, i, logits);
        if (rank->index == 0 && wf_context_status(ctx) == WF_OK)
            compare(c, i, logits);
    }
    if (generates)
        wf_gen_engine_close(&e);
    free(logits);
    free(step);
}

static wf_status work(wf_rank *rank, campaign *c, bool generates)
{
    wf_par *par = wf_par_open(rank, c->layout, &rank->error);
    wf_nn_gpt *model = par ? wf_gen_model_load(&c->source, par, false) : NULL;

    if (model) {
        run(c, rank, par, model, generates);
        wf_nn_free(&model->base);
    }
    if (par)
        rank->error = *wf_context_error(wf_par_context(par));
    wf_par_close(par);
    return rank->error.code;
}

static wf_status train_rank(wf_rank *rank, void *arg)
{
    return work(rank, arg, false);
}

static wf_status generate_rank(wf_rank *rank, void *arg)
{
    return work(rank, arg, true);
}

/* The text again and again, as windows. */
static bool read_text(campaign *c, const char *path)
{
    FILE *file = fopen(path, "rb");
    int64_t count = c->batches * BATCH * c->length;

    c->ids = malloc((size_t)count * sizeof *c->ids);
    for (int64_t i = 0; file && c->ids && i < count; i++) {
        int byte = getc(file);

        if (byte == EOF) {
            rewind(file);
            byte = getc(file);
        }
        c->ids[i] = (int32_t)(byte % c->vocabulary);
    }
    if (file)
        fclose(file);
    return file && c->ids;
}

static const struct {
    const char *name;
    wf_par_options options;
} layouts[] = {{"one rank", {.tp = 1}},
               {"tp 2", {.tp = 2}},
               {"tp 4, sequence parallel", {.tp = 4, .sequence_parallel = true}},
               {"tp 8, 2 threads", {.tp = 8, .threads = 2}},
               {"full_shard 2 x tp 2", {.tp = 2, .dp = 2}},
               {"full_shard 4", {.dp = 4}}};

int main(int argc, char **argv)
{
    campaign c = {.first = true};
    wf_error error = {WF_OK, ""};
    int64_t positions = argc == 4 ? strtoll(argv[3], NULL, 10) : 0, other = 0, compared = 0;

    if (positions < 1) {
        fprintf(stderr, "usage: logits_alike MODEL TEXT POSITIONS\n");
        return 2;
    }
    if (wf_gen_model_open(argv[1], NULL, &c.source, &error) != WF_OK) {
        fprintf(stderr, "logits_alike: %s\n", error.text);
        return 1;
    }
    c.length = c.source.config.positions < 256 ? c.source.config.positions : 256;
    c.vocabulary = c.source.config.vocabulary;
    c.batches = (positions + BATCH * c.length - 1) / (BATCH * c.length);
    c.wanted = malloc((size_t)(c.batches * per_batch(&c)) * sizeof *c.wanted);
    if (!c.wanted || !read_text(&c, argv[2]))
        return 1;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (int generates = 0; generates < 2; generates++) {
            const wf_par_options *o = &layouts[l].options;
            const wf_launch_options launch = {.ranks = (int)wf_par_ranks(o)};

            c.layout = o;
            c.other = 0;
            if (wf_launch(&launch, generates ? generate_rank : train_rank, &c, &error) !=
                WF_OK) {
                fprintf(stderr, "logits_alike: %s\n", error.text);
                return 1;
            }
            printf("%-24s %-9s %lld positions of %lld logits, %lld of them other\n",
                   layouts[l].name, generates ? "generator" : "trainer",
                   (long long)(c.batches * BATCH * c.length), (long long)c.vocabulary,
                   (long long)c.other);
            fflush(stdout);
            other += c.other;
            compared += c.first ? 0 : c.batches * BATCH * c.length;
            c.first = false;
        }
    printf("logits: %lld rows compared, %lld other\n", (long long)compared, (long long)other);
    free(c.wanted);
    free(c.ids);
    wf_gen_model_close(&c.source);
    return other != 0;
}
