/* apps/gpt_train/sample.c - text from a trained model, token by token. */
#include "apps/gpt_train/train_loop.h"
#include "apps/gpt_train/signal_requests.h"
#include "core/host_data.h"
#include <stdlib.h>
#include <string.h>

/* A token drawn from softmax(logits / temperature); the likeliest one at temperature 0. */
static int64_t draw(const float *logits, int64_t n, double temperature, uint64_t key,
                    int64_t index)
{
    int64_t best = 0;
    double sum = 0, at;

    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    if (temperature <= 0)
        return best;
    for (int64_t i = 0; i < n; i++)
        sum += wf_exp((double)(logits[i] - logits[best]) / temperature);
    at = (double)wf_random_uniform(key, 0, (uint64_t)index) * sum;
    for (int64_t i = 0; i < n; i++) {
        at -= wf_exp((double)(logits[i] - logits[best]) / temperature);
        if (at < 0)
            return i;
    }
    return best;
}

static void show(wf_tensor *tokens, const int32_t *ids)
{
    wf_host_data view;
    int32_t *token = wf_data_write(tokens, false, &view);

    for (int64_t i = 0; token && i < wf_tensor_local_count(tokens); i++)
        token[i] = ids[i];
    wf_data_close(&view);
}

/* A wf_par_head_function. */
static wf_tensor *head(wf_nn_module *model, wf_tensor *x)
{
    return wf_nn_call(((wf_nn_gpt *)model)->head, x);
}

/* Logits of the next token behind each of so many; ids: NULL in a plan. With a pipeline, on the ranks of its last
   stage; NULL elsewhere, and on errors. */
static wf_tensor *logits_of(const app_sampled *m, const int32_t *ids, int64_t seen)
{
    wf_par *par = m->par;
    wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(seen)};
    wf_tensor *tokens =
        wf_tensor_new(wf_par_context(par), WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    if (tokens && ids)
        show(tokens, ids);
    if (!m->pipelined)
        return wf_whole(wf_nn_gpt_logits(m->model, tokens));
    return wf_whole(wf_par_pipeline_forward(m->pipelined, tokens, head));
}

/* The next token after ids[0 .. length), seeing at most seq_len of them; -1 on failure. last: room for the logits. */
static int64_t next_token(const app_options *o, const app_sampled *m, const int32_t *ids,
                          int64_t length, uint64_t key, float *last)
{
    wf_context *ctx = wf_par_context(m->par);
    int64_t seen = length < o->seq_len ? length : o->seq_len, size = m->prompt->size,
            token = -1;
    wf_tensor *logits;

    wf_scope_open(ctx);
    logits = logits_of(m, ids + length - seen, seen);
    if (logits)
        wf_data_get(logits, (seen - 1) * o->vocab_size, size, last);
    if (m->pipelined)
        wf_par_pipeline_share(m->pipelined, last, (size_t)size * sizeof *last);
    if (wf_context_status(ctx) == WF_OK)
        token = draw(last, size, o->sample_temperature, key, length);
    wf_scope_close(ctx);
    return token;
}

/* Whether a rank was asked to stop. Without --save nobody listens: SIGTERM ends the process. */
static bool stop_wished(const app_options *o, wf_par *par)
{
    const uint64_t mine = signal_requests_now() & APP_SIGNAL_STOP;
    const uint64_t *all = o->save ? wf_mesh_gather(wf_par_mesh(par), &mine, sizeof mine) : NULL;
    bool stop = false;

    for (int64_t i = 0; all && i < app_options_ranks(o); i++)
        stop = stop || all[i];
    return stop;
}

void app_sample_plan(const app_options *o, const app_sampled *m)
{
    wf_context *ctx = wf_par_context(m->par);
    int64_t longest = (int64_t)strlen(o->sample_prompt) + o->sample - 1;

    wf_context_training(ctx, false);
    wf_scope_open(ctx);
    logits_of(m, NULL, longest < o->seq_len ? longest : o->seq_len);
    wf_scope_close(ctx);
    wf_context_training(ctx, true);
}

/* Continue ids[0 .. *length) up to `end`. */
static void go_on(const app_options *o, const app_sampled *m, int32_t *ids, int64_t *length,
                  int64_t end, float *last, bool *stopped)
{
    uint64_t key = wf_random_key((uint64_t)o->seed, WF_RANDOM_SAMPLE);

    while (*length < end && !(*stopped = stop_wished(o, m->par))) {
        int64_t token = next_token(o, m, ids, *length, key, last);

        if (token < 0 || token == m->prompt->ends)
            return;
        ids[(*length)++] = (int32_t)token;
    }
}

wf_status app_sample_text(const app_options *o, const app_sampled *m, FILE *out, bool *stopped)
{
    wf_context *ctx = wf_par_context(m->par);
    const app_tokenizer_ids *prompt = &m->prompt->ids;
    int64_t length = (int64_t)prompt->count, end = length + o->sample;
    int32_t *ids = malloc((size_t)end * sizeof *ids);
    float *last = malloc((size_t)m->prompt->size * sizeof *last);
    wf_error error = {WF_OK, ""};

    if (ids && last) {
        memcpy(ids, prompt->data, prompt->count * sizeof *ids);
        wf_context_training(ctx, false);
        go_on(o, m, ids, &length, end, last, stopped);
        wf_context_training(ctx, true);
        if (out && !*stopped && wf_context_status(ctx) == WF_OK &&
            app_sample_print(m->prompt, ids, length, out, &error) != WF_OK)
            wf_fail(ctx, error.code, "%s", error.text);
    } else {
        wf_fail(ctx, WF_ENOMEM, "no memory for a sample of %lld tokens", (long long)o->sample);
    }
    free(last);
    free(ids);
    return wf_context_status(ctx);
}
