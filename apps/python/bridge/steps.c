/* apps/python/bridge/steps.c - steps and evaluations of a run that Python drives, and memory of
   its calls; see bridge.h. */
#include "apps/python/bridge/bridge_internal.h"
#include <inttypes.h>
#include <stddef.h>
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

/* ---- memory of calls ---- */

typedef struct weft_python_lent {
    struct weft_python_lent *next;
    _Alignas(max_align_t) char data[];
} weft_python_lent;

void *weft_python_lend(weft_python_run *r, const void *from, size_t bytes, wf_error *error)
{
    weft_python_lent *lent = error->code == WF_OK ? calloc(1, sizeof *lent + bytes) : NULL;

    if (!lent) {
        if (error->code == WF_OK)
            wf_error_set(error, WF_ENOMEM, "no memory for a call of %zu bytes", bytes);
        return NULL;
    }
    lent->next = r->lent;
    r->lent = lent;
    if (from)
        memcpy(lent->data, from, bytes);
    return lent->data;
}

void weft_python_return(weft_python_run *r)
{
    while (!r->process.ranks_left && r->lent) {
        weft_python_lent *next = r->lent->next;

        free(r->lent);
        r->lent = next;
    }
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

/* Lends batches of rows to the ranks. NULL: no memory. */
static const weft_python_rows *lend_rows(weft_python_run *r, const weft_python_rows *rows,
                                         int64_t batches, wf_error *error)
{
    const size_t n = (size_t)(batches * rows->batch * rows->length);
    weft_python_rows *lent = weft_python_lend(r, rows, sizeof *rows, error);

    if (!lent)
        return NULL;
    lent->tokens = weft_python_lend(r, rows->tokens, n * sizeof *rows->tokens, error);
    lent->targets = weft_python_lend(r, rows->targets, n * sizeof *rows->targets, error);
    if (rows->weights)
        lent->weights = weft_python_lend(r, rows->weights, n * sizeof *rows->weights, error);
    return error->code == WF_OK ? lent : NULL;
}

/* Makes a step, of rows that were checked, or of the run's own data. */
static wf_status make_step(weft_python_run *r, const weft_python_rows *rows, wf_step_log *log,
                           wf_error *error)
{
    const wf_par_data *lent = NULL;
    wf_par_data data;

    if (rows) {
        rows = lend_rows(r, rows, 1, error);
        data = weft_python_rows_data(rows, false);
        lent = weft_python_lend(r, &data, sizeof data, error);
    }
    if (error->code == WF_OK)
        wf_session_step(r->session, lent, log, error);
    weft_python_return(r);
    return error->code;
}

int weft_python_train(weft_python_run *r, const int32_t *tokens, const int32_t *targets,
                      const float *weights, weft_python_step *made, wf_error *error)
{
    weft_python_rows rows = rows_of(r, tokens, targets);
    wf_step_log log;

    *error = (wf_error){WF_OK, ""};
    rows.weights = weights;
    if ((tokens && check_rows(r, &rows, 1, error) != WF_OK) ||
        make_step(r, tokens ? &rows : NULL, &log, error) != WF_OK)
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
    evaluation e = {.batches = batches}, *lent;

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
        e.data = weft_python_rows_data(lend_rows(r, &rows, batches, error), true);
        lent = weft_python_lend(r, &e, sizeof e, error);
        if (lent && wf_session_call(r->session, evaluate, lent, error) == WF_OK)
            e.mean = lent->mean;
        weft_python_return(r);
    }
    *mean = (double)e.mean;
    return (int)error->code;
}
