/* apps/gpt_generate/output.c - text, or lines of JSON; see the header. */
#include "apps/gpt_generate/output.h"
#include "parallel/formats/json_number.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

wf_status app_output_open(app_output *o, wf_error *error)
{
    pthread_mutex_init(&o->lock, NULL);
    o->text = calloc((size_t)o->count + 1, sizeof *o->text);
    return o->text ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for texts");
}

void app_output_close(app_output *o)
{
    for (int64_t i = 0; o->text && i < o->count; i++)
        wf_gen_text_free(&o->text[i]);
    free(o->text);
    pthread_mutex_destroy(&o->lock);
}

/* One more of a list; without memory the list is none. */
static json_t *append(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *id_list(const int32_t *ids, int64_t count)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < count; i++)
        list = append(list, json_integer(ids[i]));
    return list;
}

static json_t *number_list(const char *key, const float *x, int64_t count)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < count && list; i++)
        list = append(list, wf_json_number(key, (double)x[i]));
    return list;
}

/* Returns bytes as a text of JSON, which has to be UTF-8: U+FFFD replaces each character that
   is cut. */
static json_t *text_of(const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes ? bytes : "", n);
    wf_tok_bytes mended = {0};

    if (text)
        return text;
    if (wf_tok_mend(bytes, n, &mended))
        text = json_stringn(mended.data, mended.bytes);
    wf_tok_bytes_free(&mended);
    return text;
}

static json_t *top_list(const app_output *o, const wf_gen_text *t)
{
    json_t *list = json_array();
    int64_t n = o->options->top;

    for (int64_t i = t->prompt; i < t->count; i++) {
        list =
            append(list, json_pack("{s:o, s:o}", "ids", id_list(t->top + i * n, n), "logprobs",
                                   number_list("top_logprobs", t->top_logprob + i * n, n)));
    }
    return list;
}

static json_t *line_of(const app_output *o, const wf_gen_text *t)
{
    const app_generate_request *q = o->request;
    const struct {
        const char *key;
        json_t *value;
        bool asked;
    } keys[] = {
        {"prompt", json_integer(t->index / q->n), true},
        {"sample", json_integer(t->index % q->n), true},
        {"prompt_ids", q->echo ? id_list(t->ids, t->prompt) : NULL, q->echo},
        {"text", text_of(t->text.data, t->text.bytes), true},
        {"ids", id_list(t->ids + t->prompt, t->count - t->prompt), true},
        {"finish_reason", json_string(t->finish), true},
        {"prompt_logprobs",
         q->echo && q->logprobs >= 0
             ? number_list("prompt_logprobs", t->logprob + 1, t->prompt - 1)
             : NULL,
         q->echo && q->logprobs >= 0},
        {"logprobs",
         q->logprobs >= 0
             ? number_list("logprobs", t->logprob + t->prompt, t->count - t->prompt)
             : NULL,
         q->logprobs >= 0},
        {"top_logprobs", q->logprobs > 0 ? top_list(o, t) : NULL, q->logprobs > 0},
    };
    json_t *line = json_object();
    bool good = line;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].asked) /* the object takes the value, also where it fails */
            good = json_object_set_new(line, keys[i].key, keys[i].value) == 0 && good;
    if (good)
        return line;
    json_decref(line);
    return NULL;
}

static void print_json(app_output *o, const wf_gen_text *t)
{
    json_t *line = line_of(o, t);
    char what[64];

    snprintf(what, sizeof what, "sample %" PRId64 " of prompt %" PRId64,
             t->index % o->request->n, t->index / o->request->n);
    wf_json_write(line, o->out, JSON_COMPACT | JSON_REAL_PRECISION(9), what, &o->error);
    json_decref(line);
}

static void print_prompt(app_output *o, int64_t index)
{
    const app_generate_request *q = o->request;
    const wf_tok_ids *ids = &o->prompts->ids[index / q->n];
    wf_tok_bytes text = {.data = NULL};

    if (q->echo && wf_tok_decode(o->options->tokenizer, ids->data, ids->count,
                                 WF_TOK_SKIP_SPECIAL, &text, &o->error) == WF_OK)
        wf_tok_print(text.data, text.bytes, o->out);
    wf_tok_bytes_free(&text);
}

static void print_text(app_output *o, const wf_gen_text *t)
{
    const app_generate_request *q = o->request;

    if (q->n > 1)
        fprintf(o->out, "--- %lld, %lld ---\n", (long long)(t->index / q->n),
                (long long)(t->index % q->n));
    else
        fprintf(o->out, "--- %lld ---\n", (long long)t->index);
    print_prompt(o, t->index);
    wf_tok_print(t->text.data, t->text.bytes, o->out);
    fputc('\n', o->out);
}

/* A single text, up to where no stop string can take it back. */
static void show(app_output *o, const wf_gen_text *t)
{
    size_t settled = wf_gen_text_settled(o->options, t);

    if (o->shown == 0 && t->count == t->prompt + 1)
        print_prompt(o, t->index);
    if (settled > o->shown) {
        wf_tok_print(t->text.data + o->shown, settled - o->shown, o->out);
        o->shown = settled;
    }
    if (t->finish)
        fputc('\n', o->out);
    fflush(o->out);
}

static bool is_single(const app_output *o)
{
    return o->count == 1 && !o->request->json;
}

void app_output_token(void *arg, const wf_gen_text *t)
{
    app_output *o = arg;

    if (o->out && is_single(o))
        show(o, t);
}

void app_output_finished(void *arg, wf_gen_text *t)
{
    app_output *o = arg;

    pthread_mutex_lock(&o->lock);
    o->tokens += t->count - t->prompt;
    o->full += strcmp(t->finish, "length") == 0 && t->count - t->prompt < o->options->most;
    o->text[t->index] = *t;
    memset(t, 0, sizeof *t);
    for (; o->out && o->printed < o->count && o->text[o->printed].finish; o->printed++) {
        wf_gen_text *next = &o->text[o->printed];
        const char *finish = next->finish;

        if (o->request->json)
            print_json(o, next);
        else if (!is_single(o))
            print_text(o, next);
        wf_gen_text_free(next);
        next->finish = finish;
    }
    if (o->out)
        fflush(o->out);
    pthread_mutex_unlock(&o->lock);
}
