/* apps/gpt_train/sample.c - text from a trained model, token by token. */
#include "apps/gpt_train/sample.h"
#include "parallel/generate/engine.h"
#include "parallel/generate/sampling.h"
#include "parallel/recovery/signal_requests.h"
#include <stdlib.h>
#include <string.h>

static wf_status open_engine(const app_options *o, const app_sampled *m, wf_gen_engine *e)
{
    return wf_gen_engine_open(e, &(wf_gen_engine_options){.par = m->par,
                                                          .model = m->model,
                                                          .pipelined = m->pipelined,
                                                          .slots = 1,
                                                          .positions = o->seq_len});
}

/* Returns the next token after ids[0 .. length), of which the model sees the last seq_len at
   most; -1 on failure. Where a text is longer the window slides, its tokens get other
   positions, and all of it is recomputed. */
static int64_t next_token(const app_options *o, const app_sampled *m, wf_gen_engine *e,
                          const int32_t *ids, int64_t length, float *logits,
                          wf_gen_sampling_candidate *room)
{
    const wf_gen_sampling sampling = {
        .temperature = o->sample_temperature, .repetition_penalty = 1, .top_p = 1};
    const wf_gen_sampling_text text = {ids, length, length};
    uint64_t key = wf_random_key((uint64_t)o->seed, WF_RANDOM_SAMPLE);
    int64_t seen = length < o->seq_len ? length : o->seq_len, first = length - seen;
    const wf_gen_engine_row row = {0, seen - 1, ids[length - 1], ids + first};

    if (first > 0 || length == (int64_t)m->prompt->ids.count)
        wf_gen_engine_prefill(e, 0, seen, 0, ids + first, seen - 1, NULL, NULL);
    if (wf_gen_engine_next(e, 1, &row, logits, NULL) != WF_OK)
        return -1;
    return wf_gen_sampling_draw(&sampling, &text, logits, m->prompt->size,
                                (double)wf_random_uniform(key, 0, (uint64_t)length), room);
}

/* Returns true where a rank was asked to stop. Without --save SIGTERM ends the process. */
static bool stop_wished(const app_options *o, wf_par *par)
{
    const uint64_t mine = wf_signal_requests_now() & WF_SIGNAL_STOP;
    const uint64_t *all = o->save ? wf_mesh_gather(wf_par_mesh(par), &mine, sizeof mine) : NULL;
    bool stop = false;

    for (int64_t i = 0; all && i < wf_mesh_ranks(wf_par_mesh(par)); i++)
        stop = stop || all[i];
    return stop;
}

void app_sample_plan(const app_options *o, const app_sampled *m)
{
    wf_context *ctx = wf_par_context(m->par);
    const int64_t prompt = (int64_t)m->prompt->ids.count, longest = prompt + o->sample - 1;
    int64_t seen = longest < o->seq_len ? longest : o->seq_len;
    wf_gen_engine e;

    wf_context_training(ctx, false);
    if (open_engine(o, m, &e) == WF_OK) {
        int64_t together =
            wf_gen_engine_together(&e, longest < o->seq_len ? prompt - 1 : seen - 1);

        wf_gen_engine_prefill(&e, 0, seen, 0, NULL, together, NULL, NULL);
        wf_gen_engine_next(&e, 1, &(wf_gen_engine_row){0, seen - 1, 0, NULL}, NULL, NULL);
    }
    wf_gen_engine_close(&e);
    wf_context_training(ctx, true);
}

/* Continue ids[0 .. *length) up to `end`. */
static void go_on(const app_options *o, const app_sampled *m, wf_gen_engine *e, int32_t *ids,
                  int64_t *length, int64_t end, bool *stopped)
{
    float *logits = malloc((size_t)e->vocabulary * sizeof *logits);
    wf_gen_sampling_candidate *room = malloc((size_t)e->vocabulary * sizeof *room);

    if (!logits || !room)
        wf_fail(e->ctx, WF_ENOMEM, "no memory for the logits of a sample");
    while (logits && room && *length < end && !(*stopped = stop_wished(o, m->par))) {
        int64_t token = next_token(o, m, e, ids, *length, logits, room);

        if (token < 0 || token == m->prompt->ends)
            break;
        ids[(*length)++] = (int32_t)token;
    }
    free(logits);
    free(room);
}

wf_status app_sample_text(const app_options *o, const app_sampled *m, FILE *out, bool *stopped)
{
    wf_context *ctx = wf_par_context(m->par);
    const wf_tok_ids *prompt = &m->prompt->ids;
    int64_t length = (int64_t)prompt->count, end = length + o->sample;
    int32_t *ids = malloc((size_t)end * sizeof *ids);
    wf_error error = {WF_OK, ""};
    wf_gen_engine e;

    if (ids) {
        memcpy(ids, prompt->data, prompt->count * sizeof *ids);
        wf_context_training(ctx, false);
        if (open_engine(o, m, &e) == WF_OK)
            go_on(o, m, &e, ids, &length, end, stopped);
        wf_gen_engine_close(&e);
        wf_context_training(ctx, true);
        if (out && !*stopped && wf_context_status(ctx) == WF_OK &&
            app_sample_print(m->prompt, ids, length, out, &error) != WF_OK)
            wf_fail(ctx, error.code, "%s", error.text);
    } else {
        wf_fail(ctx, WF_ENOMEM, "no memory for a sample of %lld tokens", (long long)o->sample);
    }
    free(ids);
    return wf_context_status(ctx);
}
