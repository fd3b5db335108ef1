/* parallel/check/run.c - a check from its files to its report. */
#include "parallel/check/source_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct check {
    const wf_check_options *o;
    wf_check_report *report;
    wf_check_batch batch;
    wf_check_reference reference;
    wf_check_files files, updated;
    float *token_losses; /* theirs, or NULL */
    int64_t wide;        /* numbers in a row of them */
    wf_check_numbers numbers;
    wf_error error;
} check;

static wf_status find_losses(check *c)
{
    int64_t file;
    const wf_safetensors_entry *e = wf_check_files_find(&c->files, "loss", &file);
    float *loss = NULL;
    char text[96];

    if (e && wf_check_entry_count(e) != 1)
        return wf_error_set(&c->error, WF_EDATA, "%s: \"loss\" is %s, and has to be one number",
                            c->files.path, wf_check_shape(e->ndim, e->shape, text));
    if (e && wf_check_files_floats(&c->files, e, file, &loss, &c->error) != WF_OK)
        return c->error.code;
    c->report->has_loss = loss != NULL;
    c->report->their_loss = loss ? (double)*loss : 0;
    free(loss);
    e = wf_check_files_find(&c->files, "token_losses", &file);
    if (!e)
        return WF_OK;
    c->wide = e->ndim == 2 ? e->shape[1] : 0;
    if (e->ndim != 2 || e->shape[0] != c->batch.sequences ||
        (c->wide != c->batch.tokens && c->wide != c->batch.tokens - 1))
        return wf_error_set(
            &c->error, WF_EDATA,
            "%s: \"token_losses\" is %s, and the batch has %lld sequences of %lld "
            "tokens",
            c->files.path, wf_check_shape(e->ndim, e->shape, text),
            (long long)c->batch.sequences, (long long)c->batch.tokens);
    c->report->has_token_losses = true;
    return wf_check_files_floats(&c->files, e, file, &c->token_losses, &c->error);
}

/* The entry of a name, or of the one that a model without its head gives. */
static const wf_safetensors_entry *find(const wf_check_source *s, wf_check_files *files,
                                        const char *name, int64_t *file)
{
    const size_t n = strlen(s->family->base);
    const wf_safetensors_entry *e = wf_check_files_find(files, name, file);

    return e || strncmp(name, s->family->base, n) != 0
               ? e
               : wf_check_files_find(files, name + n, file);
}

static wf_status check_form(check *c, const wf_check_files *files,
                            const wf_safetensors_entry *e, const wf_check_tensor *t)
{
    bool same = e->ndim == t->ndim, transposed = e->ndim == 2 && t->ndim == 2;
    char theirs[96], ours[96];

    for (int d = 0; same && d < t->ndim; d++)
        same = e->shape[d] == t->shape[d];
    transposed = transposed && e->shape[0] == t->shape[1] && e->shape[1] == t->shape[0];
    if (same)
        return WF_OK;
    return wf_error_set(&c->error, WF_EDATA, "%s: \"%s\" is %s, and the model's is %s%s",
                        files->path, e->name, wf_check_shape(e->ndim, e->shape, theirs),
                        wf_check_shape(t->ndim, t->shape, ours),
                        transposed ? ": it is transposed" : "");
}

/* Reads a tensor for each of the model's, or *missing counts it. */
static wf_status read_tensors(check *c, const wf_check_source *s, wf_check_files *files,
                              bool updated)
{
    const char *missing = NULL;
    int64_t absent = 0, file;

    for (int64_t i = 0; i < c->reference.count && c->error.code == WF_OK; i++) {
        wf_check_tensor *t = &c->reference.tensor[i];
        const wf_safetensors_entry *e = find(s, files, t->name, &file);

        if (!e) {
            missing = absent++ ? missing : t->name;
            continue;
        }
        if (check_form(c, files, e, t) == WF_OK)
            wf_check_files_floats(files, e, file, updated ? &t->updated : &t->theirs,
                                  &c->error);
        t->rounding = e->dtype == WF_ST_BF16 ? 4e-3 : e->dtype == WF_ST_F16 ? 5e-4 : 1.2e-7;
    }
    if (c->reference.tied) /* a second name of the table */
        wf_check_files_find(files, "lm_head.weight", &file);
    if (c->error.code == WF_OK && absent == c->reference.count)
        return wf_error_set(&c->error, WF_EDATA,
                            "%s has no tensor of the model: \"%s\" and the "
                            "others are missing",
                            files->path, missing);
    if (c->error.code == WF_OK && absent && !c->o->partial)
        return wf_error_set(&c->error, WF_EDATA,
                            "%s has no tensor \"%s\"%s: .partial leaves out what is missing",
                            files->path, missing,
                            absent > 1 ? ", nor others of the model" : "");
    missing = wf_check_files_unused(files);
    if (c->error.code == WF_OK && missing)
        return wf_error_set(&c->error, WF_EDATA,
                            "%s: \"%s\" is no parameter of the model, nor \"loss\" or "
                            "\"token_losses\"",
                            files->path, missing);
    return c->error.code;
}

/* Floors of errors, by the mean square of all gradients; and the clip of Weft's. */
static void scale_reference(check *c)
{
    wf_check_reference *r = &c->reference;
    double sum = 0, count = 0, theirs = 0, scale;

    for (int64_t i = 0; i < r->count; i++) {
        const wf_check_tensor *t = &r->tensor[i];
        const double g = wf_check_norm(t->reference, t->count);
        const double x = t->theirs ? wf_check_norm(t->theirs, t->count) : 0;

        sum += g * g;
        theirs += x * x;
        count += (double)t->count;
    }
    c->report->norm = c->numbers.norm = sqrt(sum);
    c->report->their_norm = sqrt(theirs);
    scale = c->o->clip > 0 && sqrt(sum) > c->o->clip ? c->o->clip / (sqrt(sum) + 1e-6) : 1;
    for (int64_t i = 0; i < r->count; i++) {
        wf_check_tensor *t = &r->tensor[i];

        t->floor = 0.02 * scale * sqrt(sum / count) * sqrt((double)t->count);
        for (int64_t k = 0; scale < 1 && k < t->count; k++) {
            t->reference[k] = (float)((double)t->reference[k] * scale);
            if (t->head)
                t->head[k] = (float)((double)t->head[k] * scale);
        }
    }
}

/* Returns true where the gradients as they are now are theirs, but for a factor of all. */
static bool explains(const check *c, double *factor)
{
    const double tolerance = 2 * c->o->tolerance;
    double xg = 0, gg = 0;

    for (int64_t i = 0; i < c->reference.count; i++) {
        const wf_check_tensor *t = &c->reference.tensor[i];
        wf_check_sums s = {0, 0, 0};

        if (t->theirs)
            s = wf_check_sum(t->theirs, t->reference, t->count);
        xg += s.xg;
        gg += s.gg;
    }
    *factor = gg > 0 ? xg / gg : 0;
    for (int64_t i = 0; i < c->reference.count; i++) {
        const wf_check_tensor *t = &c->reference.tensor[i];

        if (t->theirs &&
            !(wf_check_distance(t->theirs, t->reference, *factor, t->count) <=
              tolerance * fabs(*factor) * (wf_check_norm(t->reference, t->count) + t->floor)))
            return false;
    }
    return *factor > 0;
}

static void mark_explained(check *c, const wf_check_finding *f)
{
    for (int64_t i = 0; i < c->reference.count; i++) {
        wf_check_fit *fit = &c->reference.tensor[i].fit;

        if (fit->kind == WF_CHECK_EQUAL || fit->kind == WF_CHECK_MISSING)
            continue;
        fit->kind = WF_CHECK_EXPLAINED;
        snprintf(fit->text, sizeof fit->text, "%s", f->id);
    }
}

static const char *const reading_text[][3] = {
    {"", "", ""},
    {"labels-unshifted", "each token predicts itself", "labels are not shifted by one"},
    {"labels-shifted-twice", "each token predicts the one after the next",
     "labels are shifted by the data, and once more by the model"},
    {"mask-ignored", "labels of -100, or tokens that the mask leaves out, count",
     "the loss mask does not reach the loss"},
    {"documents-ignored", "tokens see the documents before theirs",
     "packed sequences without the documents' bounds in attention (position_ids or "
     "cu_seqlens)"}};

static bool try_readings(check *c, wf_check_source *s)
{
    double factor;
    wf_check_finding *f;
    char name[96];

    for (int k = 1; k < WF_CHECK_READINGS && c->error.code == WF_OK; k++) {
        const wf_check_reading reading = (wf_check_reading)k;

        if (!wf_check_reading_differs(&c->batch, reading) ||
            wf_check_reference_compute(s, &c->reference, &c->batch, reading, NULL, &c->error) !=
                WF_OK ||
            !explains(c, &factor))
            continue;
        f = wf_check_add(c->report, reading_text[k][0], &c->error);
        if (!f)
            return false;
        wf_check_factor_name(factor, &c->numbers, name);
        snprintf(f->what, sizeof f->what, "%s: so read, Weft's gradients are theirs%s%s",
                 reading_text[k][1], *name ? ", times " : "", name);
        snprintf(f->cause, sizeof f->cause, "%s", reading_text[k][2]);
        snprintf(f->where, sizeof f->where, "all parameters");
        f->count = c->reference.count;
        mark_explained(c, f);
        return true;
    }
    return false;
}

static bool try_sequences(check *c, wf_check_source *s)
{
    double *weight = calloc((size_t)c->batch.sequences, sizeof *weight), factor;
    wf_check_finding *f = NULL;

    if (weight && wf_check_fit_sequences(&c->reference, &c->batch, c->o->tolerance, weight) &&
        wf_check_reference_compute(s, &c->reference, &c->batch, WF_CHECK_RIGHT, weight,
                                   &c->error) == WF_OK &&
        explains(c, &factor) && (f = wf_check_add(c->report, "", &c->error))) {
        wf_check_name_sequences(&c->reference, &c->batch, weight, c->o->tolerance, f);
        snprintf(f->where, sizeof f->where, "all parameters");
        f->count = c->reference.count;
        mark_explained(c, f);
    }
    free(weight);
    return f != NULL;
}

static bool some_kind(const check *c, wf_check_kind kind)
{
    for (int64_t i = 0; i < c->reference.count; i++)
        if (c->reference.tensor[i].fit.kind == kind)
            return true;
    return false;
}

/* Explains all at once by a fault of the batch; else parameters by themselves. */
static wf_status diagnose(check *c, wf_check_source *s)
{
    const wf_check_report *p = c->report;
    bool whole = false;

    for (int64_t i = 0; i < c->reference.count;
         i++) /* nothing is rounded after another forward pass */
        if (c->reference.tensor[i].fit.kind == WF_CHECK_ROUNDED &&
            (p->token_losses_wrong || (p->has_loss && !p->loss_equal)))
            c->reference.tensor[i].fit.kind = WF_CHECK_UNKNOWN;
    if (some_kind(c, WF_CHECK_UNKNOWN) && !some_kind(c, WF_CHECK_NOT_FINITE)) {
        whole = try_sequences(c, s) || try_readings(c, s);
        if (!whole && c->error.code == WF_OK &&
            wf_check_reference_compute(s, &c->reference, &c->batch, WF_CHECK_RIGHT, NULL,
                                       &c->error) == WF_OK)
            scale_reference(c);
    }
    return whole || c->error.code != WF_OK
               ? c->error.code
               : wf_check_explain(c->report, &c->reference, &c->numbers, &c->error);
}

static wf_status compare(check *c, wf_check_source *s)
{
    wf_check_reference *r = &c->reference;

    if (wf_check_files_open(&c->files, c->o->gradients, &c->error) != WF_OK ||
        find_losses(c) != WF_OK || read_tensors(c, s, &c->files, false) != WF_OK)
        return c->error.code;
    if (c->o->updated && (wf_check_files_open(&c->updated, c->o->updated, &c->error) != WF_OK ||
                          read_tensors(c, s, &c->updated, true) != WF_OK))
        return c->error.code;
    scale_reference(c);
    if (wf_check_explain_loss(c->report, r, &c->batch, c->token_losses, c->wide, &c->numbers,
                              &c->error) != WF_OK ||
        wf_check_explain_choices(c->report, r, &c->error) != WF_OK)
        return c->error.code;
    for (int64_t i = 0; i < r->count; i++) {
        wf_check_tensor *t = &r->tensor[i];

        t->fit.kind = WF_CHECK_MISSING;
        if (t->theirs)
            wf_check_compare(t, c->o->tolerance);
    }
    for (int64_t i = 0; i < r->count; i++)
        if (r->tensor[i].fit.kind == WF_CHECK_UNKNOWN ||
            r->tensor[i].fit.kind == WF_CHECK_NOT_FINITE)
            wf_check_find_fit(&r->tensor[i], r, c->o->tolerance);
    if (diagnose(c, s) == WF_OK && c->o->updated)
        wf_check_updates(c->report, r, c->o, &c->error);
    return c->error.code;
}

static wf_status fill_rows(check *c)
{
    const wf_check_reference *r = &c->reference;
    wf_check_report *p = c->report;

    p->row = calloc((size_t)r->count + 1, sizeof *p->row);
    p->equal = !p->findings;
    for (int64_t i = 0; p->row && i < r->count; i++) {
        const wf_check_tensor *t = &r->tensor[i];
        wf_check_row *row = &p->row[p->rows];

        *row = (wf_check_row){.name = strdup(t->name),
                              .ndim = t->ndim,
                              .missing = !t->theirs,
                              .equal = t->fit.kind == WF_CHECK_EQUAL || !t->theirs,
                              .explained = t->fit.kind == WF_CHECK_EXPLAINED,
                              .error = t->error,
                              .cosine = t->cosine,
                              .ratio = t->ratio,
                              .update = t->updated ? t->update : -1,
                              .update_equal = t->update_fit.other == 0};
        memcpy(row->shape, t->shape, (size_t)(t->ndim < 4 ? t->ndim : 4) * sizeof *row->shape);
        memcpy(row->text, t->fit.text, sizeof row->text);
        p->equal = p->equal && row->equal;
        if (!row->name)
            break;
        p->rows++;
    }
    return p->rows == r->count ? WF_OK
                               : wf_error_set(&c->error, WF_ENOMEM, "no memory for a report");
}

/* A wf_check_with_model's work. */
static wf_status work(wf_check_source *s, void *arg)
{
    check *c = arg;
    wf_check_report *p = c->report;
    const wf_check_sizes sizes = wf_check_source_sizes(s);

    if (wf_check_batch_read(c->o->batch, &sizes, &c->batch, &c->error) == WF_OK &&
        wf_check_reference_open(s, &c->reference, &c->error) == WF_OK &&
        wf_check_reference_compute(s, &c->reference, &c->batch, WF_CHECK_RIGHT, NULL,
                                   &c->error) == WF_OK) {
        const wf_check_options *o = c->o;

        p->sequences = c->batch.sequences;
        p->tokens = c->batch.tokens;
        p->counted = c->reference.counted;
        p->loss = c->reference.loss;
        p->tolerance = o->tolerance;
        c->numbers = (wf_check_numbers){
            o->tp,        o->dp,     o->micro_batches, p->counted, p->sequences * p->tokens,
            p->sequences, p->tokens, o->tolerance,     o->clip,    0};
        if (o->write)
            wf_check_reference_write(&c->reference, &c->batch, o->write, &c->error);
        if (c->error.code == WF_OK && o->gradients && compare(c, s) == WF_OK)
            fill_rows(c);
        p->equal = o->gradients ? p->equal : true;
    }
    wf_check_source_close(s);
    return c->error.code;
}

wf_status wf_check_run(const wf_check_options *options, wf_check_report *report,
                       wf_error *error)
{
    check c = {.o = options, .report = report};
    wf_error launch = {WF_OK, ""};

    *report = (wf_check_report){.equal = false};
    wf_check_with_model(options, work, &c, &launch);
    *error = c.error.code != WF_OK ? c.error : launch;
    wf_check_files_close(&c.files);
    wf_check_files_close(&c.updated);
    wf_check_batch_free(&c.batch);
    wf_check_reference_free(&c.reference);
    free(c.token_losses);
    return error->code;
}

void wf_check_free(wf_check_report *report)
{
    for (int64_t i = 0; i < report->rows; i++)
        free(report->row[i].name);
    free(report->row);
    free(report->finding);
    *report = (wf_check_report){.equal = false};
}
