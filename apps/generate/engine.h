/*
 * apps/generate/engine.h - a model that goes on with texts: their tokens go through it once, and keys and values
 * stay in a cache (nn/cache.h).
 *
 * The ranks of a mesh call the same functions with the same tokens, and get the same numbers.
 */
#ifndef WF_APPS_GENERATE_ENGINE_H
#define WF_APPS_GENERATE_ENGINE_H

#include <weft/weft.h>

typedef struct app_engine_options {
    wf_par *par;
    wf_nn_gpt *model; /* materialised */
    wf_par_trainer
        *pipelined; /* the trainer of a model in stages; NULL: every rank has all of it */
    int64_t slots, positions; /* texts at once; tokens of each, at most */
    int64_t chunk;            /* tokens of a prompt that are computed together; 0: 512 */
} app_engine_options;

typedef struct app_engine {
    app_engine_options o;
    wf_context *ctx;
    wf_nn_cache *cache;
    int64_t vocabulary;
    bool *
        is_long; /* [slots]: what a slot holds is of a text longer than the original length of WF_ROPE_LONG */
} app_engine;

/* A text's last token: its slot, its place in the text, its id. What is before it is in the slot; `before` has the ids,
   for where the text becomes longer than the original length of WF_ROPE_LONG, and all of it is computed again, as
   transformers do. NULL in a plan. */
typedef struct app_engine_row {
    int64_t slot, position;
    int32_t id;
    const int32_t *before;
} app_engine_row;

/* Errors are in the context here and below. Close it in any case. */
wf_status app_engine_open(app_engine *e, const app_engine_options *options);
void app_engine_close(app_engine *e);

/* Tokens of a text of `length` tokens, `count` from `first` on, go to a slot that has those before. logits: NULL, or
   [count][vocabulary], of the token behind each; logsumexp: NULL, or [count]. In a plan ids is NULL. */
wf_status app_engine_prefill(app_engine *e, int64_t slot, int64_t length, int64_t first,
                             const int32_t *ids, int64_t count, float *logits,
                             float *logsumexp);

/* Tokens of one of several texts that go through the model together: where they are, and how long the text is. */
typedef struct app_engine_part {
    int64_t slot, length, first;
    const int32_t *ids;
} app_engine_part;

/* As app_engine_prefill for several texts at once, `count` tokens of each, in one pass. logits
   [parts][count][vocabulary], logsumexp [parts][count]; `wanted`: there are some, also in a plan, where all these are NULL. */
wf_status app_engine_prefill_together(app_engine *e, int64_t parts, const app_engine_part *part,
                                      int64_t count, bool wanted, float *logits,
                                      float *logsumexp);

/* Whether what a slot holds is of use to a text of so many tokens that begins with the same. */
bool app_engine_keeps(const app_engine *e, int64_t slot, int64_t length);

/* How many tokens of a text that begins with so many, and goes on, are computed together at most, chunks aside. */
int64_t app_engine_together(const app_engine *e, int64_t prompt);

/* One token more of each text. logits [rows][vocabulary]: of the token that comes next; logsumexp [rows], or NULL: see
   wf_nn_logsumexp. Both are NULL in a plan. */
wf_status app_engine_next(app_engine *e, int64_t rows, const app_engine_row *row, float *logits,
                          float *logsumexp);

#endif
