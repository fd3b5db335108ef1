/* apps/gpt_train/data.c - the data of --data, opened; see job.h. */
#include "apps/gpt_train/job.h"
#include "nn/text/tokenizer/tokenizer.h"
#include <string.h>

/* Refuses text, whose tokens are bytes, for a model of other token ids. */
static wf_status check_tokens(const app_options *o, bool is_text, wf_error *error)
{
    if (is_text && o->vocab_size < 256)
        return wf_error_set(
            error, WF_EINVAL,
            "--data is text, whose tokens are its bytes, 256 of them, and the "
            "model's vocabulary has %lld: give token ids of that vocabulary, or "
            "a --vocab-size of 256",
            (long long)o->vocab_size);
    if (is_text && o->init_from && o->vocab_size != 256)
        return wf_error_set(error, WF_EINVAL,
                            "--data is text, whose bytes would be taken for the token ids of "
                            "--init-from %s, which has %lld of its own: convert the text to "
                            "token ids with that model's tokenizer first (docs/data.md)",
                            o->init_from, (long long)o->vocab_size);
    return WF_OK;
}

/* Finds what ends documents in files that do not say where they begin: the tokenizer's end of
   text. */
static wf_status find_ends(const app_options *o, wf_dataset *data, wf_error *error)
{
    const char *from = o->tokenizer ? o->tokenizer : o->init_from;
    wf_tok *tokenizer = NULL;
    int32_t ends;

    if (wf_dataset_is_text(data))
        return wf_error_set(error, WF_EINVAL,
                            "--documents mask is for token ids, and --data is text: convert it "
                            "to token ids (gpt_data tokenize), or use --documents ignore");
    if (wf_dataset_has_documents(data))
        return WF_OK;
    if (!from)
        return wf_error_set(error, WF_EINVAL,
                            "--documents mask: not all files of --data say where documents "
                            "begin, as Megatron's .idx does: give --tokenizer PATH, whose end "
                            "of text ends them");
    if (wf_tok_open(from, &tokenizer, error) != WF_OK)
        return error->code;
    ends = wf_tok_eos(tokenizer);
    wf_tok_close(tokenizer);
    wf_dataset_ends(data, ends);
    return ends >= 0
               ? WF_OK
               : wf_error_set(error, WF_EINVAL,
                              "--documents mask: the tokenizer %s has no end of text that "
                              "could end documents",
                              from);
}

wf_status app_data_open(const app_options *o, wf_dataset **data, wf_error *error)
{
    const wf_dataset_options options = app_options_data(o);

    *data = NULL;
    if (o->steps == 0 || o->is_fed)
        return WF_OK;
    if (wf_dataset_open(&options, data, error) != WF_OK)
        return error->code;
    if (check_tokens(o, wf_dataset_is_text(*data), error) != WF_OK)
        return error->code;
    if (app_options_masks_documents(o) && find_ends(o, *data, error) != WF_OK)
        return error->code;
    return wf_dataset_check_counts(*data, app_data_evaluations(o, *data), error);
}

int64_t app_data_evaluations(const app_options *o, const wf_dataset *data)
{
    return !o->eval_interval ? 0 : o->eval_iters ? o->eval_iters : wf_dataset_evaluations(data);
}
