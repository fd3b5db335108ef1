/* apps/python/bridge/run.c - a run that Python drives: opened, stepped, evaluated, closed; see
   bridge.h. */
#include "apps/python/bridge/bridge_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- batches ---- */

static wf_status read_rows(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    const weft_python_rows *r = self;
    const int32_t *target = r->targets + first * r->length;
    int64_t n = count * r->length;

    (void)step, (void)error;
    memcpy(field[0], r->tokens + first * r->length, sizeof(int32_t) * (size_t)n);
    for (int64_t i = 0; i < n; i++) /* losses know one that does not count by -1 */
        ((int32_t *)field[1])[i] = target[i] < 0 ? -1 : target[i];
    for (int64_t i = 0; r->weighted && i < n; i++)
        ((float *)field[2])[i] = r->weights ? r->weights[first * r->length + i] : 1.0f;
    return WF_OK;
}

static wf_status read_evaluated(void *self, int64_t step, int64_t first, int64_t count,
                                void *const *field, wf_error *error)
{
    const weft_python_rows *r = self;

    return read_rows(self, step, step * r->batch + first, count, field, error);
}

static int64_t count_in(const weft_python_rows *r, int64_t batch)
{
    const int32_t *target = r->targets + batch * r->batch * r->length;
    int64_t n = 0;

    for (int64_t i = 0; i < r->batch * r->length; i++)
        n += target[i] >= 0;
    return n;
}

static wf_status count_rows(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)step, (void)error;
    *count = count_in(self, 0);
    return WF_OK;
}

static wf_status count_evaluated(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)error;
    *count = count_in(self, step);
    return WF_OK;
}

wf_par_data weft_python_rows_data(const weft_python_rows *rows, bool evaluated)
{
    return (wf_par_data){.read = evaluated ? read_evaluated : read_rows,
                         .self = (void *)(uintptr_t)rows, /* only read */
                         .counted = evaluated ? count_evaluated : count_rows};
}

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

wf_status weft_python_check_ids(const weft_python_run *run, const char *what,
                                const int32_t *ids, int64_t count, bool negative,
                                wf_error *error)
{
    int64_t most = run->options.vocab_size;

    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= most || (ids[i] < 0 && !negative))
            return wf_error_set(error, WF_EINVAL,
                                "%s have the id %" PRId32 " at %" PRId64
                                ", and the model has ids from 0 to %" PRId64
                                ": make them with its tokenizer",
                                what, ids[i], i, most - 1);
    return WF_OK;
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

/* ---- steps ---- */

/* Checks a number of batches of rows. */
static wf_status check_rows(const weft_python_run *r, const weft_python_rows *rows,
                            int64_t batches, wf_error *error)
{
    int64_t count = batches * rows->batch * rows->length;

    return weft_python_check_ids(r, "tokens", rows->tokens, count, false, error) == WF_OK
               ? weft_python_check_ids(r, "targets", rows->targets, count, true, error)
               : error->code;
}

static weft_python_rows rows_of(const weft_python_run *r, const int32_t *tokens,
                                const int32_t *targets)
{
    return (weft_python_rows){.tokens = tokens,
                              .targets = targets,
                              .weighted = r->weighted,
                              .length = r->options.seq_len,
                              .batch = r->options.global_batch_size};
}

int weft_python_train(weft_python_run *r, const int32_t *tokens, const int32_t *targets,
                      const float *weights, weft_python_step *made, wf_error *error)
{
    weft_python_rows rows = rows_of(r, tokens, targets);
    const wf_par_data data = weft_python_rows_data(&rows, false);
    wf_step_log log;

    *error = (wf_error){WF_OK, ""};
    rows.weights = weights;
    if ((tokens && check_rows(r, &rows, 1, error) != WF_OK) ||
        wf_session_step(r->session, tokens ? &data : NULL, &log, error) != WF_OK)
        return (int)error->code;
    *made = (weft_python_step){.step = log.step,
                               .loss = (double)log.loss,
                               .grad_norm = (double)log.grad_norm,
                               .lr = log.lr,
                               .ms = log.ms,
                               .tokens_per_s = log.tokens_per_s,
                               .val_loss = (double)log.val_loss,
                               .digest = log.digest,
                               .memory_peak = log.memory_peak,
                               .has_digest = log.has_digest,
                               .has_val_loss = log.has_val_loss,
                               .skipped = log.skipped};
    return WF_OK;
}

int weft_python_batch(weft_python_run *r, int validation, int64_t step, int32_t *tokens,
                      int32_t *targets, wf_error *error)
{
    const wf_par_data *data = validation ? &r->validation : &r->own;
    void *const field[WF_PAR_FIELDS] = {tokens, targets};

    *error = (wf_error){WF_OK, ""};
    if (!data->read || app_options_masks_documents(&r->options))
        return (int)wf_error_set(error, WF_EINVAL, "%s",
                                 data->read ? "--documents mask has batches with more fields "
                                              "than tokens and targets"
                                            : "this run has no data of its own: open it with "
                                              "data=FILE");
    return (int)data->read(data->self, step, 0, r->options.global_batch_size, field, error);
}

/* An evaluation of the ranks. */
typedef struct evaluation {
    wf_par_data data;
    int64_t batches;
    float mean;
} evaluation;

static wf_status evaluate(wf_par_running *rank, void *arg)
{
    evaluation *e = arg;
    float mean = 0;

    wf_par_evaluate(rank->trainer, e->batches, &e->data, NULL, &mean);
    if (wf_context_rank(wf_par_context(rank->par)) == 0)
        e->mean = mean;
    return wf_context_status(wf_par_context(rank->par));
}

int weft_python_evaluate(weft_python_run *r, int64_t batches, const int32_t *tokens,
                         const int32_t *targets, double *mean, wf_error *error)
{
    const weft_python_rows rows = rows_of(r, tokens, targets);
    evaluation e = {.data = weft_python_rows_data(&rows, true), .batches = batches};

    *error = (wf_error){WF_OK, ""};
    if (batches < 1)
        return (int)wf_error_set(error, WF_EINVAL,
                                 "an evaluation of %" PRId64 " batches: give it 1 at least",
                                 batches);
    if (check_rows(r, &rows, batches, error) == WF_OK) {
        int64_t counted = 0;

        for (int64_t i = 0; i < batches; i++)
            counted += count_in(&rows, i);
        if (!counted)
            return (int)wf_error_set(error, WF_EINVAL,
                                     "no target of the evaluation counts: all are below 0");
        wf_session_call(r->session, evaluate, &e, error);
    }
    *mean = (double)e.mean;
    return (int)error->code;
}
