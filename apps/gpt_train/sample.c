/* apps/gpt_train/sample.c - text from a trained model, byte by byte. */
#include "apps/gpt_train/train_loop.h"
#include "apps/gpt_train/signal_requests.h"
#include "core/host_data.h"
#include <stdlib.h>
#include <string.h>

/* A byte drawn from softmax(logits / temperature); the likeliest one at temperature 0. */
static int draw(const float *logits, int64_t n, double temperature, uint64_t key, int64_t index)
{
    int64_t best = 0;
    double sum = 0, at;

    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    if (temperature <= 0)
        return (int)best;
    for (int64_t i = 0; i < n; i++)
        sum += wf_exp((double)(logits[i] - logits[best]) / temperature);
    at = (double)wf_random_uniform(key, 0, (uint64_t)index) * sum;
    for (int64_t i = 0; i < n; i++) {
        at -= wf_exp((double)(logits[i] - logits[best]) / temperature);
        if (at < 0)
            return (int)i;
    }
    return (int)best;
}

static void show(wf_tensor *tokens, const char *text)
{
    wf_host_data view;
    int32_t *token = wf_data_write(tokens, false, &view);

    for (int64_t i = 0; token && i < wf_tensor_local_count(tokens); i++)
        token[i] = (unsigned char)text[i];
    wf_data_close(&view);
}

/* Logits of the next byte behind each of so many; text: NULL in a plan. */
static wf_tensor *logits_of(wf_par *par, wf_nn_gpt *model, const char *text, int64_t seen)
{
    wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(seen)};
    wf_tensor *tokens =
        wf_tensor_new(wf_par_context(par), WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    if (tokens && text)
        show(tokens, text);
    return wf_whole(wf_nn_gpt_logits(model, tokens));
}

/* The next byte after text[0 .. length), seeing at most seq_len bytes; -1 on failure. */
static int next_byte(const app_options *o, wf_par *par, wf_nn_gpt *model, const char *text,
                     int64_t length, uint64_t key)
{
    wf_context *ctx = wf_par_context(par);
    int64_t seen = length < o->seq_len ? length : o->seq_len;
    int64_t bytes = o->vocab_size < 256 ? o->vocab_size : 256;
    wf_tensor *logits;
    float last[256];
    int byte = -1;

    wf_scope_open(ctx);
    logits = logits_of(par, model, text + length - seen, seen);
    if (logits && wf_data_get(logits, (seen - 1) * o->vocab_size, bytes, last) == WF_OK)
        byte = draw(last, bytes, o->sample_temperature, key, length);
    wf_scope_close(ctx);
    return byte;
}

/* Whether a rank was asked to stop. Without --save nobody listens: SIGTERM ends the process. */
static bool stop_wished(const app_options *o, wf_par *par)
{
    const uint64_t mine = signal_requests_now() & APP_SIGNAL_STOP;
    const uint64_t *all = o->save ? wf_mesh_gather(wf_par_mesh(par), &mine, sizeof mine) : NULL;
    bool stop = false;

    for (int64_t i = 0; all && i < o->tp * o->dp; i++)
        stop = stop || all[i];
    return stop;
}

static const char *prompt_of(const app_options *o)
{
    return o->sample_prompt && *o->sample_prompt ? o->sample_prompt : "\n";
}

void app_sample_plan(const app_options *o, wf_par *par, wf_nn_gpt *model)
{
    wf_context *ctx = wf_par_context(par);
    int64_t longest = (int64_t)strlen(prompt_of(o)) + o->sample - 1;

    wf_context_training(ctx, false);
    wf_scope_open(ctx);
    logits_of(par, model, NULL, longest < o->seq_len ? longest : o->seq_len);
    wf_scope_close(ctx);
    wf_context_training(ctx, true);
}

wf_status app_sample_text(const app_options *o, wf_par *par, wf_nn_gpt *model, FILE *out,
                          bool *stopped)
{
    wf_context *ctx = wf_par_context(par);
    uint64_t key = wf_random_key((uint64_t)o->seed, WF_RANDOM_SAMPLE);
    const char *prompt = prompt_of(o);
    int64_t length = (int64_t)strlen(prompt), end = length + o->sample;
    char *text = malloc((size_t)end);

    if (!text)
        return wf_fail(ctx, WF_ENOMEM, "no memory for a sample of %lld bytes",
                       (long long)o->sample);
    memcpy(text, prompt, (size_t)length);
    wf_context_training(ctx, false);
    while (length < end && !(*stopped = stop_wished(o, par))) {
        int byte = next_byte(o, par, model, text, length, key);

        if (byte < 0)
            break;
        text[length++] = (char)byte;
    }
    wf_context_training(ctx, true);
    if (out && !*stopped && wf_context_status(ctx) == WF_OK) {
        fprintf(out, "\n--- sample ---\n");
        fwrite(text, 1, (size_t)length, out);
        fprintf(out, "\n--------------\n");
    }
    free(text);
    return wf_context_status(ctx);
}
