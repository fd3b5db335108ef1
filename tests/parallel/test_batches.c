/*
 * tests/parallel/test_batches.c - batches of any fields, here an image of floats and a label,
 * and losses of any kind: per sequence, with one digest on every mesh, or a mean of the model's
 * own. Gradients are what differences of the loss say.
 * ctest: builds plain
 */
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/rows.h"

enum { BATCH = 8, SIDE = 4, CLASSES = 5, HIDDEN = 12, STEPS = 20 };

/* Two linear layers over an image, and a class. */
typedef struct classifier {
    wf_nn_module base;
    wf_nn_linear *first, *second;
    wf_nn_loss *loss;
} classifier;

static const wf_nn_field children[] = {
    {"first", WF_NN_CHILD, offsetof(classifier, first), 0},
    {"second", WF_NN_CHILD, offsetof(classifier, second), 0},
    {"loss", WF_NN_CHILD, offsetof(classifier, loss), 0},
    {NULL, 0, 0, 0},
};
static const wf_nn_type classifier_type = {
    "classifier", sizeof(classifier), children, NULL, NULL, NULL};

static classifier *new_classifier(wf_context *ctx)
{
    classifier *m = wf_nn_new(ctx, &classifier_type);

    if (m) {
        m->first =
            wf_nn_linear_new(ctx, &(wf_nn_linear_options){.in = wf_dim_width(SIDE * SIDE),
                                                          .out = wf_dim_chunked(HIDDEN),
                                                          .bias = true,
                                                          .gelu = true,
                                                          .deviation = 0.4f});
        m->second =
            wf_nn_linear_new(ctx, &(wf_nn_linear_options){.in = wf_dim_chunked(HIDDEN),
                                                          .out = wf_dim_chunked(CLASSES),
                                                          .bias = true,
                                                          .deviation = 0.4f});
        m->loss = wf_nn_loss_new(ctx);
        wf_nn_name_tree(&m->base);
    }
    return m;
}

/* [batch]: the loss of every image. */
static wf_tensor *per_image(wf_nn_module *model, const wf_par_batch *batch)
{
    const wf_dim flat[] = {wf_dim_batch(batch ? batch->tensor[0]->dim[0].size : 0),
                           wf_dim_width(SIDE * SIDE)};
    classifier *m = (classifier *)model;
    const char *outside = wf_nn_enter(m);
    wf_tensor *image = wf_par_batch_tensor(batch, "image"), *y;

    y = wf_tensor_view(image, 2, flat, image->layout);
    y = wf_nn_call(m->second, wf_nn_call(m->first, y));
    y = wf_nn_cross_entropy(m->loss, y, wf_par_batch_tensor(batch, "label"));
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

/* The mean over the micro-step, on every rank. */
static wf_tensor *mean_of_images(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *losses = per_image(model, batch);
    float n = losses ? (float)losses->dim[0].size : 1;

    return wf_scale(wf_redistribute(wf_sum(losses, 0), NULL), 1 / n);
}

/* The same, still a partial sum over ranks. */
static wf_tensor *partial_mean(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *losses = per_image(model, batch);
    float n = losses ? (float)losses->dim[0].size : 1;

    return wf_sum(wf_scale(losses, 1 / n), 0);
}

/* Images of step 1, whatever the step, if self is not NULL. */
static wf_status read_images(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    float *image = field[0];
    int32_t *label = field[1];

    (void)error;
    step = self ? 1 : step;
    for (int64_t i = 0; i < count; i++) {
        int64_t sequence = first + i;

        label[i] = (int32_t)((sequence + step) % CLASSES);
        for (int64_t e = 0; e < SIDE * SIDE; e++)
            image[i * SIDE * SIDE + e] =
                (float)((e * (label[i] + 2) + 3 * sequence) % 7) / 4 - 0.5f;
    }
    return WF_OK;
}

typedef struct image_run {
    training t;
    wf_status (*work)(struct image_run *r, part *p, wf_par_trainer *trainer);
} image_run;

static training image_training(void)
{
    training t = new_training(GPT2, HEADS, BATCH);
    const wf_par_field fields[] = {{"image", WF_F32, {wf_dim_width(SIDE), wf_dim_width(SIDE)}},
                                   {"label", WF_I32, {{0, 0, 0}}}};

    memset(t.options.field, 0, sizeof t.options.field);
    memcpy(t.options.field, fields, sizeof fields);
    t.options.loss = per_image;
    t.steps = STEPS;
    return t;
}

static wf_status image_part(part *p)
{
    image_run *r = p->arg;
    classifier *m = new_classifier(p->ctx);
    wf_par_trainer *trainer = NULL;
    wf_status status;
    part mine = *p;

    mine.model = m ? &m->base : NULL;
    if (m && wf_par_plan(p->par, &m->base, NULL) == WF_OK &&
        wf_par_materialize(p->par, &m->base) == WF_OK)
        trainer = wf_par_trainer_open(p->par, &m->base, &r->t.options);
    status = trainer ? r->work(r, &mine, trainer) : wf_context_status(p->ctx);
    wf_par_trainer_close(trainer);
    wf_nn_free(mine.model);
    return status;
}

static bool run_images(image_run *r)
{
    unsigned failed = CU_get_number_of_failures();

    run_parts((part_test){
        .options = r->t.layout, .config = &r->t.model, .body = image_part, .arg = r});
    return CU_get_number_of_failures() == failed;
}

static wf_status train_images(image_run *r, part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = read_images};
    wf_par_step result;

    for (int step = 1; step <= r->t.steps; step++) {
        GOOD(wf_par_train_step(trainer, step, &data, &result));
        if (p->rank->index == 0) {
            r->t.loss[step - 1] = result.loss;
            r->t.grad_norm[step - 1] = result.grad_norm;
        }
    }
    keep_digest(&r->t, p, trainer);
    if (p->rank->index == 0 && wf_par_inexact(p->par))
        snprintf(r->t.inexact, sizeof r->t.inexact, "%s", wf_par_inexact(p->par));
    return WF_OK;
}

static const row rows[] = {
    {"no_shard", .tp = 1, .dp = 1, .micro = 2},
    {"no_shard", .tp = 1, .dp = 4, .micro = 1},
    {"no_shard", .tp = 2, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED},
    {"full_shard", .tp = 1, .dp = 2, .micro = 2, .wrap_type = "linear", .prefetch = 1},
    {"full_shard", .tp = 1, .dp = 8, .wrap_type = "linear"},
    {"zero1", .tp = 1, .dp = 4, .micro = 2, .wrap_type = "linear"},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 1, .wrap_type = "linear"},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* A mean of one number per image. */
static void images_and_labels(void)
{
    image_run one = {image_training(), train_images};

    if (!run_images(&one))
        return;
    CU_ASSERT(one.t.loss[STEPS - 1] < one.t.loss[0]); /* it learns */
    for (int i = 0; i < ROWS; i++) {
        image_run r = {on_row(one.t, &rows[i]), train_images};

        if (run_images(&r))
            check_same(&r.t, &one.t);
    }
}

/* With sizes that are powers of two a mean of one's own over one micro-step has the bits of the
   trainer's; several micro-steps nearly, and the run says so. */
static void means_of_ones_own(void)
{
    static wf_par_loss_function *const losses[] = {mean_of_images, partial_mean};
    image_run one = {image_training(), train_images};

    if (!run_images(&one))
        return;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < ROWS; i++) {
            image_run r = {on_row(one.t, &rows[i]), train_images};

            r.t.options.loss = losses[l];
            r.t.options.micro_batch = 0;
            if (run_images(&r))
                check_same(&r.t, &one.t);
            r.t = on_row(r.t, &rows[i]);
            r.t.options.micro_batch = 1;
            if (r.t.layout.dp == BATCH || !run_images(&r))
                continue;
            CU_ASSERT_PTR_NOT_NULL(strstr(r.t.inexact, "a mean of its own over each of"));
            for (int step = 0; step < STEPS; step++)
                CU_ASSERT(fabsf(r.t.loss[step] - one.t.loss[step]) < 1e-4f);
        }
}

/* Stored as bf16 the losses, and what is summed of them, stay what ops compute in. */
static void means_under_bf16(void)
{
    image_run f32 = {image_training(), train_images};

    if (!run_images(&f32))
        return;
    for (int l = 0; l < 3; l++) {
        static wf_par_loss_function *const losses[] = {per_image, mean_of_images, partial_mean};
        image_run r = f32;

        r.t.layout.dp = 2;
        r.t.layout.dtype = r.t.layout.param_dtype = WF_BF16;
        r.t.options.loss = losses[l];
        if (run_images(&r))
            for (int step = 0; step < STEPS; step++)
                CU_ASSERT(fabsf(r.t.loss[step] - f32.t.loss[step]) < 0.1f);
    }
}

/* The loss with element e of a parameter (of the rank that holds it) moved by `by`. */
static wf_status loss_beside(part *p, wf_par_trainer *trainer, wf_tensor *t, int64_t e,
                             float by, float *loss)
{
    const wf_par_data data = {.read = read_images, .self = p};
    int64_t mine = -1;
    float before = 0;

    for (int64_t i = 0; i < wf_tensor_local_count(t); i++)
        if (whole_index(t, i) == e)
            mine = i;
    GOOD(wf_par_reshard_all(p->par, p->model));
    if (mine >= 0) {
        before = ((float *)t->data)[mine];
        ((float *)t->data)[mine] = before + by;
    }
    GOOD(wf_par_evaluate(trainer, 1, &data, NULL, loss));
    GOOD(wf_par_reshard_all(p->par, p->model));
    if (mine >= 0)
        ((float *)t->data)[mine] = before;
    return WF_OK;
}

static wf_status check_differences(part *p, wf_par_trainer *trainer, wf_nn_parameter *parameter)
{
    const wf_tensor *grad = wf_par_gradient(trainer, parameter);
    const float by = 1.0f / 64;
    wf_rank *rank = p->rank;
    double most = 0;

    NEED(grad && grad->ndim == parameter->tensor->ndim);
    for (int64_t e = 0; e < wf_tensor_count(grad); e += 3) {
        float above = 0, below = 0, numeric;

        GOOD(loss_beside(p, trainer, parameter->tensor, e, by, &above));
        GOOD(loss_beside(p, trainer, parameter->tensor, e, -by, &below));
        numeric = (above - below) / (2 * by);
        for (int64_t i = 0; i < wf_tensor_local_count(grad); i++)
            if (whole_index(grad, i) == e) {
                float g = ((const float *)grad->data)[i];

                NEED(fabsf(g - numeric) < 2e-3f);
                most = fmax(most, fabs((double)g));
            }
    }
    NEED(most > 0.01 || wf_tensor_local_count(grad) < wf_tensor_count(grad));
    return WF_OK;
}

static wf_status differences(image_run *r, part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = read_images, .self = p};
    const wf_par_train_state state = wf_par_trainer_state(trainer);

    (void)r;
    GOOD(wf_par_step_begin(trainer, 1));
    GOOD(wf_par_forward_backward(trainer, &data));
    GOOD(wf_par_reduce(trainer, NULL));
    for (int64_t i = 0; i < state.count; i++)
        GOOD(check_differences(p, trainer, state.parameter[i]));
    return WF_OK;
}

static void gradients_by_differences(void)
{
    static wf_par_loss_function *const losses[] = {per_image, mean_of_images, partial_mean};

    for (int i = 0; i < ROWS; i += 2)
        for (int l = 0; l < 3; l++) {
            image_run r = {on_row(image_training(), &rows[i]), differences};

            r.t.options.loss = losses[l];
            run_images(&r);
        }
}

/* Another number than the loss: twice it, per image and as a mean. */
static wf_tensor *twice(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_scale(per_image(model, batch), 2);
}

static wf_tensor *twice_the_mean(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_scale(mean_of_images(model, batch), 2);
}

static wf_status evaluate_metrics(image_run *r, part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = read_images};
    wf_rank *rank = p->rank;
    float loss, metric, mean;

    (void)r;
    GOOD(wf_par_evaluate(trainer, 3, &data, NULL, &loss));
    GOOD(wf_par_evaluate(trainer, 3, &data, twice, &metric));
    GOOD(wf_par_evaluate(trainer, 3, &data, twice_the_mean, &mean));
    NEED(loss > 0.5f && metric == 2 * loss && fabsf(mean - metric) < 1e-5f);
    return WF_OK;
}

static void metrics(void)
{
    for (int i = 0; i < ROWS; i += 3) {
        image_run r = {on_row(image_training(), &rows[i]), evaluate_metrics};

        run_images(&r);
    }
}

static wf_status one_step(image_run *r, part *p, wf_par_trainer *trainer)
{
    r->t.steps = 1;
    return train_images(r, p, trainer);
}

/* The error with these fields. */
static void refused_fields(const wf_par_field *field, int n, wf_status code, const char *words)
{
    image_run r = {image_training(), one_step};
    part_test test = {
        .options = r.t.layout, .config = &r.t.model, .body = image_part, .arg = &r};
    wf_launch_options launch = {.ranks = 1};
    wf_error error = {WF_OK, ""};

    memset(r.t.options.field, 0, sizeof r.t.options.field);
    for (int i = 0; i < n; i++)
        r.t.options.field[i] = field[i];
    wf_launch(&launch, part_rank, &test, &error);
    CU_ASSERT(says(&error, code, words, ""));
}

static void wrong_fields(void)
{
    const wf_par_field twins[] = {{"image", WF_F32, {wf_dim_width(4)}},
                                  {"image", WF_I32, {{0, 0, 0}}}};
    const wf_par_field dtype[] = {{"image", (wf_dtype)77, {wf_dim_width(4)}}};
    const wf_par_field negative[] = {{"image", WF_F32, {{-4, 1, 1}}}};

    refused_fields(twins, 2, WF_EINVAL, "two fields of a batch have the name image");
    refused_fields(dtype, 1, WF_EINVAL, "field image of a batch has dtype 77, which is none");
    refused_fields(negative, 1, WF_ESHAPE, "-4");
    refused_fields(NULL, 0, WF_EINVAL, "a batch has no fields to read data into");
}

int main(void)
{
    static const wf_test tests[] = {
        {"images and labels: one digest", images_and_labels},
        {"means of one's own", means_of_ones_own},
        {"means of what is stored as bf16", means_under_bf16},
        {"gradients are differences of the loss", gradients_by_differences},
        {"metrics", metrics},
        {"fields that are none", wrong_fields},
        {NULL, NULL},
    };

    return wf_test_main("batches", tests);
}
