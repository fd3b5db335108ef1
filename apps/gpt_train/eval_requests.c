/* apps/gpt_train/eval_requests.c - see the header. */
#include "apps/gpt_train/eval_requests.h"
#include "apps/gpt_train/sample_text.h"
#include <stdlib.h>

wf_status app_eval_requests_open(const app_options *o, bool data_are_text,
                                 app_eval_requests *asked, wf_error *error)
{
    wf_tok *tokenizer = NULL;

    *asked = (app_eval_requests){.answer = NULL};
    if (!o->eval_requests)
        return WF_OK;
    if (app_train_tokenizer_open(o, data_are_text, "--eval-requests", &tokenizer, error) ==
            WF_OK &&
        wf_gen_requests_read(o->eval_requests, tokenizer, o->positions, &asked->requests,
                             error) == WF_OK) {
        if (!wf_gen_answers_labelled(&asked->requests))
            wf_error_set(
                error, WF_EINVAL,
                "--eval-requests %s: no question has a label, so that there is nothing "
                "to count",
                o->eval_requests);
        asked->answer = calloc((size_t)asked->requests.count, sizeof *asked->answer);
        if (!asked->answer)
            wf_error_set(error, WF_ENOMEM, "no memory for the answers to %s", o->eval_requests);
    }
    wf_tok_close(tokenizer);
    return error->code;
}

void app_eval_requests_close(app_eval_requests *asked)
{
    wf_gen_requests_free(&asked->requests);
    free(asked->answer);
    asked->answer = NULL;
}

wf_status app_eval_requests_answer(const app_eval_requests *asked, wf_par *par,
                                   wf_nn_gpt *model, wf_par_trainer *pipelined, bool first_rank,
                                   bool (*stop)(void *arg), void *arg, wf_gen_score *score)
{
    const wf_gen_answers_options options = {.par = par,
                                            .model = model,
                                            .pipelined = pipelined,
                                            .requests = &asked->requests,
                                            .batch = WF_GEN_ANSWERS_BATCH,
                                            .copies = 1,
                                            .stop = stop,
                                            .arg = arg};
    wf_context *ctx = wf_par_context(par);
    wf_error error = {WF_OK, ""};

    if (wf_gen_answers_find(&options, first_rank ? asked->answer : NULL) != WF_OK ||
        !first_rank)
        return wf_context_status(ctx);
    if (wf_gen_answers_check(&asked->requests, asked->answer, "--eval-requests", &error) !=
        WF_OK)
        return wf_fail(ctx, error.code, "%s", error.text);
    *score = wf_gen_answers_score(&asked->requests, asked->answer);
    return WF_OK;
}

wf_status app_eval_requests_plan(const app_eval_requests *asked, wf_par *par, wf_nn_gpt *model,
                                 wf_par_trainer *pipelined)
{
    const wf_gen_answers_options options = {.par = par,
                                            .model = model,
                                            .pipelined = pipelined,
                                            .requests = &asked->requests,
                                            .batch = WF_GEN_ANSWERS_BATCH,
                                            .copies = 1};

    return asked->requests.count ? wf_gen_answers_find(&options, NULL) : WF_OK;
}
