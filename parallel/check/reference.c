/*
 * parallel/check/reference.c - losses and gradients of a batch, a sequence at a time: each is a
 * step of a trainer, so that sequences can count as another trainer may have counted them.
 */
#include "core/files/output.h"
#include "core/host_data.h"
#include "parallel/check/source_internal.h"
#include "parallel/models/gpt/gpt.h"
#include <stdlib.h>
#include <string.h>

/* The sequence that a step is of. */
typedef struct feed {
    const wf_check_batch *batch;
    wf_check_reading reading;
    int64_t sequence,
        counted; /* counted: of the whole batch, so that gradients are parts of its mean */
} feed;

static wf_status read_sequence(void *self, int64_t step, int64_t first, int64_t count,
                               void *const *field, wf_error *error)
{
    const feed *f = self;
    const wf_check_batch *b = f->batch;
    const size_t bytes = (size_t)b->tokens * sizeof(int32_t);
    const int64_t at = f->sequence * b->tokens;

    (void)step, (void)first, (void)count, (void)error;
    memcpy(field[0], b->ids + at, bytes);
    wf_check_targets(b, f->reading, f->sequence, field[1]);
    if (b->first && f->reading != WF_CHECK_ONE_DOCUMENT) {
        memcpy(field[2], b->first + at, bytes);
        memcpy(field[3], b->position + at, bytes);
    }
    return WF_OK;
}

static wf_status count_all(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)step, (void)error;
    *count = ((const feed *)self)->counted;
    return WF_OK;
}

static wf_par_trainer *open_trainer(wf_check_source *s, const feed *f)
{
    const int64_t tokens = f->batch->tokens;
    wf_par_train_options plain = {.global_batch = 1,
                                  .micro_batch = 1,
                                  .field = WF_PAR_GPT_FIELDS(tokens),
                                  .optimizer = {.method = WF_NN_SGD},
                                  .schedule = {.steps = f->batch->sequences},
                                  .loss = wf_par_gpt_loss};
    wf_par_train_options packed = {.global_batch = 1,
                                   .micro_batch = 1,
                                   .field = WF_PAR_GPT_DOCUMENT_FIELDS(tokens),
                                   .optimizer = {.method = WF_NN_SGD},
                                   .schedule = {.steps = f->batch->sequences},
                                   .loss = wf_par_gpt_loss};
    bool documents = f->batch->first && f->reading != WF_CHECK_ONE_DOCUMENT;

    return wf_par_trainer_open(s->par, &s->model->base, documents ? &packed : &plain);
}

/* Adds the gradients of a sequence: those of vectors to its row, all others at once. */
static void add_gradients(wf_check_source *s, wf_par_trainer *trainer, wf_check_reference *r,
                          int64_t sequence, double weight)
{
    float *row = r->by_sequence + sequence * r->vectors;

    for (int64_t i = 0; i < s->count; i++) {
        const wf_hf_location *location = &s->location[i];
        wf_check_tensor *t = &r->tensor[s->tensor[i]];
        const wf_tensor *g = wf_par_gradient(trainer, s->parameter[i]);
        wf_host_data view;
        const float *data = g ? wf_data_read_f32(g, &view) : NULL;

        if (data && t->ndim == 1)
            wf_check_scatter(location, 0, g, data, 1, row + t->vector);
        for (int64_t e = 0; data && t->ndim > 1 && e < wf_check_pieces(location); e++)
            wf_check_scatter(location, e, g, data, weight, t[e].reference);
        if (data && t->head && strcmp(s->parameter[i]->path, "head.weight") == 0)
            wf_check_scatter(location, 0, g, data, weight, t->head);
        if (g)
            wf_data_close(&view);
    }
    for (int64_t i = 0; i < r->count; i++)
        for (int64_t k = 0; r->tensor[i].ndim == 1 && k < r->tensor[i].count; k++)
            r->tensor[i].reference[k] += (float)(weight * (double)row[r->tensor[i].vector + k]);
}

static void keep_losses(const wf_tensor *loss, const feed *f, wf_check_reference *r)
{
    wf_host_data view;
    const float *data = loss ? wf_data_read_f32(loss, &view) : NULL;

    if (data)
        memcpy(r->token_loss + f->sequence * f->batch->tokens, data,
               (size_t)f->batch->tokens * sizeof *data);
    if (loss)
        wf_data_close(&view);
}

static void run_sequence(wf_check_source *s, wf_par_trainer *trainer, feed *f,
                         wf_check_reference *r, double weight)
{
    const wf_par_data data = {.read = read_sequence, .self = f, .counted = count_all};
    const wf_par_batch *batch;
    wf_tensor *loss;

    wf_par_step_begin(trainer, f->sequence + 1);
    batch = wf_par_micro_step_begin(trainer, &data);
    loss = batch ? wf_par_gpt_loss(&s->model->base, batch) : NULL;
    keep_losses(loss, f, r);
    wf_par_backward(trainer, loss);
    if (wf_par_reduce(trainer, NULL) == WF_OK)
        add_gradients(s, trainer, r, f->sequence, weight);
    wf_par_zero_grad(trainer);
}

static wf_status prepare(wf_check_reference *r, feed *f, wf_error *error)
{
    const wf_check_batch *b = f->batch;
    int32_t *target = malloc((size_t)b->tokens * sizeof *target);
    const size_t n = (size_t)(b->sequences * b->tokens);

    if (!r->token_loss) {
        r->token_loss = calloc(n, sizeof *r->token_loss);
        r->sequence_counted = calloc((size_t)b->sequences, sizeof *r->sequence_counted);
        r->by_sequence = calloc((size_t)(b->sequences * r->vectors) + 1, sizeof(float));
    }
    if (!target || !r->token_loss || !r->sequence_counted || !r->by_sequence) {
        free(target);
        return wf_error_set(error, WF_ENOMEM, "no memory for the losses of a batch");
    }
    f->counted = 0;
    for (int64_t i = 0; i < b->sequences; i++) {
        r->sequence_counted[i] = wf_check_targets(b, f->reading, i, target);
        f->counted += r->sequence_counted[i];
    }
    free(target);
    memset(r->by_sequence, 0, (size_t)(b->sequences * r->vectors) * sizeof(float));
    for (int64_t i = 0; i < r->count; i++) {
        wf_check_tensor *t = &r->tensor[i];

        memset(t->reference, 0, (size_t)t->count * sizeof(float));
        if (t->head)
            memset(t->head, 0, (size_t)t->count * sizeof(float));
    }
    r->counted = f->counted;
    return f->counted ? WF_OK
                      : wf_error_set(error, WF_EDATA,
                                     "no token of the batch is predicted: all "
                                     "labels are -100");
}

wf_status wf_check_reference_compute(wf_check_source *s, wf_check_reference *r,
                                     const wf_check_batch *batch, wf_check_reading reading,
                                     const double *weight, wf_error *error)
{
    feed f = {.batch = batch, .reading = reading};
    wf_context *ctx = wf_par_context(s->par);
    wf_check_replay *replay = NULL;
    wf_par_trainer *trainer;
    double sum = 0;

    if (prepare(r, &f, error) != WF_OK)
        return error->code;
    trainer = open_trainer(s, &f);
    if (batch->choice)
        replay = wf_check_replay_open(s, batch, &r->choices);
    for (f.sequence = 0; f.sequence < batch->sequences && wf_context_status(ctx) == WF_OK;
         f.sequence++) {
        wf_check_replay_sequence(replay, f.sequence);
        run_sequence(s, trainer, &f, r, weight ? weight[f.sequence] : 1);
    }
    wf_check_replay_close(replay);
    wf_par_trainer_close(trainer);
    for (int64_t i = 0; i < batch->sequences * batch->tokens; i++)
        sum += (double)r->token_loss[i];
    r->loss = sum / (double)r->counted;
    if (wf_context_status(ctx) != WF_OK)
        *error = *wf_context_error(ctx);
    return error->code;
}

void wf_check_reference_free(wf_check_reference *r)
{
    for (int64_t i = 0; i < r->count; i++) {
        const wf_check_tensor *t = &r->tensor[i];

        free(t->reference);
        free(t->weight);
        free(t->theirs);
        free(t->updated);
        free(t->head);
    }
    free(r->tensor);
    free(r->token_loss);
    free(r->sequence_counted);
    free(r->by_sequence);
    *r = (wf_check_reference){.tensor = NULL};
}

/* Describes the losses, which follow the gradients in the file. */
static void describe_losses(wf_safetensors_entry *e, const wf_check_batch *batch)
{
    static char loss[] = "loss", tokens[] = "token_losses";

    e[0] = (wf_safetensors_entry){.name = loss, .dtype = WF_ST_F32, .ndim = 1, .shape = {1}};
    e[1] = (wf_safetensors_entry){.name = tokens,
                                  .dtype = WF_ST_F32,
                                  .ndim = 2,
                                  .shape = {batch->sequences, batch->tokens}};
}

wf_status wf_check_reference_write(const wf_check_reference *r, const wf_check_batch *batch,
                                   const char *path, wf_error *error)
{
    wf_safetensors_entry *e = calloc((size_t)r->count + 2, sizeof *e);
    const char *const metadata[] = {"format", "pt"};
    const float loss = (float)r->loss;
    char *header = NULL;
    size_t bytes = 0;
    wf_output *out;

    if (!e)
        return wf_error_set(error, WF_ENOMEM, "no memory for a list of tensors");
    for (int64_t i = 0; i < r->count; i++) {
        wf_check_tensor *t = &r->tensor[i];

        e[i] = (wf_safetensors_entry){.name = t->name, .dtype = WF_ST_F32, .ndim = t->ndim};
        memcpy(e[i].shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    }
    describe_losses(e + r->count, batch);
    if (wf_safetensors_format(r->count + 2, e, 1, metadata, &header, &bytes, error) == WF_OK &&
        (out = wf_output_open(path, error))) {
        FILE *stream = wf_output_stream(out);

        fwrite(header, 1, bytes, stream);
        for (int64_t i = 0; i < r->count; i++)
            fwrite(r->tensor[i].reference, sizeof(float), (size_t)r->tensor[i].count, stream);
        fwrite(&loss, sizeof loss, 1, stream);
        fwrite(r->token_loss, sizeof(float), (size_t)(batch->sequences * batch->tokens),
               stream);
        wf_output_publish(out, error);
    }
    free(header);
    free(e);
    return error->code;
}
