/* parallel/generate/continue.c - one text continued, from prompt to text; see batch.h. */
#include "parallel/generate/batch.h"
#include <string.h>

/* Keeps the text that has finished; wf_gen_events.finished. */
static void keep(void *text, wf_gen_text *t)
{
    *(wf_gen_text *)text = *t;
    memset(t, 0, sizeof *t);
}

wf_status wf_gen_continue(const wf_gen_engine_options *engine, const wf_gen_options *o,
                          const char *prompt, wf_gen_text *text)
{
    wf_context *ctx = wf_par_context(engine->par);
    wf_gen_engine_options one = *engine;
    wf_gen_engine e = {.ctx = NULL};
    wf_gen_options options = *o;
    wf_tok_ids ids = {0};
    wf_error error = {WF_OK, ""};

    *text = (wf_gen_text){.index = 0};
    one.slots = 1;
    if (!options.size)
        options.size = wf_tok_size(o->tokenizer);
    if (wf_tok_encode_text(o->tokenizer, prompt, strlen(prompt),
                           WF_TOK_SPECIAL | WF_TOK_TEMPLATE, &ids, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    else if (!ids.count)
        wf_fail(ctx, WF_EINVAL, "a prompt without token ids: give a longer one");
    wf_context_training(ctx, false);
    if (wf_context_status(ctx) == WF_OK && wf_gen_engine_open(&e, &one) == WF_OK)
        wf_gen_run(&e, &options, &(wf_gen_prompt){.ids = ids.data, .count = (int64_t)ids.count},
                   1, 0, 1, &(wf_gen_events){.finished = keep, .arg = text});
    wf_gen_engine_close(&e);
    wf_context_training(ctx, true);
    wf_tok_ids_free(&ids);
    return wf_context_status(ctx);
}
