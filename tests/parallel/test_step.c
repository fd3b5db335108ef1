/*
 * tests/parallel/test_step.c - what a training step is made of, against its definition:
 * evaluation without dropout, the factor of clipping, the uses of a parameter that has several.
 */
#include "parallel/shard/gradient_reduce_internal.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/parallel_harness.h"

/* Evaluated, trained for a step, and evaluated. */
typedef struct losses {
    float before, trained, after;
} losses;

static wf_status evaluate_and_train(part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = count_up};
    wf_rank *rank = p->rank;
    losses mine = {0, 0, 0}, *out = p->arg;
    wf_par_step result;

    GOOD(wf_par_evaluate(trainer, 2, &data, NULL, &mine.before));
    NEED(wf_context_is_training(p->ctx));
    GOOD(wf_par_train_step(trainer, 1, &data, &result));
    mine.trained = result.loss;
    GOOD(wf_par_evaluate(trainer, 2, &data, NULL, &mine.after));
    if (rank->index == 0)
        *out = mine;
    return WF_OK;
}

typedef struct trial {
    training t;
    losses out;
} trial;

static wf_status trial_rank(wf_rank *rank, void *arg)
{
    trial *t = arg;

    return on_trainer(rank, &t->t, evaluate_and_train, &t->out);
}

/* A model with dropout is evaluated as the same model without, and trained as another one. */
static void evaluation_drops_nothing(void)
{
    for (int dp = 1; dp <= 2; dp++) {
        trial with = {.t = new_training(GPT2, HEADS, 4)}, without;

        with.t.layout.dp = dp;
        with.t.options.schedule = (wf_nn_schedule){0}; /* one set of parameters for all of it */
        with.t.options.schedule.steps = 1;
        without = with;
        with.t.model.dropout = 0.3f;
        run_ranks(dp, trial_rank, &with);
        run_ranks(dp, trial_rank, &without);
        CU_ASSERT(same_bits(with.out.before, without.out.before));
        CU_ASSERT(same_bits(with.out.after, without.out.after));
        CU_ASSERT(same_bits(with.out.after, with.out.before));
        CU_ASSERT(with.out.before > 1 && !same_bits(with.out.trained, without.out.trained));
    }
}

/* An SGD step of rate 1 makes of parameters that were zero: minus the clipped gradient. */
enum { MOST = 4096 };

typedef struct zeros {
    int64_t n;
    float x[MOST];
} zeros;

static wf_status keep_zeros(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    static bool zero[64];
    zeros *z = t->arg;
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);

    (void)par;
    NEED(count <= 64);
    for (int64_t i = 0; i < count; i++) {
        const float *x = p[i]->tensor->data;
        int64_t n = wf_tensor_count(p[i]->tensor);

        if (step == 0) {
            zero[i] = true;
            for (int64_t e = 0; e < n; e++)
                zero[i] = zero[i] && x[e] == 0;
        } else if (zero[i] && z->n + n <= MOST) {
            memcpy(z->x + z->n, x, (size_t)n * sizeof *x);
            z->n += n;
        }
    }
    free(p);
    return WF_OK;
}

/* torch.nn.utils.clip_grad_norm_: clip / (norm + 1e-6), to the bit. */
static void clipping(void)
{
    static const float clips[] = {0, 0.5f, 0.03125f, 100};
    static zeros z[4];

    for (int i = 0; i < 4; i++) {
        training t = new_training(GPT2, HEADS, 4);
        double scale;

        t.options.clip = clips[i];
        t.options.optimizer = (wf_nn_optimizer_options){.method = WF_NN_SGD};
        t.options.schedule = (wf_nn_schedule){.lr = 1, .min_lr = 1, .steps = 1};
        t.watch = keep_zeros;
        t.arg = &z[i];
        if (!train(&t))
            return;
        scale = clips[i] > 0 ? (double)clips[i] / (t.grad_norm[0] + 1e-6) : 1;
        CU_ASSERT(i == 1 || i == 2 ? scale < 1 : scale >= 1);
        scale = scale < 1 ? scale : 1;
        CU_ASSERT(z[i].n > 100 && z[i].n == z[0].n);
        for (int64_t e = 0; e < z[i].n; e++)
            CU_ASSERT(z[i].x[e] == (float)scale * z[0].x[e]);
    }
}

/* A module that uses one vector three times, behind tokens that tp splits. */
enum { BATCH = 4, FEATURES = 24, USES = 3 };

typedef struct thrice {
    wf_nn_module base;
    wf_nn_parameter *bias;
} thrice;

static const wf_nn_field fields[] = {{"bias", WF_NN_PARAMETER, offsetof(thrice, bias), 0},
                                     {NULL, 0, 0, 0}};
static const wf_nn_type thrice_type = {"thrice", sizeof(thrice), fields, NULL, NULL, NULL};

static wf_tensor *waves(part *p, int id)
{
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS),
                           wf_dim_chunked(FEATURES)};
    wf_mesh *mesh = wf_mesh_of(p->ctx);
    wf_tensor *t = wf_tensor_new(p->ctx, WF_F32, 3, dims,
                                 wf_layout_split(mesh, NULL, 1, wf_mesh_axis(mesh, "tp")),
                                 WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((float *)t->data)[e] = number(0, id, whole_index(t, e)) / 1e5F;
    return t;
}

/* The gradients of three uses, of every micro-step; what they come to by definition. */
static wf_status run_thrice(part *p, thrice *m, float right[FEATURES], bool *order_shows)
{
    wf_rank *rank = p->rank;
    wf_tape *tape = wf_tape_open(p->ctx);
    wf_tensor *y = waves(p, 1), *sum[USES];

    y = wf_gelu(wf_bias_add(y, wf_nn_use(m, m->bias)));
    for (int u = 1; u < USES; u++)
        y = wf_bias_gelu(y, wf_nn_use(m, m->bias));
    GOOD(wf_backward(y, waves(p, 2), false));
    wf_tape_close(tape);
    NEED(wf_nn_leaves_of(m->bias, NULL)->uses == USES);
    for (int u = 0; u < USES; u++) {
        const wf_tensor *grad = wf_nn_leaves_of(m->bias, NULL)->use[u]->grad;

        NEED(grad && grad->ndim == 2);
        NEED(p->par->options.tp == 1 || wf_layout_is_partial(grad->layout, -1));
        sum[u] = wf_batch_sum(wf_whole(wf_nn_leaves_of(m->bias, NULL)->use[u]->grad));
        NEED(sum[u]);
    }
    for (int i = 0; i < FEATURES; i++) {
        float a = ((const float *)sum[0]->data)[i], b = ((const float *)sum[1]->data)[i];
        float c = ((const float *)sum[2]->data)[i];

        right[i] = (a + b) + c;
        *order_shows |= right[i] != a + (b + c) && right[i] != (a + c) + b;
    }
    return WF_OK;
}

static float on_one_rank[FEATURES];

static wf_status three_uses(part *p)
{
    const wf_dim dim = wf_dim_chunked(FEATURES);
    wf_rank *rank = p->rank;
    thrice *m = wf_nn_new(p->ctx, &thrice_type);
    wf_par_gradients *g = NULL;
    wf_tensor *grad = NULL;
    float right[FEATURES];
    bool order_shows = false, good;

    NEED(m);
    m->bias = wf_nn_parameter_new(p->ctx, 1, &dim, false);
    wf_nn_init_uniform(m->bias, -1, 1);
    wf_par_plan(p->par, &m->base, NULL);
    wf_par_materialize(p->par, &m->base);
    GOOD(wf_context_status(p->ctx));
    g = wf_par_gradients_open(p->par, 0, 1, &m->bias);
    wf_par_gradients_micro(g, NULL, 0, 1, 0);
    GOOD(run_thrice(p, m, right, &order_shows));
    GOOD(wf_par_gradients_micro_end(g));
    GOOD(wf_par_gradients_finish(g, &grad));
    NEED(grad && wf_tensor_local_count(grad) == FEATURES && order_shows);
    if (p->par->options.tp == 1)
        memcpy(on_one_rank, right, sizeof right);
    good = memcmp(grad->data, right, sizeof right) == 0 &&
           memcmp(on_one_rank, right, sizeof right) == 0;
    wf_tensor_release(grad);
    wf_par_gradients_close(g);
    wf_nn_free(&m->base);
    NEED(good);
    return WF_OK;
}

/* Added in the order of use, each summed over tp and over sequences before. */
static void uses_of_a_parameter(void)
{
    const training t = new_training(LLAMA, 3, BATCH);

    for (int tp = 1; tp <= 4; tp *= 2)
        run_parts((part_test){
            .options = {.tp = tp, .dp = 1, .seed = 3}, .config = &t.model, .body = three_uses});
}

int main(void)
{
    static const wf_test tests[] = {{"evaluation drops nothing", evaluation_drops_nothing},
                                    {"clipping", clipping},
                                    {"uses of a parameter", uses_of_a_parameter},
                                    {NULL, NULL}};

    return wf_test_main("step", tests);
}
