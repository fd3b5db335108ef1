/* apps/gpt_train/sample_text.c - see the header. */
#include "apps/gpt_train/sample_text.h"
#include <string.h>
#include <sys/stat.h>
#include <weft/weft.h>

enum { PATH = 4096, BYTES = 256 };

/* The folder beside a model that has its tokenizer: of --init-from, or what a run has kept of
   it. */
static const char *beside(const app_options *o, char path[PATH])
{
    struct stat s;

    if (o->init_from)
        return o->init_from;
    snprintf(path, PATH, "%.4000s/" WF_PAR_PRETRAINED_KEPT, o->save ? o->save : ".");
    return o->save && stat(path, &s) == 0 ? path : NULL;
}

wf_status app_train_tokenizer_open(const app_options *o, bool data_are_text, const char *flag,
                                   wf_tok **tokenizer, wf_error *error)
{
    char path[PATH];
    bool bytes = o->vocab_size == BYTES && data_are_text;
    const char *from = o->tokenizer ? o->tokenizer : bytes ? "bytes" : beside(o, path);
    wf_error why = {WF_OK, ""};

    if (!from && data_are_text)
        from = "bytes";
    if (!from)
        return wf_error_set(
            error, WF_EINVAL,
            "%s needs text as token ids or ids as text, and no tokenizer is known for "
            "them: give --tokenizer PATH, or drop it",
            flag);
    if (wf_tok_open(from, tokenizer, &why) != WF_OK)
        return wf_error_set(
            error, why.code,
            "%s; %s needs the model's tokenizer: give --tokenizer PATH, or drop it", why.text,
            flag);
    if (wf_tok_size(*tokenizer) > o->vocab_size && strcmp(from, "bytes") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "the tokenizer %s has %lld ids, and the model %lld: it is another "
                            "model's; give --tokenizer PATH",
                            from, (long long)wf_tok_size(*tokenizer), (long long)o->vocab_size);
    return WF_OK;
}

wf_status app_sample_prompt_open(const app_options *o, bool data_are_text, app_sample_prompt *p,
                                 wf_error *error)
{
    wf_tok_encoder *encoder = NULL;
    char flag[48];

    *p = (app_sample_prompt){.ends = -1};
    if (!o->sample)
        return WF_OK;
    snprintf(flag, sizeof flag, "--sample %lld", (long long)o->sample);
    if (app_train_tokenizer_open(o, data_are_text, flag, &p->tokenizer, error) != WF_OK)
        return error->code;
    p->ends = wf_tok_eos(p->tokenizer);
    p->size = wf_tok_size(p->tokenizer);
    p->size = p->size < o->vocab_size ? p->size : o->vocab_size;
    if (wf_tok_encoder_new(p->tokenizer, &encoder, error) == WF_OK)
        wf_tok_encode(encoder, o->sample_prompt, strlen(o->sample_prompt),
                      WF_TOK_SPECIAL | WF_TOK_TEMPLATE, &p->ids, error);
    wf_tok_encoder_free(encoder);
    if (error->code == WF_OK && !p->ids.count)
        return wf_error_set(error, WF_EINVAL,
                            "--sample-prompt has no token ids, and a sample continues at least "
                            "one; give a longer prompt");
    return error->code;
}

void app_sample_prompt_close(app_sample_prompt *p)
{
    wf_tok_ids_free(&p->ids);
    wf_tok_close(p->tokenizer);
    p->tokenizer = NULL;
}

wf_status app_sample_print(const app_sample_prompt *p, const int32_t *ids, int64_t count,
                           FILE *out, wf_error *error)
{
    wf_tok_bytes text = {.data = NULL};

    if (wf_tok_decode(p->tokenizer, ids, (size_t)count, WF_TOK_SKIP_SPECIAL, &text, error) ==
        WF_OK) {
        fprintf(out, "\n--- sample ---\n");
        wf_tok_print(text.data, text.bytes, out);
        fprintf(out, "\n--------------\n");
    }
    wf_tok_bytes_free(&text);
    return error->code;
}
