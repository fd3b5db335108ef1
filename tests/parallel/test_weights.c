/*
 * tests/parallel/test_weights.c - a model of the user's own that computes its weights before it
 * uses them: a norm by rows under a mask, a low-rank product that is merged into a weight which
 * does not train, a bias that is scaled. After each comes a wf_redistribute to the layout that
 * it has, whose gradient sums over ranks before it flows through what made the weight. Trained
 * under every kind of strategy it has the digest of one rank.
 */
#include "nn/layers/embedding.h"
#include "nn/layers/loss.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/rows.h"

enum { BATCH = 8, OUT = 40, RANK = 4 };

typedef struct net {
    wf_nn_module base;
    wf_nn_embedding *embed;
    wf_nn_parameter *direction, *length, *bias, *fixed, *up, *down;
    wf_nn_loss *loss;
} net;

#define FIELD(name, kind)                                                                      \
    {                                                                                          \
#name, kind, offsetof(net, name), 0                                                    \
    }

static const wf_nn_field fields[] = {FIELD(embed, WF_NN_CHILD),
                                     FIELD(direction, WF_NN_PARAMETER),
                                     FIELD(length, WF_NN_PARAMETER),
                                     FIELD(bias, WF_NN_PARAMETER),
                                     FIELD(fixed, WF_NN_PARAMETER),
                                     FIELD(up, WF_NN_PARAMETER),
                                     FIELD(down, WF_NN_PARAMETER),
                                     FIELD(loss, WF_NN_CHILD),
                                     {NULL, 0, 0, 0}};

static const wf_nn_type net_type = {"net", sizeof(net), fields, NULL, NULL, NULL};

static net *new_net(wf_context *ctx)
{
    const wf_dim width = wf_dim_width(WIDTH), out = wf_dim_width(OUT);
    const wf_dim words = wf_dim_chunked(VOCABULARY), rank = wf_dim_width(RANK);
    net *m = wf_nn_new(ctx, &net_type);

    if (!m)
        return NULL;
    m->embed = wf_nn_embedding_new(ctx, words, width, 0.5f);
    m->direction = wf_nn_parameter_new(ctx, 2, (wf_dim[]){out, width}, true);
    m->length = wf_nn_parameter_new(ctx, 1, &out, false);
    m->bias = wf_nn_parameter_new(ctx, 1, &out, false);
    m->fixed = wf_nn_parameter_new(ctx, 2, (wf_dim[]){words, out}, true);
    m->up = wf_nn_parameter_new(ctx, 2, (wf_dim[]){words, rank}, true);
    m->down = wf_nn_parameter_new(ctx, 2, (wf_dim[]){out, rank}, true);
    m->loss = wf_nn_loss_new(ctx);
    wf_nn_init_normal(m->direction, 0, 1);
    wf_nn_init_fill(m->length, 0.3f);
    wf_nn_init_normal(m->bias, 0, 0.1f);
    wf_nn_init_normal(m->fixed, 0, 0.1f);
    wf_nn_init_normal(m->up, 0, 0.1f);
    wf_nn_init_normal(m->down, 0, 0.1f);
    return m;
}

/* Sums a gradient of which ranks have shares. */
static wf_tensor *border(wf_tensor *t)
{
    return t ? wf_redistribute(t, t->layout) : NULL;
}

static wf_tensor *ones(const net *m)
{
    wf_tensor *t = wf_tensor_new(m->base.ctx, WF_F32, 1, &m->direction->tensor->dim[1], NULL,
                                 WF_MEMORY_ACTIVATION);

    return t && wf_init_fill(t, 1) == WF_OK ? t : NULL;
}

/* Every third element of a matrix is kept out. */
static wf_tensor *mask(wf_tensor *like)
{
    wf_tensor *t = wf_tensor_like(like, WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((float *)t->data)[e] = whole_index(t, e) % 3 ? 0.7f : 0;
    return t;
}

static wf_tensor *normed(net *m)
{
    wf_tensor *v = wf_nn_use(m, m->direction), *length = wf_nn_use(m, m->length);
    wf_tensor *w = wf_mul(wf_rmsnorm(v, ones(m), 1e-3f), wf_token_expand(length, v));

    return border(w ? wf_mul(w, mask(w)) : NULL);
}

static wf_tensor *merged(net *m)
{
    wf_tensor *up = wf_nn_use(m, m->up), *down = wf_nn_use(m, m->down);

    return border(wf_add(wf_nn_use(m, m->fixed), wf_scale(wf_linear(up, down), 0.6f)));
}

static wf_tensor *loss_of_net(wf_nn_module *model, const wf_par_batch *batch)
{
    net *m = (net *)model;
    const char *outside = wf_nn_enter(m);
    wf_tensor *y = wf_nn_call(m->embed, wf_par_batch_tensor(batch, "tokens"));

    y = wf_linear(y, normed(m));
    y = wf_gelu(wf_bias_add(y, border(wf_scale(wf_nn_use(m, m->bias), 1.7f))));
    y = wf_nn_cross_entropy(m->loss, wf_linear(y, merged(m)),
                            wf_par_batch_tensor(batch, "targets"));
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

static wf_status run_net(part *p)
{
    const training *t = p->arg;
    net *m = new_net(p->ctx);
    wf_par_trainer *trainer = NULL;
    wf_status status;
    part mine = *p;

    mine.model = &m->base;
    if (m && wf_par_plan(p->par, &m->base, NULL) == WF_OK &&
        wf_par_materialize(p->par, &m->base) == WF_OK &&
        wf_nn_freeze(&m->base, "fixed") == WF_OK)
        trainer = wf_par_trainer_open(p->par, &m->base, &t->options);
    status = trainer ? train_steps(&mine, trainer) : wf_context_status(p->ctx);
    wf_par_trainer_close(trainer);
    if (m)
        wf_nn_free(&m->base);
    return status;
}

static bool train_net(training *t)
{
    unsigned failed = CU_get_number_of_failures();

    run_parts(
        (part_test){.options = t->layout, .config = &t->model, .body = run_net, .arg = t});
    return CU_get_number_of_failures() == failed;
}

static void trained(void)
{
    static const row rows[] = {{"no_shard", .tp = 1, .dp = 2},
                               {"no_shard", .tp = 1, .dp = 4, .accumulate = WF_PAR_REDUCED},
                               {"zero1", .tp = 1, .dp = 4},
                               {"shard_grad_op", .tp = 1, .dp = 2},
                               {"full_shard", .tp = 1, .dp = 4, .wrap_type = "embedding"},
                               {"full_shard", .tp = 1, .dp = 8},
                               {"hybrid_shard", .tp = 1, .dp = 4, .group = 2}};
    training one = new_training(GPT2, HEADS, BATCH);

    one.options.loss = loss_of_net;
    one.steps = 4;
    if (!train_net(&one))
        return;
    CU_ASSERT(one.loss[3] < one.loss[0]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        training t = on_row(one, &rows[i]);

        if (train_net(&t))
            check_same(&t, &one);
    }
}

/* The computed weights have the gradient of one micro-step after the other: other bits than
   those of one for all, which the run reports. */
static void several_micro_steps(void)
{
    static const row rows[] = {
        {"no_shard", .tp = 1, .dp = 1, .micro = 4},
        {"no_shard", .tp = 1, .dp = 2, .micro = 2},
        {"no_shard", .tp = 1, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED},
        {"full_shard", .tp = 1, .dp = 4, .micro = 1, .accumulate = WF_PAR_REDUCED}};
    training one = new_training(GPT2, HEADS, BATCH), steps;

    one.options.loss = loss_of_net;
    one.steps = 4;
    if (!train_net(&one))
        return;
    CU_ASSERT_STRING_EQUAL(one.inexact, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        training t = on_row(one, &rows[i]);

        if (!train_net(&t))
            continue;
        CU_ASSERT_NOT_EQUAL(t.digest, one.digest);
        CU_ASSERT_DOUBLE_EQUAL(t.loss[3], one.loss[3], 1e-4);
        CU_ASSERT(strstr(t.inexact, "not layout-exact: linear1 in net: operand 1, f32 [40,") !=
                  NULL);
        CU_ASSERT(strstr(t.inexact, "goes back through that in each of 2 micro-steps") != NULL);
        if (i == 0)
            steps = t; /* ranks that sum each micro-step have the same ones as one rank */
        else if (t.layout.accumulate == WF_PAR_REDUCED)
            CU_ASSERT_EQUAL(t.digest, steps.digest);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"trained under every kind of strategy", trained},
                                    {"in several micro-steps", several_micro_steps},
                                    {NULL, NULL}};

    return wf_test_main("weights", tests);
}
