/*
 * tests/parallel/test_missing_border.c - a border that a style lacks, and a sum over the batch
 * in a loss function: the error names the op that left a partial sum, its module and point, and
 * what to add, not the reader alone.
 */
#include "core/tape.h"
#include "kernels/ops.h"
#include "nn/children.h"
#include "nn/layers/norm.h"
#include "parallel/shard/materialize.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/parallel_harness.h"

enum { FEATURES = 4, HIDDEN = 8 };

static const wf_nn_gpt_config tiny = {WF_NN_GPT2, .vocabulary = 17, .positions = 8, .layers = 1,
                                      .heads = 2, .kv_heads = 2,    .width = 4,     .ffn = 8};

/* y = x U^T D^T; the one with a point "in" passes it. */
static wf_tensor *pass_in(wf_nn_module *self, wf_tensor *x)
{
    x = wf_linear(wf_nn_at(self, "in", x), wf_nn_weight(self, "up"));
    return wf_nn_at(self, "sum", wf_linear(x, wf_nn_weight(self, "down")));
}

static wf_tensor *pass_no_in(wf_nn_module *self, wf_tensor *x)
{
    x = wf_linear(x, wf_nn_weight(self, "up"));
    return wf_nn_at(self, "sum", wf_linear(x, wf_nn_weight(self, "down")));
}

static wf_nn_module *feed_new(wf_context *ctx, wf_nn_forward *forward)
{
    wf_dim width = wf_dim_width(FEATURES), hidden = wf_dim_chunked(HIDDEN);
    wf_nn_parameter *up = wf_nn_parameter_new(ctx, 2, (wf_dim[]){hidden, width}, true);
    wf_nn_parameter *down = wf_nn_parameter_new(ctx, 2, (wf_dim[]){width, hidden}, true);
    wf_nn_module *made;

    wf_nn_init_normal(up, 0, 0.1f);
    wf_nn_init_normal(down, 0, 0.1f);
    made = wf_nn_module_new(ctx, "feed", forward, WF_PARAMETER("up", up),
                            WF_PARAMETER("down", down));
    wf_nn_points(made, forward == pass_in ? "in sum" : "sum");
    return made;
}

/* The residual stream and the split module read what `first` made. */
static wf_tensor *model_forward(wf_nn_module *self, wf_tensor *x)
{
    x = wf_nn_run(self, "first", x);
    return wf_add(x, wf_nn_run(self, "feed", x));
}

/* The split module reads what a norm made, and nothing else does. */
static wf_tensor *chain_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_nn_run(self, "feed", wf_nn_run(self, "norm", wf_nn_run(self, "first", x)));
}

/* A sum of partial sums is taken by hand, and the other one is none. */
static wf_tensor *sum_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_tensor *sum = wf_tensor_retain(wf_nn_run(self, "feed", x));

    wf_partial_add(&sum, x);
    wf_tensor_release(sum);
    return NULL;
}

static const wf_par_split splits[] = {{"up", 0}, {"down", 1}, {NULL, 0}};
static const wf_par_style without = {.name = "without",
                                     .splits = splits,
                                     .borders =
                                         (const wf_par_border[]){{"sum", WF_PAR_WHOLE, 0, 0},
                                                                 {NULL, 0, 0, 0}}},
                          with = {.name = "with",
                                  .splits = splits,
                                  .borders =
                                      (const wf_par_border[]){{"in", WF_PAR_WHOLE, 0, 0},
                                                              {"sum", WF_PAR_WHOLE, 0, 0},
                                                              {NULL, 0, 0, 0}}},
                          unsummed = {.name = "unsummed",
                                      .splits = splits,
                                      .borders = (const wf_par_border[]){
                                          {"in", WF_PAR_WHOLE, 0, 0}, {NULL, 0, 0, 0}}};

typedef struct trial {
    wf_nn_forward *model, *feed;
    const wf_par_style *style;
    bool evaluates;
} trial;

static wf_status go(part *p, trial how)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_width(FEATURES)};
    const wf_nn_linear_options first = {
        .in = wf_dim_width(FEATURES), .out = wf_dim_width(FEATURES), .deviation = 0.1f};
    const wf_par_rule rules[] = {{"feed", how.style}, {NULL, NULL}};
    wf_nn_module *m = wf_nn_module_new(
        p->ctx, "model", how.model, WF_CHILD("first", wf_nn_linear_new(p->ctx, &first)),
        WF_CHILD("norm", wf_nn_rmsnorm_new(p->ctx, wf_dim_width(FEATURES), 1e-5f)),
        WF_CHILD("feed", feed_new(p->ctx, how.feed)));
    wf_tape *tape = NULL;
    wf_tensor *x, *y, *seed;

    if (wf_par_plan(p->par, m, rules) == WF_OK && wf_par_materialize(p->par, m) == WF_OK) {
        wf_scope_open(p->ctx);
        tape = how.evaluates ? NULL : wf_tape_open(p->ctx);
        x = wf_tensor_new(p->ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
        seed = wf_tensor_new(p->ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
        for (int i = 0; x && seed && i < 2 * FEATURES; i++)
            ((float *)x->data)[i] = ((float *)seed->data)[i] = 1;
        y = wf_nn_call(m, x);
        if (y)
            wf_backward(y, seed, false);
        wf_tape_close(tape);
        wf_scope_close(p->ctx);
    }
    wf_nn_free(m);
    return wf_context_status(p->ctx);
}

static wf_status of_readers(part *p)
{
    const trial pass = {model_forward, pass_in, &without, false};
    wf_rank *rank = p->rank;

    go(p, pass);
    GOOD(refused(
        rank, p->ctx, NULL, WF_ELAYOUT,
        "from what module feed reads after its point in. Each use needs a border of "
        "the same layout: give the style of module feed (wf_par_rule) a border {\"in\", "
        "WF_PAR_WHOLE}, as style column has"));
    go(p, pass);
    GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT, "from what module model reads, and "));
    go(p, (trial){model_forward, pass_no_in, &without, false});
    GOOD(
        refused(rank, p->ctx, NULL, WF_ELAYOUT,
                "let module feed pass the tensor through a point before it reads it (wf_nn_at, "
                "wf_nn_points)"));
    return go(p, (trial){model_forward, pass_in, &with, false});
}

/* The reader is the first that cannot take a partial sum, and begins the text. */
static wf_status of_origins(part *p)
{
    static const char sum[] =
        "linear1 in module feed, before its point \"sum\", left it partial: give the style of "
        "module feed (wf_par_rule) a border {\"sum\", WF_PAR_WHOLE}";
    wf_rank *rank = p->rank;

    for (int evaluates = 0; evaluates < 2; evaluates++) {
        go(p, (trial){model_forward, pass_in, &unsummed, evaluates});
        GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT, "in model: add "));
        go(p, (trial){model_forward, pass_in, &unsummed, evaluates});
        GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT, sum));
    }
    go(p, (trial){sum_forward, pass_in, &unsummed, false});
    GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT, sum));
    go(p, (trial){chain_forward, pass_in, &without, false});
    GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT,
                 "the gradient of linear1 in module feed, after its point \"in\", left it "
                 "partial: give the style of module feed (wf_par_rule) a border {\"in\", "
                 "WF_PAR_WHOLE}, as style column has"));
    go(p, (trial){chain_forward, pass_no_in, &without, false});
    GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT,
                 "the gradient of linear1 in module feed left it partial: let module feed pass "
                 "the tensor through a point before it reads it"));
    return go(p, (trial){chain_forward, pass_in, &with, false});
}

static void borders_are_named(void)
{
    run_parts(
        (part_test){.options = {.tp = 2, .seed = 3}, .config = &tiny, .body = of_readers});
    run_parts(
        (part_test){.options = {.tp = 2, .seed = 3}, .config = &tiny, .body = of_origins});
}

static wf_tensor *mean_of_batch(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_mean(wf_mean(wf_par_gpt_loss(model, batch), 1), 0);
}

static wf_status mean_refused(part *p, wf_par_trainer *t)
{
    static const char *const words[] = {"in the loss function: scale (",
                                        "sum in the loss function left it partial: it is a sum "
                                        "over the batch, which ranks have "
                                        "split: return a loss per sequence, [batch, ..]"};
    const wf_par_data data = {.read = count_up};
    wf_rank *rank = p->rank;

    for (int i = 0; i < 2; i++) {
        (void)wf_par_train_step(t, 1, &data, NULL);
        GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT, words[i]));
        (void)wf_par_evaluate(t, 1, &data, mean_of_batch, NULL);
        GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT, words[i]));
    }
    return WF_OK;
}

static wf_status mean_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, mean_refused, NULL);
}

static void a_mean_over_the_batch(void)
{
    training t = new_training(LLAMA, 3, 4);

    t.layout.dp = 2;
    t.options.loss = mean_of_batch;
    run_ranks(2, mean_rank, &t);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a border that is missing", borders_are_named},
        {"a mean over the batch in a loss function", a_mean_over_the_batch},
        {NULL, NULL}};

    return wf_test_main("missing_border", tests);
}
