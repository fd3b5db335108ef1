/*
 * diffusion.c - a small diffusion model that draws from a prompt (Ho et al. 2020; Peebles & Xie
 * 2023): convolutions in and out, self and cross attention, two experts that a gate mixes. It
 * has what a paper's recipe has beside AdamW and a cosine: an optimizer of its own with
 * parameter groups, a moving average of weights, warm-up, stable, decay, and a loss of balance
 * that a module inside adds. All of it holds on any mesh, with one digest:
 *
 *     diffusion
 *     diffusion --pp 2 --tp 2 --dp 2 --micro-batch-size 1 --save saved --log-jsonl run.jsonl
 *     diffusion --resume saved --dp 4 --steps 60
 *     diffusion --plan --pp 2 --tp 2 --dp 2 --micro-batch-size 1
 *
 * The picture of a prompt is a bar, a row or a column; the model sees it under noise and learns
 * to say which noise. What passes a border of stages is the picture's tokens and the prompt
 * that cross attention reads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { STEPS = 50, BATCH = 8, SIDE = 8, POSITIONS = SIDE * SIDE, WORDS = 4, VOCABULARY = 24 };
enum { WIDTH = 32, HEADS = 4, BLOCKS = 2, LEVELS = 100 };

/* ---- the data: functions of (step, sequence) ---- */

/* A prompt is: row or column, which one, how bright, and a word that says nothing. */
static float pixel_of(const int32_t *word, int y, int x)
{
    int at = word[0] ? x : y;

    return at == word[1] - 2 ? 0.25f * (float)(word[2] - 9) : -0.5f;
}

/* Fills the features of a level of noise: sines and cosines of it. */
static void level_features(int level, float *out)
{
    for (int i = 0; i < WIDTH / 2; i++) {
        float angle = (float)level * powf(0.001f, (float)i / (WIDTH / 2));

        out[i] = sinf(angle);
        out[WIDTH / 2 + i] = cosf(angle);
    }
}

static wf_status read_pictures(void *self, int64_t step, int64_t first, int64_t count,
                               void *const *field, wf_error *error)
{
    const uint64_t key = wf_random_key(7, WF_RANDOM_DATA);

    (void)self, (void)error;
    for (int64_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)(first + i) * 256;
        float *seen = (float *)field[0] + i * POSITIONS,
              *noise = (float *)field[1] + i * POSITIONS;
        int32_t *word = (int32_t *)field[2] + i * WORDS;
        int level = (int)wf_random_below(key, (uint64_t)step, at, LEVELS);
        float clear = cosf(1.5f * (float)level / LEVELS);

        word[0] = (int32_t)wf_random_below(key, (uint64_t)step, at + 1, 2);
        word[1] = 2 + (int32_t)wf_random_below(key, (uint64_t)step, at + 2, SIDE);
        word[2] = 10 + (int32_t)wf_random_below(key, (uint64_t)step, at + 3, 6);
        word[3] = 16 + (int32_t)wf_random_below(key, (uint64_t)step, at + 4, 8);
        level_features(level, (float *)field[3] + i * WIDTH);
        for (int p = 0; p < POSITIONS; p++) {
            uint64_t drawn =
                wf_random_below(key, (uint64_t)step, at + 8 + (uint64_t)p, 1 << 20);

            noise[p] = (float)drawn / (1 << 19) * 1.7320508f - 1.7320508f; /* variance 1 */
            seen[p] = clear * pixel_of(word, p / SIDE, p % SIDE) +
                      sqrtf(1 - clear * clear) * noise[p];
        }
    }
    return WF_OK;
}

/* ---- the model ---- */

/* y = g a(x) + (1 - g) b(x), the gate g a number per token. Where one expert gets more than the
   other in a picture, its balance is above 1/2. */
static wf_tensor *experts_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_tensor *gate = wf_sigmoid(wf_nn_run(self, "gate", x));
    wf_tensor *other = wf_add_constant(wf_neg(gate), 1);
    wf_tensor *mean = wf_mean(gate, 1), *rest = wf_mean(other, 1);

    wf_nn_add_loss(self, "balance", wf_add(wf_mul(mean, mean), wf_mul(rest, rest)), 0.01f);
    return wf_add(wf_mul(wf_nn_run(self, "a", x), gate),
                  wf_mul(wf_nn_run(self, "b", x), other));
}

static wf_nn_module *experts_new(wf_context *ctx)
{
    const wf_nn_linear_options gate = {
        .in = wf_dim_width(WIDTH), .out = wf_dim_width(1), .bias = true, .deviation = 0.1f};
    const wf_nn_mlp_options mlp = {.width = WIDTH};

    return wf_nn_module_new(ctx, "experts", experts_forward,
                            WF_CHILD("gate", wf_nn_linear_new(ctx, &gate)),
                            WF_CHILD("a", wf_nn_gelu_mlp_new(ctx, &mlp)),
                            WF_CHILD("b", wf_nn_gelu_mlp_new(ctx, &mlp)));
}

/* A block takes two tensors, so it is run by hand, from the model's chain. */
static wf_tensor *run_block(wf_nn_module *block, wf_tensor *x, wf_tensor *prompt)
{
    const char *outside = wf_nn_enter(block);
    wf_tensor *y;

    x = wf_add(x, wf_nn_run(block, "attn", wf_nn_run(block, "norm1", x)));
    y = wf_nn_run(block, "norm2", x);
    y = wf_nn_call_cross((wf_nn_cross_attention *)wf_nn_child(block, "cross"), y, prompt, NULL);
    x = wf_add(x, y);
    x = wf_add(x, wf_nn_run(block, "mlp", wf_nn_run(block, "norm3", x)));
    wf_nn_leave(block, outside, 1, &x);
    return x;
}

static wf_nn_module *block_new(wf_context *ctx)
{
    const wf_dim width = wf_dim_width(WIDTH);
    const wf_nn_attention_options self = {.width = WIDTH, .heads = HEADS, .deviation = 0.1f};
    const wf_nn_cross_attention_options cross = {
        .width = WIDTH, .heads = HEADS, .deviation = 0.1f};

    return wf_nn_module_new(ctx, "block", NULL,
                            WF_CHILD("norm1", wf_nn_layernorm_new(ctx, width, 1e-5f)),
                            WF_CHILD("attn", wf_nn_attention_new(ctx, &self)),
                            WF_CHILD("norm2", wf_nn_layernorm_new(ctx, width, 1e-5f)),
                            WF_CHILD("cross", wf_nn_cross_attention_new(ctx, &cross)),
                            WF_CHILD("norm3", wf_nn_layernorm_new(ctx, width, 1e-5f)),
                            WF_CHILD("mlp", experts_new(ctx)));
}

/* ---- its chain: stem, blocks, norm; x[0] the picture, x[1] the prompt, x[2] the level ---- */

static const char *const names[] = {"stem",   "position", "level", "words",
                                    "block0", "block1",   "norm",  "out"};

static int64_t chain_steps(const wf_nn_module *model)
{
    (void)model;
    return BLOCKS + 2;
}

static wf_nn_module *chain_module(const wf_nn_module *model, int64_t i, int k)
{
    int first = i == 0 ? 0 : (int)i + 3, n = i == 0 ? 4 : 1;

    return k < n ? wf_nn_child((wf_nn_module *)model, names[first + k]) : NULL;
}

/* Makes tokens of pixels by a convolution, and adds the level of noise to all of them. */
static int run_stem(wf_nn_module *model, wf_tensor **x)
{
    const wf_dim tokens[] = {wf_dim_batch(-1), wf_dim_chunked(POSITIONS), wf_dim_width(WIDTH)};
    wf_tensor *y = wf_gelu(wf_nn_run(model, "stem", x[0]));
    wf_tensor *level = wf_unsqueeze(wf_nn_run(model, "level", x[2]), 1);

    y = wf_nn_run(model, "position", wf_reshape(y, 3, tokens));
    x[0] = wf_add(y, level);
    x[1] = wf_nn_run(model, "words", x[1]);
    return 2;
}

static int chain_run(wf_nn_module *model, int64_t i, int n, wf_tensor **x)
{
    if (i == 0)
        return run_stem(model, x);
    if (i <= BLOCKS) {
        x[0] = run_block(chain_module(model, i, 0), x[0], x[1]);
        return n;
    }
    x[0] = wf_nn_run(model, "norm", x[0]);
    return 1;
}

static const wf_nn_chain chain = {chain_steps, chain_module, chain_run};

/* The squared error of every pixel's noise. */
static wf_tensor *head_loss(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    const wf_dim picture[] = {wf_dim_batch(-1), wf_dim_width(SIDE), wf_dim_width(SIDE),
                              wf_dim_width(WIDTH)};
    wf_tensor *y = wf_nn_run(model, "out", wf_reshape(x, 4, picture)), *error;

    error = wf_sub(y, wf_par_batch_tensor(batch, "noise"));
    return wf_mul(error, error);
}

static wf_tensor *whole_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    const char *outside = wf_nn_enter(model);
    wf_tensor *x[WF_NN_CARRIED], *loss = NULL;
    int n = wf_par_inputs(batch, "seen,prompt,level", x);

    if (wf_nn_chain_run(model, 0, chain_steps(model), n, x))
        loss = head_loss(model, x[0], batch);
    wf_nn_leave(model, outside, 1, &loss);
    return loss;
}

static const wf_par_rule rules[] =
    WF_RULES(WF_ATTENTION_RULES("*.attn"), WF_CROSS_ATTENTION_RULES("*.cross"),
             WF_GELU_MLP_RULES("*.mlp.a"), WF_GELU_MLP_RULES("*.mlp.b"));

static wf_nn_module *make(wf_par *par, void *arg)
{
    wf_context *ctx = wf_par_context(par);
    const wf_dim width = wf_dim_width(WIDTH);
    const wf_nn_conv_options stem = {.in = wf_dim_width(1),
                                     .out = width,
                                     .kernel = {3, 3},
                                     .how = {.padding = {1, 1}},
                                     .bias = true,
                                     .deviation = 0.3f},
                             out = {.in = width,
                                    .out = wf_dim_width(1),
                                    .kernel = {3, 3},
                                    .how = {.padding = {1, 1}},
                                    .bias = true,
                                    .deviation = 0.05f};
    const wf_nn_linear_options level = {
        .in = width, .out = width, .bias = true, .deviation = 0.1f};
    wf_nn_module *model = wf_nn_module_new(
        ctx, "diffusion", NULL, WF_CHILD("stem", wf_nn_conv2d_new(ctx, &stem)),
        WF_CHILD("position", wf_nn_position_new(ctx, POSITIONS, width, 0.1f)),
        WF_CHILD("level", wf_nn_linear_new(ctx, &level)),
        WF_CHILD("words", wf_nn_embedding_new(ctx, wf_dim_chunked(VOCABULARY), width, 0.5f)),
        WF_CHILD("block0", block_new(ctx)), WF_CHILD("block1", block_new(ctx)),
        WF_CHILD("norm", wf_nn_layernorm_new(ctx, width, 1e-5f)),
        WF_CHILD("out", wf_nn_conv2d_new(ctx, &out)));

    (void)arg;
    if (!model)
        return NULL;
    model->chain = &chain;
    wf_par_tensor(par, model, "tp", rules);
    wf_par_shard(par, model, "block0", "dp", NULL);
    wf_par_shard(par, model, "block1", "dp", NULL);
    return model;
}

/* ---- training ---- */

/* An optimizer of one's own: momentum, and the root of a mean of squares that only grows, as
   AMSGrad's without its correction. */
static void steady(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    for (int64_t i = 0; i < n; i++) {
        float square = u->beta2 * state[1][i] + (1 - u->beta2) * g[i] * g[i];

        state[0][i] = u->beta1 * state[0][i] + (1 - u->beta1) * g[i];
        state[1][i] = square > state[1][i] ? square : state[1][i];
        p[i] -= u->lr * (state[0][i] / (sqrtf(state[1][i]) + u->eps) + u->weight_decay * p[i]);
    }
}

static const wf_nn_method_row steady_row = {.name = "steady",
                                            .states = 2,
                                            .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2 |
                                                    WF_NN_USES_EPS,
                                            .elements = steady};

int main(int argc, char **argv)
{
    static const wf_par_pipeline_options stages = {.input = "seen,prompt,level",
                                                   .head_loss = head_loss};
    const wf_dim side = wf_dim_width(SIDE), one = wf_dim_width(1);
    wf_par_program p = {
        .about = "Trains a small diffusion model that draws bars.",
        .job = {.mesh = {.axes = WF_AXES({"pp", 1}, {"dp", 1}, {"tp", 1}), .seed = 1},
                .model = make,
                .name = "a diffusion model of 2 blocks",
                .pipeline = &stages,
                .steps = STEPS,
                .data = {.read = read_pictures},
                .train = {.global_batch = BATCH,
                          .field = {{"seen", WF_F32, {side, side, one}},
                                    {"noise", WF_F32, {side, side, one}},
                                    {"prompt", WF_I32, {wf_dim_chunked(WORDS)}},
                                    {"level", WF_F32, {wf_dim_width(WIDTH)}}},
                          .clip = 1,
                          .optimizer = {.beta1 = 0.9f,
                                        .beta2 = 0.99f,
                                        .eps = 1e-2f,
                                        .weight_decay = 0.01f,
                                        .ema = 0.9f,
                                        .groups = "out:lr=0.5; words:wd=0"},
                          .schedule = {.kind = WF_NN_WSD,
                                       .lr = 3e-3,
                                       .min_lr = 0,
                                       .warmup = 5,
                                       .steps = STEPS,
                                       .decay = 10},
                          .loss = whole_loss}}};

    p.job.train.optimizer.method = wf_nn_method_of(&steady_row);
    return wf_par_run(argc, argv, &p);
}
