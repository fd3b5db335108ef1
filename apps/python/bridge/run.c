/* apps/python/bridge/run.c - a run that Python drives, opened and closed; see bridge.h. */
#include "apps/python/bridge/bridge_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- of a run that is fed: there are no batches but those of its steps ---- */

static wf_status no_batch(int64_t step, wf_error *error)
{
    return wf_error_set(error, WF_EINVAL,
                        "step %" PRId64
                        " has no batch: give it one, step(ids), or open the run "
                        "with data=FILE",
                        step);
}

static wf_status count_none(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)self, (void)count;
    return no_batch(step, error);
}

static wf_status read_none(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    (void)self, (void)first, (void)count, (void)field;
    return no_batch(step, error);
}

/* ---- losses with weights ---- */

/* Computes weight x -log p(target) of each token; a wf_par_loss_function. */
static wf_tensor *weighted_loss(wf_nn_module *module, const wf_par_batch *batch)
{
    wf_nn_gpt *model = (wf_nn_gpt *)module;
    wf_tensor *losses = wf_nn_cross_entropy(
        model->loss, wf_nn_gpt_logits(model, wf_par_batch_tensor(batch, "tokens")),
        wf_par_batch_tensor(batch, "targets"));

    return wf_mul(losses, wf_par_batch_tensor(batch, "weights"));
}

/* Gives a job's batches weights. */
static void add_weights(wf_par_job *job, int64_t tokens)
{
    job->train.field[2] = (wf_par_field){"weights", WF_F32, {{tokens, 1, WF_CHUNKS_8}}};
    job->train.loss = weighted_loss;
}

/* ---- opened and closed ---- */

/* Refuses what a run that is fed cannot do. */
static wf_status check_fed(const app_options *o, bool weighted, wf_error *error)
{
    if (weighted && app_options_pipelined(o))
        return wf_error_set(error, WF_EINVAL,
                            "weights of tokens are not there for the stages of a pipeline: "
                            "leave out --pp, or weights=True");
    if (app_options_masks_documents(o))
        return wf_error_set(error, WF_EINVAL,
                            "--documents mask reads where documents begin from files, and this "
                            "run gets its batches from its caller: give it data=FILE");
    if (o->rampup_batch_size)
        return wf_error_set(
            error, WF_EINVAL,
            "--rampup-batch-size divides the batches of files, and this run gets "
            "its batches from its caller: give it data=FILE");
    if (o->cuda_graph)
        return wf_error_set(error, WF_EINVAL,
                            "--cuda-graph on keeps where batches lie, and this run gets its "
                            "batches from its caller: give it data=FILE");
    return WF_OK;
}

/* Refuses flags that are for a run of its own. */
static wf_status check(const app_options *o, bool fed, bool weighted, wf_error *error)
{
    const char *flag = app_options_asks(o) ? "--help, --version and --completion"
                       : o->plan           ? "--plan"
                       : o->calibrate      ? "--calibrate"
                       : o->print_config   ? "--print-config"
                       : o->fit_nodes      ? "--fit-nodes"
                       : o->replay         ? "--replay"
                       : o->sample         ? "--sample"
                                           : NULL;

    if (flag)
        return wf_error_set(error, WF_EINVAL,
                            "%s is not of a run that is driven step by step: use weft.plan, "
                            "run.generate, or the program, weft train",
                            flag);
    if (!fed && weighted)
        return wf_error_set(error, WF_EINVAL,
                            "weights of tokens come with batches, and this run reads its own: "
                            "leave out data=, or weights=True");
    return fed ? check_fed(o, weighted, error) : WF_OK;
}

/* Changes the process to one that says nothing, and is fed. */
static void adapt(weft_python_run *r, bool fed)
{
    wf_process *p = &r->process;

    p->program = p->run.program = "weft";
    if (!p->started)
        p->started = "threads";
    if (!r->options.given[APP_OPTION_bind_ranks]) /* runs of a process share its cores */
        p->bind_ranks = false;
    if (r->out) {
        p->run.hooks.introduce = NULL;
        p->run.out = p->run.saving.out = r->out;
    }
    p->job.after = NULL;
    r->own = p->job.data;
    r->validation = p->job.eval_data;
    if (fed)
        p->job.data = (wf_par_data){.read = read_none, .counted = count_none};
    if (r->weighted) {
        add_weights(&p->job, r->options.seq_len);
        add_weights(&p->request.job, r->options.seq_len);
    }
}

static wf_status open_session(weft_python_run *r, bool fed, wf_error *error)
{
    r->process.is_embedded = true;
    if (check(&r->options, fed, r->weighted, error) != WF_OK ||
        app_options_prepare_outputs(&r->options, error) != WF_OK ||
        app_job_prepare(&r->job, &r->process, error) != WF_OK ||
        app_job_open(&r->job, error) != WF_OK ||
        app_job_process(&r->job, &r->process, error) != WF_OK)
        return error->code;
    adapt(r, fed);
    r->session = wf_session_open(&r->process, error);
    return error->code;
}

int weft_python_open(int argc, char **argv, int fed, int weighted, int quiet,
                     weft_python_run **run, wf_error *error)
{
    const wf_process empty = WF_PROCESS("weft");
    weft_python_run *r = calloc(1, sizeof *r);

    *run = NULL;
    *error = (wf_error){WF_OK, ""};
    if (!r)
        return (int)wf_error_set(error, WF_ENOMEM, "no memory for a run");
    r->process = empty;
    r->weighted = weighted;
    r->job.options = &r->options;
    if (quiet && !(r->out = fopen("/dev/null", "w")))
        wf_error_set(error, WF_EIO, "cannot open /dev/null");
    else if ((fed ? app_options_parse_fed : app_options_parse)(argc, argv, &r->options,
                                                               error) == WF_OK)
        open_session(r, fed, error);
    if (error->code == WF_OK)
        *run = r;
    else
        weft_python_close(r, &(wf_error){WF_OK, ""});
    return (int)error->code;
}

int weft_python_close(weft_python_run *r, wf_error *error)
{
    *error = (wf_error){WF_OK, ""};
    if (!r)
        return WF_OK;
    wf_session_close(r->session, error);
    if (r->process.ranks_left) /* they use the run still */
        return (int)error->code;
    weft_python_return(r);
    wf_tok_close(r->tokenizer);
    app_job_close(&r->job);
    app_options_free(&r->options);
    if (r->out)
        fclose(r->out);
    free(r);
    return (int)error->code;
}

void weft_python_sizes_of(const weft_python_run *r, weft_python_sizes *sizes)
{
    const app_options *o = &r->options;

    *sizes = (weft_python_sizes){.batch = o->global_batch_size,
                                 .tokens = o->seq_len,
                                 .vocabulary = o->vocab_size,
                                 .positions = app_options_model(o).positions,
                                 .ranks = app_options_ranks(o),
                                 .steps = o->steps};
}

int64_t weft_python_steps(const weft_python_run *r)
{
    return wf_session_steps(r->session);
}

char *weft_python_options(const weft_python_run *r)
{
    json_t *json = app_options_json(&r->options);
    char *text = json ? json_dumps(json, 0) : NULL;

    json_decref(json);
    return text;
}

void weft_python_free(void *memory)
{
    free(memory);
}

const char *weft_python_version(void)
{
    return WEFT_VERSION;
}
