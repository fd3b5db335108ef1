/*
 * tests/parallel/test_missing_border.c - a module that is split without a border where it
 * reads, beside another reader of the same tensor: the error names both, the point and what to
 * add.
 */
#include "kernels/ops.h"
#include "nn/children.h"
#include "parallel/shard/materialize.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/part.h"

enum { WIDTH = 4, HIDDEN = 8 };

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
    wf_dim width = wf_dim_width(WIDTH), hidden = wf_dim_chunked(HIDDEN);
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
                                                              {NULL, 0, 0, 0}}};

static wf_status go(part *p, wf_nn_forward *forward, const wf_par_style *style)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_width(WIDTH)};
    const wf_nn_linear_options first = {
        .in = wf_dim_width(WIDTH), .out = wf_dim_width(WIDTH), .deviation = 0.1f};
    const wf_par_rule rules[] = {{"feed", style}, {NULL, NULL}};
    wf_nn_module *m = wf_nn_module_new(p->ctx, "model", model_forward,
                                       WF_CHILD("first", wf_nn_linear_new(p->ctx, &first)),
                                       WF_CHILD("feed", feed_new(p->ctx, forward)));
    wf_tape *tape = NULL;
    wf_tensor *x, *y, *seed;

    if (wf_par_plan(p->par, m, rules) == WF_OK && wf_par_materialize(p->par, m) == WF_OK) {
        wf_scope_open(p->ctx);
        tape = wf_tape_open(p->ctx);
        x = wf_tensor_new(p->ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
        seed = wf_tensor_new(p->ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
        for (int i = 0; x && seed && i < 2 * WIDTH; i++)
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

static wf_status named(part *p)
{
    wf_rank *rank = p->rank;

    go(p, pass_in, &without);
    GOOD(refused(
        rank, p->ctx, NULL, WF_ELAYOUT,
        "from what module feed reads after its point in. Each use needs a border of "
        "the same layout: give the style of module feed (wf_par_rule) a border {\"in\", "
        "WF_PAR_WHOLE}, as style column has"));
    go(p, pass_in, &without);
    GOOD(refused(rank, p->ctx, NULL, WF_ELAYOUT, "from what module model reads, and "));
    go(p, pass_no_in, &without);
    GOOD(
        refused(rank, p->ctx, NULL, WF_ELAYOUT,
                "let module feed pass the tensor through a point before it reads it (wf_nn_at, "
                "wf_nn_points)"));
    return go(p, pass_in, &with);
}

static void borders_are_named(void)
{
    run_parts((part_test){.options = {.tp = 2, .seed = 3}, .config = &tiny, .body = named});
}

int main(void)
{
    static const wf_test tests[] = {{"a border that is missing", borders_are_named},
                                    {NULL, NULL}};

    return wf_test_main("missing_border", tests);
}
