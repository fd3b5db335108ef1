/* apps/gpt_generate/main.c - text generated from prompts: see gpt_generate --help. */
#include "apps/options/options.h"
#include "parallel/report/layout.h"
#include "apps/gpt_generate/gather_texts.h"
#include "apps/gpt_generate/output.h"
#include "parallel/generate/model.h"
#include "apps/program.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ENDS = WF_PAR_PRETRAINED_ENDS + 1 };

typedef struct job {
    app_generate_request q;
    wf_gen_model source;
    wf_tok *tokenizer;
    const char *tokenizer_path;
    app_prompts prompts;
    wf_gen_prompt *texts; /* [count]: each prompt n times */
    int64_t count, positions;
    int32_t ends[MOST_ENDS];
    wf_gen_options options;
    app_output output;
    wf_memory_report memory; /* a plan's memory */
} job;

static void add_end(job *j, int64_t id)
{
    for (int64_t i = 0; i < j->options.n_ends; i++)
        if (j->ends[i] == id)
            return;
    if (id >= 0 && id < j->source.config.vocabulary && j->options.n_ends < MOST_ENDS)
        j->ends[j->options.n_ends++] = (int32_t)id;
}

/* Warns of ends that the vocabulary has not: no text would end with them. */
static void warn_beyond(const job *j, const wf_par_pretrained_ends *ends)
{
    int64_t beyond = 0, first = 0;

    for (int64_t i = 0; i < ends->count; i++)
        if (ends->id[i] < 0 || ends->id[i] >= j->source.config.vocabulary)
            first = beyond++ ? first : ends->id[i];
    if (beyond && wf_launcher_detected().process <= 0)
        fprintf(
            stderr,
            "gpt_generate: warning: %lld of the %lld tokens that end a text as %s says it "
            "(\"eos_token_id\") are none of its vocabulary of %lld, the first of them %lld: no "
            "text ends with them\n",
            (long long)beyond, (long long)ends->count, j->source.like,
            (long long)j->source.config.vocabulary, (long long)first);
}

/* Finds the ids that end a text: those of the model's folder, and the tokenizer's. */
static wf_status find_ends(job *j, wf_error *error)
{
    wf_par_pretrained_ends ends = {.count = 0};

    if (*j->source.like && wf_par_pretrained_ends_read(j->source.like, &ends, error) != WF_OK)
        return error->code;
    if (j->q.ignore_eos)
        return WF_OK;
    for (int64_t i = 0; i < ends.count; i++)
        add_end(j, ends.id[i]);
    warn_beyond(j, &ends);
    add_end(j, wf_tok_eos(j->tokenizer));
    return WF_OK;
}

/* Each prompt n times, and how long a text may become. */
static wf_status list_texts(job *j, wf_error *error)
{
    int64_t most = j->source.config.positions;

    char where[4096] = "--prompt";

    if (j->prompts.longest_line)
        snprintf(where, sizeof where, "%.3900s, line %lld", j->q.prompts,
                 (long long)j->prompts.longest_line);
    if (j->prompts.longest >= most)
        return wf_error_set(
            error, WF_EINVAL,
            "%s: a prompt has %lld tokens, and a text of this model has at most "
            "%lld: shorten it",
            where, (long long)j->prompts.longest, (long long)most);
    j->count = j->prompts.count * j->q.n;
    j->texts = calloc((size_t)j->count + 1, sizeof *j->texts);
    if (!j->texts)
        return wf_error_set(error, WF_ENOMEM, "no memory for prompts");
    for (int64_t i = 0; i < j->count; i++) {
        const wf_tok_ids *ids = &j->prompts.ids[i / j->q.n];

        j->texts[i] = (wf_gen_prompt){ids->data, (int64_t)ids->count, (uint64_t)i};
    }
    j->positions = j->count && j->prompts.longest + j->q.most < most
                       ? j->prompts.longest + j->q.most
                       : most;
    return WF_OK;
}

/* The largest of what is computed at once: the longest prompt in its chunks, a token of each
   text, and where tokens are captured (in the second step), another prompt beside their
   graph. */
static void plan_texts(job *j, wf_gen_engine *e)
{
    int64_t longest =
        wf_gen_engine_together(e, j->count ? j->prompts.longest - 1 : j->positions - 1);
    wf_gen_engine_row *row = calloc((size_t)e->o.slots, sizeof *row);
    float *sums = j->options.logprobs ? calloc((size_t)e->o.slots, sizeof *sums) : NULL;

    for (int64_t s = 0; row && s < e->o.slots; s++)
        row[s] = (wf_gen_engine_row){s, longest, 0, NULL};
    for (int i = 0; row && i < 1 + 2 * e->o.cuda_graph; i++) {
        wf_gen_engine_prefill(e, 0, longest, 0, NULL, longest, NULL, NULL);
        wf_gen_engine_next(e, e->o.slots, row, NULL, sums);
    }
    free(row);
    free(sums);
}

/* Texts at once, of each copy of the model. */
static int64_t slots_of(const job *j)
{
    int64_t share = (j->count + j->q.run.of.dp - 1) / j->q.run.of.dp;

    return j->count && share < j->q.batch ? share : j->q.batch;
}

/* Returns whether tokens are captured as graphs: as --cuda-graph says, or where they can be and
   no other rank takes part in them. */
static bool captures(const job *j, const wf_gen_engine_options *options, const wf_rank *rank)
{
    const char *why = wf_gen_engine_uncaptured(options), *asked = j->q.cuda_graph;

    if (asked)
        return strcmp(asked, "on") == 0;
    if (!why && j->q.run.of.tp > 1)
        why = "ranks that split a model, whose graphs no GPU has run yet: --cuda-graph on asks "
              "for them";
    if (why && strcmp(j->q.run.of.device, "cuda") == 0 && rank->index == 0)
        fprintf(stderr, "gpt_generate: tokens are made op by op, and not by CUDA graphs: %s\n",
                why);
    return !why;
}

static void generate(void *arg, wf_rank *rank, wf_par *par, wf_nn_gpt *model)
{
    job *j = arg;
    wf_gen_engine_options options = {.par = par,
                                     .model = model,
                                     .slots = slots_of(j),
                                     .positions = j->positions,
                                     .chunk = j->q.chunk};
    const wf_gen_events quiet = {.arg = NULL};
    const wf_gen_events print = {app_output_token, app_output_finished, &j->output};
    bool prints = rank->index % (int)j->q.run.of.tp == 0;
    wf_gen_engine e;

    options.cuda_graph = captures(j, &options, rank);
    wf_context_training(wf_par_context(par), false);
    if (wf_gen_engine_open(&e, &options) == WF_OK && j->q.plan)
        plan_texts(j, &e);
    else if (wf_context_status(wf_par_context(par)) == WF_OK)
        wf_gen_run(&e, &j->options, j->texts, j->count, wf_par_dp_rank(par), j->q.run.of.dp,
                   prints ? &print : &quiet);
    wf_gen_engine_close(&e);
    if (!j->q.plan)
        app_gather_texts(&j->output, rank, par, j->q.run.of.tp, j->q.run.of.dp);
    if (j->q.plan)
        wf_pool_report(wf_context_pool(wf_par_context(par)), &j->memory);
}

static wf_status generate_rank(wf_rank *rank, void *arg)
{
    job *j = arg;

    return wf_gen_model_run_rank(&j->q.run.of, &j->source, j->q.plan, rank, generate, j);
}

static void print_plan(const job *j)
{
    char text[32];

    printf("a rank of --tp %lld, %lld text%s at once of at most %lld tokens each\n",
           (long long)j->q.run.of.tp, (long long)slots_of(j), slots_of(j) == 1 ? "" : "s",
           (long long)j->positions);
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        if (j->memory.at_peak[k])
            printf("  %-24s %12s\n", wf_memory_kind_name((wf_memory_kind)k),
                   wf_size_text(text, (double)j->memory.at_peak[k]));
    printf("  %-24s %12s\n", "at its peak", wf_size_text(text, (double)j->memory.peak));
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Texts that end before --max-new-tokens, and why. */
static void warn_full(const job *j)
{
    if (j->output.full)
        fprintf(
            stderr,
            "gpt_generate: warning: %lld of %lld texts ended before --max-new-tokens %lld, as "
            "the model's context of %lld tokens was full: shorten the prompts, or take a model "
            "of a longer context (gpt_train --seq-len)\n",
            (long long)j->output.full, (long long)j->count, (long long)j->q.most,
            (long long)j->source.config.positions);
}

static wf_status launch(job *j, const wf_launcher *launcher, wf_error *error)
{
    const wf_launch_options options = {.ranks = (int)(j->q.run.of.tp * j->q.run.of.dp),
                                       .job = j->q.run.job,
                                       .transport = j->q.plan ? "fake" : NULL};
    double begin = seconds();
    wf_status status = wf_launch(&options, generate_rank, j, error);

    if (status == WF_OK && j->output.error.code != WF_OK)
        status = wf_error_set(error, j->output.error.code, "%s", j->output.error.text);
    if (status == WF_OK && j->q.plan && launcher->process <= 0)
        print_plan(j);
    else if (status == WF_OK && launcher->process <= 0 && isatty(STDERR_FILENO))
        fprintf(stderr, "%lld tokens in %.1f s, loading included\n",
                (long long)j->output.tokens, seconds() - begin);
    if (status == WF_OK && launcher->process <= 0)
        warn_full(j);
    return status;
}

static wf_status check_cuda_graph(const app_generate_request *q, wf_error *error)
{
    if (!q->cuda_graph || strcmp(q->cuda_graph, "on") != 0)
        return WF_OK;
    if (strcmp(q->run.of.device, "cuda") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--cuda-graph on is for GPUs; use --device cuda with it");
    return WF_OK;
}

static wf_status prepare(job *j, wf_error *error)
{
    app_generate_request *q = &j->q;

    if (app_model_run_check(&q->run, q->plan, error) != WF_OK ||
        check_cuda_graph(q, error) != WF_OK)
        return error->code;
    if (wf_gen_model_open(q->run.of.model, app_options_saved_model, &j->source, error) !=
            WF_OK ||
        wf_gen_model_run_tokenizer(&q->run.of, &j->source, &j->tokenizer, &j->tokenizer_path,
                                   error) != WF_OK ||
        app_prompts_read(q, j->tokenizer, j->tokenizer_path, j->source.config.vocabulary,
                         &j->prompts, error) != WF_OK ||
        list_texts(j, error) != WF_OK)
        return error->code;
    app_model_run_content(&q->run, &j->source, "content of --prompts", q->prompts);
    j->options = (wf_gen_options){.sampling = q->sampling,
                                  .seed = (uint64_t)q->seed,
                                  .most = q->most,
                                  .ends = j->ends,
                                  .stops = q->stops,
                                  .n_stops = q->n_stops,
                                  .tokenizer = j->tokenizer,
                                  .size = wf_tok_size(j->tokenizer),
                                  .logprobs = q->logprobs >= 0,
                                  .prompt_logprobs = q->echo && q->logprobs >= 0,
                                  .top = q->logprobs > 0 ? q->logprobs : 0};
    if (j->options.top > j->options.size)
        return wf_error_set(error, WF_EINVAL, "--logprobs %lld: the model has %lld tokens",
                            (long long)q->logprobs, (long long)j->options.size);
    if (find_ends(j, error) != WF_OK)
        return error->code;
    j->output = (app_output){.request = q,
                             .prompts = &j->prompts,
                             .options = &j->options,
                             .out = wf_launcher_detected().process > 0 ? NULL : stdout,
                             .count = j->count};
    return app_output_open(&j->output, error);
}

int main(int argc, char **argv)
{
    const wf_launcher launcher = wf_launcher_detected();
    wf_error error = {WF_OK, ""};
    job j = {.count = 0};
    wf_status status;

    app_program_begin();
    if (app_program_version_asked("gpt_generate", argc, argv))
        return app_program_end("gpt_generate", 0);
    status = app_generate_parse(argc, argv, &j.q, &error);
    if (status == WF_OK && !j.q.help)
        status = prepare(&j, &error);
    if (status != WF_OK || j.q.help || j.q.plan)
        wf_launch_meet(j.q.run.job, &error);
    status = error.code;
    if (status == WF_OK && j.q.help) {
        for (int i = 0; launcher.process <= 0 && app_generate_help[i]; i++)
            fputs(app_generate_help[i], stdout);
        return app_program_end("gpt_generate", 0);
    }
    if (status == WF_OK)
        status = launch(&j, &launcher, &error);
    fflush(stdout);
    if (status != WF_OK && launcher.process <= 0)
        app_program_error("gpt_generate", &error);
    if (j.output.text)
        app_output_close(&j.output);
    app_prompts_free(&j.prompts);
    wf_job_free(j.q.run.job);
    wf_tok_close(j.tokenizer);
    wf_gen_model_close(&j.source);
    free(j.texts);
    return status == WF_OK ? app_program_end("gpt_generate", 0) : wf_par_exit_status(status);
}
