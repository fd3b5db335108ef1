/*
 * digits.c - a model that is no GPT: a small vision transformer that learns to read handwritten digits,
 * from batches of pixels (f32) and labels (i32), on three meshes with one digest.
 *
 * An image of 8 x 8 pixels is 16 patches of 2 x 2; the patches are tokens, attention is not causal, and
 * the mean over all tokens is what the classes are read from (Dosovitskiy et al. 2021).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { STEPS = 400, BATCH = 64, IMAGES = 1797, TESTED = 448, TRAINED = IMAGES - TESTED };
enum { PATCHES = 16, PIXELS = 4, WIDTH = 64, HEADS = 4, CLASSES = 10 };

static float pixel[IMAGES][PATCHES][PIXELS];
static int32_t label[IMAGES];

typedef struct run {
    const char *name;
    wf_par_options options;
    uint64_t digest;
    double accuracy;
} run;

/* ---- the data ---- */

/* Every fourth image is kept for the test, behind those that are trained. Returns how many there are. */
static int read_images(const char *name)
{
    FILE *file = fopen(name, "r");
    char line[256];
    int n = 0;

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
    return n;
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
    const wf_nn_linear_options patch = {wf_dim_width(PIXELS), width, false, false, 0.3f};
    const wf_nn_linear_options head = {width, wf_dim_width(CLASSES), false, false, 0.1f};
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

static const wf_par_rule rules[] =
    WF_RULES(WF_ATTENTION_RULES("vit.*.attn"), WF_GELU_MLP_RULES("vit.*.mlp"));

/* ---- training ---- */

/* The share of the images behind the trained ones that are read right; every rank computes its part. */
static double accuracy(wf_par *par, wf_nn_module *model)
{
    const wf_dim dims[] = {wf_dim_batch(TESTED), wf_dim_chunked(PATCHES), wf_dim_width(PIXELS)};
    wf_context *ctx = wf_par_context(par);
    wf_host_data view;
    const float *logit;
    int right = 0;

    wf_scope_open(ctx);
    logit = wf_data_read(wf_whole(wf_nn_run(model, "vit",
                                            wf_distribute(ctx, pixel[TRAINED], WF_F32, 3, dims,
                                                          wf_par_batch_layout(par)))),
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
    return (double)right / TESTED;
}

static wf_status train(wf_par *par, void *arg)
{
    run *r = arg;
    const wf_par_train_options options = {
        .global_batch = BATCH,
        .field = {{"image", WF_F32, {wf_dim_chunked(PATCHES), wf_dim_width(PIXELS)}},
                  {"label", WF_I32, {{0, 0, 0}}}},
        .clip = 1,
        .optimizer = {WF_NN_ADAMW, 0.9f, 0.99f, 1e-8f, 0.1f},
        .schedule = {.lr = 3e-3, .min_lr = 1e-4, .warmup = 20, .steps = STEPS},
        .loss = image_loss};
    const wf_par_data data = {.read = read_batch};
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = vit_new(ctx);
    wf_par_trainer *trainer;
    wf_par_step step;
    uint64_t digest = 0;
    double right = 0;

    wf_par_tensor(par, model, "tp", rules);
    wf_par_shard(par, model, "vit.block0", "dp", NULL);
    wf_par_shard(par, model, "vit.block1", "dp", NULL);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &options);
    for (int i = 1; i <= STEPS && wf_context_status(ctx) == WF_OK; i++)
        wf_par_train_step(trainer, i, &data, &step);
    if (wf_context_status(ctx) == WF_OK) {
        wf_par_trainer_digest(trainer, &digest);
        right = accuracy(par, model);
    }
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    if (wf_context_rank(ctx) == 0) {
        r->digest = digest;
        r->accuracy = right;
    }
    return wf_context_status(ctx);
}

int main(int argc, char **argv)
{
    run runs[] = {
        {.name = "dp 1 x tp 1", .options = {.axes = WF_AXES({"dp", 1}, {"tp", 1}), .seed = 1}},
        {.name = "dp 2 x tp 2", .options = {.axes = WF_AXES({"dp", 2}, {"tp", 2}), .seed = 1}},
        {.name = "dp 1 x tp 4", .options = {.axes = WF_AXES({"dp", 1}, {"tp", 4}), .seed = 1}}};
    bool good = true;

    if (argc != 2 || read_images(argv[1]) != IMAGES) {
        fprintf(stderr, "usage: %s digits.txt\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        int status = wf_par_main(1, argv, &runs[i].options, train, &runs[i]);

        if (status != 0)
            return status;
        good = good && runs[i].digest == runs[0].digest && runs[i].accuracy > 0.95;
        printf("%s: %.1f %% of %d images right, digest %016llx\n", runs[i].name,
               100 * runs[i].accuracy, TESTED, (unsigned long long)runs[i].digest);
    }
    return good ? 0 : 1;
}
