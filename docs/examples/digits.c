/*
 * digits.c - a model that is no GPT: a small vision transformer that learns to read handwritten
 * digits, from batches of pixels (f32) and labels (i32), with the same digest on every mesh.
 * All flags but one are those of wf_par_run:
 *
 *     digits --data digits.txt --dp 2 --tp 2
 *     digits --data digits.txt --dp 4 --redundancy buddy --elastic on       continues when
 *                                                                           ranks are lost
 *
 * An image of 8 x 8 pixels is 16 patches of 2 x 2; the patches are tokens, attention is not
 * causal, and the mean over all tokens is what the classes are read from (Dosovitskiy et al.
 * 2021).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { STEPS = 400, BATCH = 64, IMAGES = 1797, TESTED = 448, TRAINED = IMAGES - TESTED };
enum { PATCHES = 16, PIXELS = 4, WIDTH = 64, HEADS = 4, CLASSES = 10 };

static float pixel[IMAGES][PATCHES][PIXELS];
static int32_t label[IMAGES];

static const char *file_name = "digits.txt";
static const wf_flag flags[] = {
    {"data", WF_FLAG_TEXT, &file_name, 0, 0, NULL, NULL, "FILE images, a line each"},
    {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};

/* ---- the data ---- */

/* Reads all images; every fourth is kept for the test, after those that are trained on. */
static wf_status read_images(wf_par_program *program, wf_error *error)
{
    FILE *file = fopen(file_name, "r");
    char line[256];
    int n = 0;

    (void)program;

    while (file && n < IMAGES && fgets(line, sizeof line, file)) {
        int at = n % 4 == 3 && n / 4 < TESTED
                     ? TRAINED + n / 4
                     : n - ((n + 1) / 4 < TESTED ? (n + 1) / 4 : TESTED);

        if (*line == '#' || strlen(line) < 66)
            continue;
        for (int i = 0; i < 64; i++) {
            int y = i / 8, x = i % 8, c = line[i];

            pixel[at][y / 2 * 4 + x / 2][y % 2 * 2 + x % 2] =
                (float)(c <= '9' ? c - '0' : c - 'a' + 10) / 16;
        }
        label[at] = line[65] - '0';
        n++;
    }
    if (file)
        fclose(file);
    return n == IMAGES ? WF_OK
                       : wf_error_set(error, WF_EIO, "--data %s has %d images, not %d",
                                      file_name, n, IMAGES);
}

/* Images of the first part, drawn at random. */
static wf_status read_batch(void *self, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    uint64_t key = wf_random_key(1, WF_RANDOM_DATA);

    (void)self;
    (void)error;
    for (int64_t i = 0; i < count; i++) {
        uint64_t at = wf_random_below(key, (uint64_t)step, (uint64_t)(first + i), TRAINED);

        memcpy((float *)field[0] + i * PATCHES * PIXELS, pixel[at], sizeof pixel[at]);
        ((int32_t *)field[1])[i] = label[at];
    }
    return WF_OK;
}

/* ---- the model ---- */

static wf_tensor *block_forward(wf_nn_module *self, wf_tensor *x)
{
    x = wf_add(x, wf_nn_run(self, "attn", wf_nn_run(self, "norm1", x)));
    return wf_add(x, wf_nn_run(self, "mlp", wf_nn_run(self, "norm2", x)));
}

static wf_tensor *vit_forward(wf_nn_module *self, wf_tensor *image)
{
    wf_tensor *x = wf_nn_run(self, "position", wf_nn_run(self, "patch", image));

    x = wf_nn_run(self, "norm", wf_nn_run(self, "block1", wf_nn_run(self, "block0", x)));
    return wf_nn_run(self, "head", wf_mean(x, 1));
}

static wf_nn_module *block_new(wf_context *ctx)
{
    wf_dim width = wf_dim_width(WIDTH);

    return wf_nn_module_new(
        ctx, "block", block_forward, WF_CHILD("norm1", wf_nn_layernorm_new(ctx, width, 1e-5f)),
        WF_CHILD("attn", wf_nn_attention_new(
                             ctx, &(wf_nn_attention_options){.width = WIDTH, .heads = HEADS})),
        WF_CHILD("norm2", wf_nn_layernorm_new(ctx, width, 1e-5f)),
        WF_CHILD("mlp", wf_nn_gelu_mlp_new(ctx, &(wf_nn_mlp_options){.width = WIDTH})));
}

static wf_nn_module *vit_new(wf_context *ctx)
{
    wf_dim width = wf_dim_width(WIDTH);
    const wf_nn_linear_options patch = {
        .in = wf_dim_width(PIXELS), .out = width, .deviation = 0.3f};
    const wf_nn_linear_options head = {
        .in = width, .out = wf_dim_width(CLASSES), .deviation = 0.1f};
    wf_nn_module *vit = wf_nn_module_new(
        ctx, "vit", vit_forward, WF_CHILD("patch", wf_nn_linear_new(ctx, &patch)),
        WF_CHILD("position", wf_nn_position_new(ctx, PATCHES, width, 0.1f)),
        WF_CHILD("block0", block_new(ctx)), WF_CHILD("block1", block_new(ctx)),
        WF_CHILD("norm", wf_nn_layernorm_new(ctx, width, 1e-5f)),
        WF_CHILD("head", wf_nn_linear_new(ctx, &head)));

    return wf_nn_module_new(ctx, "classifier", NULL, WF_CHILD("vit", vit),
                            WF_CHILD("loss", wf_nn_loss_new(ctx)));
}

static wf_tensor *image_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *logits = wf_nn_run(model, "vit", wf_par_batch_tensor(batch, "image"));

    return wf_nn_cross_entropy((wf_nn_loss *)wf_nn_child(model, "loss"), logits,
                               wf_par_batch_tensor(batch, "label"));
}

/* Makes the model, split over tp, its blocks sharded over dp. */
static wf_nn_module *make(wf_par *par, void *arg)
{
    static const wf_par_rule rules[] =
        WF_RULES(WF_ATTENTION_RULES("vit.*.attn"), WF_GELU_MLP_RULES("vit.*.mlp"));
    wf_nn_module *model = vit_new(wf_par_context(par));

    (void)arg;
    if (model) {
        wf_par_tensor(par, model, "tp", rules);
        wf_par_shard(par, model, "vit.block0", "dp", NULL);
        wf_par_shard(par, model, "vit.block1", "dp", NULL);
    }
    return model;
}

/* ---- training ---- */

/* Prints the share of the test images that are read right; every rank computes its part. */
static wf_status print_accuracy(wf_par_running *rank, void *arg)
{
    const wf_dim dims[] = {wf_dim_batch(TESTED), wf_dim_chunked(PATCHES), wf_dim_width(PIXELS)};
    wf_context *ctx = wf_par_context(rank->par);
    wf_host_data view;
    const float *logit;
    int right = 0;

    (void)arg;
    wf_scope_open(ctx);
    logit = wf_data_read(wf_whole(wf_nn_run(rank->model, "vit",
                                            wf_distribute(ctx, pixel[TRAINED], WF_F32, 3, dims,
                                                          wf_par_batch_layout(rank->par)))),
                         &view);
    for (int i = 0; logit && i < TESTED; i++) {
        int best = 0;

        for (int c = 1; c < CLASSES; c++)
            if (logit[i * CLASSES + c] > logit[i * CLASSES + best])
                best = c;
        right += best == label[TRAINED + i];
    }
    wf_data_close(&view);
    wf_scope_close(ctx);
    if (logit && wf_context_rank(ctx) == 0)
        printf("%.1f %% of %d images right\n", 100.0 * right / TESTED, TESTED);
    return wf_context_status(ctx);
}

int main(int argc, char **argv)
{
    wf_par_program p = {
        .flags = flags,
        .about = "Trains a small vision transformer on handwritten digits.",
        .prepare = read_images,
        .job = {
            .mesh = {.axes = WF_AXES({"dp", 1}, {"tp", 1}), .seed = 1},
            .model = make,
            .steps = STEPS,
            .data = {.read = read_batch},
            .after = print_accuracy,
            .train = {
                .global_batch = BATCH,
                .field = {{"image", WF_F32, {wf_dim_chunked(PATCHES), wf_dim_width(PIXELS)}},
                          {"label", WF_I32, {{0, 0, 0}}}},
                .clip = 1,
                .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f,
                              .weight_decay = 0.1f},
                .schedule = {.lr = 3e-3, .min_lr = 1e-4, .warmup = 20, .steps = STEPS},
                .loss = image_loss}}};

    return wf_par_run(argc, argv, &p);
}
