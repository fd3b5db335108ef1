/* apps/gpt_generate/gather_texts.c - see the header. */
#include "apps/gpt_generate/gather_texts.h"
#include "parallel/gather.h"
#include <stdlib.h>
#include <string.h>

/* A text as bytes: this, then ids, log probabilities, the likeliest and theirs, the text. Both sides are one program. */
typedef struct header {
    int64_t index, count, prompt;
    uint64_t text;
    bool stopped, logprob, top;
} header;

/* Copies `bytes` to `at`, where that is no NULL, and returns them. */
static size_t put(char *at, const void *from, size_t bytes)
{
    if (at && bytes)
        memcpy(at, from, bytes);
    return bytes;
}

/* Bytes of a text; to: NULL counts them alone. */
static size_t pack_text(const app_output *o, const wf_gen_text *t, char *to)
{
    const size_t count = (size_t)t->count, top = count * (size_t)o->options->top;
    const header h = {.index = t->index,
                      .count = t->count,
                      .prompt = t->prompt,
                      .text = t->text.bytes,
                      .stopped = strcmp(t->finish, "stop") == 0,
                      .logprob = t->logprob,
                      .top = t->top};
    const struct {
        const void *data;
        size_t bytes;
    } parts[] = {{&h, sizeof h},
                 {t->ids, count * sizeof *t->ids},
                 {t->logprob, t->logprob ? count * sizeof *t->logprob : 0},
                 {t->top, t->top ? top * sizeof *t->top : 0},
                 {t->top_logprob, t->top ? top * sizeof *t->top_logprob : 0},
                 {t->text.data, t->text.bytes}};
    size_t used = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        used += put(to ? to + used : NULL, parts[i].data, parts[i].bytes);
    return used;
}

/* All texts of a copy that are whole. */
static size_t pack(const app_output *o, int64_t copy, int64_t copies, char *to)
{
    size_t used = 0;

    for (int64_t i = copy; i < o->count; i += copies)
        if (o->text[i].finish)
            used += pack_text(o, &o->text[i], to ? to + used : NULL);
    return used;
}

/* A copy of the next bytes; of none, NULL. */
static void *take_part(const char **at, size_t bytes, bool *good)
{
    void *part = bytes ? malloc(bytes) : NULL;

    *good = *good && (part || !bytes);
    if (part)
        memcpy(part, *at, bytes);
    *at += bytes;
    return part;
}

/* An wf_par_gather_take: texts go where those of this process have gone. */
static void take(void *arg, wf_par *par, int from, const char *data, size_t bytes)
{
    app_output *o = arg;
    const char *at = data;

    (void)from;
    while (at < data + bytes) {
        wf_gen_text t = {.index = 0};
        bool good = true;
        size_t count, top;
        header h;

        memcpy(&h, at, sizeof h);
        at += sizeof h;
        count = (size_t)h.count;
        top = count * (size_t)o->options->top;
        t.index = h.index;
        t.count = h.count;
        t.prompt = h.prompt;
        t.finish = h.stopped ? "stop" : "length";
        t.ids = take_part(&at, count * sizeof *t.ids, &good);
        t.logprob = take_part(&at, h.logprob ? count * sizeof *t.logprob : 0, &good);
        t.top = take_part(&at, h.top ? top * sizeof *t.top : 0, &good);
        t.top_logprob = take_part(&at, h.top ? top * sizeof *t.top_logprob : 0, &good);
        t.text.data = take_part(&at, (size_t)h.text, &good);
        t.text.bytes = t.text.room = (size_t)h.text;
        if (good) {
            app_output_finished(o, &t);
        } else {
            wf_fail(wf_par_context(par), WF_ENOMEM, "no memory for texts");
            wf_gen_text_free(&t);
        }
    }
}

wf_status app_gather_texts(app_output *o, wf_rank *rank, wf_par *par, int64_t tp, int64_t dp)
{
    wf_context *ctx = wf_par_context(par);
    const bool has = wf_par_gather_from(rank) && rank->index % tp == 0;
    size_t bytes = has ? pack(o, rank->index / tp, dp, NULL) : 0;
    char *all = malloc(bytes + 1);

    if (!wf_par_gather_needed(rank) || wf_context_status(ctx) != WF_OK)
        bytes = 0;
    else if (!all)
        wf_fail(ctx, WF_ENOMEM, "no memory for texts");
    else {
        if (has)
            pack(o, rank->index / tp, dp, all);
        wf_par_gather(rank, par, all, bytes, take, o);
    }
    free(all);
    return wf_context_status(ctx);
}
