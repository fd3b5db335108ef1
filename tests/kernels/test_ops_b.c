/* tests/kernels/test_ops_b.c - rope and cross-entropy: the checks of op_harness.h, and what is
 * theirs alone. */
#include "kernels/attention_cached.h"
#include "kernels/attention_part.h"
#include "tests/kernels/op_harness.h"

static void apply_rope(wf_tensor *const *in, wf_tensor **out)
{
    wf_rope_scaling warm = {WF_ROPE_TEMPERATURE, .factor = 0.7, .original_positions = 3};

    out[0] = wf_rope(in[0], &(wf_rope_options){.base = 10000}, false);
    out[1] = wf_rope(in[0], &(wf_rope_options){.base = 500}, true);
    out[2] = wf_rope(in[0], &(wf_rope_options){.base = 1, .scaling = warm}, true);
    warm.factor = 0.2; /* another table of the same angles */
    out[3] = wf_rope(in[0], &(wf_rope_options){.base = 1, .scaling = warm}, false);
}

static void rope(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 1, .n_out = 4, .apply = apply_rope};
    c->in[0] = op_heads(s, s->heads);
}

/* By the length of texts; a head of one pair has no frequency between. */
static wf_rope_options dynamic(const wf_tensor *x, double length)
{
    return (wf_rope_options){.base = 500,
                             .scaling = {.kind = x->dim[3].size > 2 ? WF_ROPE_DYNAMIC : 0,
                                         .factor = 3,
                                         .length = length,
                                         .original_positions = 2}};
}

static void apply_rope_scaled(wf_tensor *const *in, wf_tensor **out)
{
    const wf_rope_options here = dynamic(in[0], 0), longer = dynamic(in[0], 100);
    const wf_rope_scaling llama3 = {.kind = WF_ROPE_LLAMA3,
                                    .factor = 8,
                                    .low_freq_factor = 1,
                                    .high_freq_factor = 4,
                                    .original_positions = 16};
    const wf_rope_scaling yarn = {.kind = WF_ROPE_YARN, .factor = 4, .original_positions = 40};

    out[0] = wf_rope(in[0], &(wf_rope_options){.base = 500, .scaling = llama3}, false);
    out[1] = wf_rope(in[0], &(wf_rope_options){.base = 500, .scaling = yarn}, true);
    out[2] = wf_rope(in[0], &here, false);
    out[3] = wf_rope(in[0], &longer, true);
}

static void rope_scaled(op_case *c, const op_shape *s)
{
    rope(c, s);
    c->n_out = 4;
    c->apply = apply_rope_scaled;
}

/* Half of the features turn, as in a long text, as in a short one, and at places of either. */
static void apply_rope_long(wf_tensor *const *in, wf_tensor **out)
{
    static wf_rope_factors factors[WF_ROPE_PAIRS + 1];
    const int64_t pairs = (in[0]->dim[3].size + 2) / 4;
    wf_rope_factors *f = &factors[pairs];
    wf_rope_options o = {
        .base = 500,
        .scaling = {.kind = WF_ROPE_LONG, .factor = 4, .original_positions = 2},
        .features = (int32_t)(2 * pairs),
        .factors = f};

    f->count = pairs;
    for (int64_t i = 0; i < pairs; i++) {
        f->short_factor[i] = 1 + 0.1F * (float)i;
        f->long_factor[i] = 2 + (float)i;
    }
    out[0] = wf_rope(in[0], &o, false);
    o.scaling.original_positions = 1e6;
    o.scaling.attention_factor = 1.2;
    out[1] = wf_rope(in[0], &o, true);
}

static void rope_long(op_case *c, const op_shape *s)
{
    rope(c, s);
    c->n_out = 2;
    c->apply = apply_rope_long;
}

/* Neighbours are pairs: of all features, and of all but the last two, there and back. */
static void apply_rope_neighbours(wf_tensor *const *in, wf_tensor **out)
{
    wf_rope_options o = {.base = 500, .neighbours = true};

    out[0] = wf_rope(in[0], &o, false);
    o.features = in[0]->dim[3].size > 2 ? (int32_t)in[0]->dim[3].size - 2 : 0;
    out[1] = wf_rope(in[0], &o, true);
}

static void rope_neighbours(op_case *c, const op_shape *s)
{
    rope(c, s);
    c->n_out = 2;
    c->apply = apply_rope_neighbours;
}

/* More pairs than are turned at a time: as those of halves, in another order. */
static void many_neighbours(void)
{
    enum { TOKENS = 3, PAIRS = 70, DIM = 2 * PAIRS };
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(TOKENS), wf_dim_heads(1, 1),
                           wf_dim_width(DIM)};
    const wf_rope_options halves = {.base = 500}, pairs = {.base = 500, .neighbours = true};
    wf_context *ctx = op_context_open(1);
    wf_tensor *x[2], *y[2];

    wf_scope_open(ctx);
    for (int k = 0; k < 2; k++) {
        x[k] = wf_tensor_new(ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);
        CU_ASSERT_PTR_NOT_NULL_FATAL(x[k]);
        for (int i = 0; i < TOKENS * DIM; i++) {
            int of = i % DIM, at = k ? of : of % PAIRS * 2 + of / PAIRS;

            ((float *)x[k]->data)[i] = (float)(i / DIM * DIM + at) / 100;
        }
        y[k] = wf_rope(x[k], k ? &pairs : &halves, false);
        CU_ASSERT_PTR_NOT_NULL_FATAL(y[k]);
    }
    for (int i = 0; i < TOKENS * DIM; i++) {
        int of = i % DIM, at = i - of + of % 2 * PAIRS + of / 2;

        CU_ASSERT_EQUAL(((float *)y[1]->data)[i], ((float *)y[0]->data)[at]);
    }
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

static void apply_rope_at(wf_tensor *const *in, wf_tensor **out)
{
    const wf_rope_options options = {.base = 500,
                                     .scaling = {.kind = WF_ROPE_LLAMA3,
                                                 .factor = 8,
                                                 .low_freq_factor = 1,
                                                 .high_freq_factor = 4,
                                                 .original_positions = 16}};
    const wf_rope_options own = dynamic(in[0], 0), some = dynamic(in[0], 4);

    out[0] = wf_rope_at(in[0], in[1], &options, false);
    out[1] = wf_rope_at(in[0], in[1], &own, true);
    out[2] = wf_rope_at(in[0], in[1], &some, false);
}

static void rope_at(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 2, .n_out = 3, .apply = apply_rope_at};
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = op_token_ids(s);
}

/* Fewer keys than queries, at the tokens' places and at places of their own. */
static void apply_rope_pair(wf_tensor *const *in, wf_tensor **out)
{
    const wf_rope_options options = {.base = 500};

    wf_rope_pair(in[0], in[1], NULL, &options, false, out);
    wf_rope_pair(in[0], in[1], in[2], &options, true, out + 2);
}

static void rope_pair(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 4, .apply = apply_rope_pair};
    c->in[0] = op_heads(s, s->heads);
    c->in[1] = op_heads(s, s->groups);
    c->in[2] = op_token_ids(s);
}

/* One of the two is not used. */
static void keys_alone(op_case *c, const op_shape *s)
{
    rope_pair(c, s);
    c->constant[0] = c->constant[3] = true;
}

static void apply_logit_max(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_logit_max(in[0]);
}

static void logit_max(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 1, .n_out = 1, .constant = {true}, .apply = apply_logit_max};
    c->in[0] = op_activations(s, wf_dim_chunked(s->vocabulary));
    c->in[0].wanted = false;
}

static void apply_logit_sum(wf_tensor *const *in, wf_tensor **out)
{
    wf_logit_sum(in[0], in[1], in[2], 0, &out[0], &out[1]);
}

/* The maximum is any number here: to differences it is a constant, as it is to gradients. */
static void logit_sum(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 2, .apply = apply_logit_sum};
    c->in[0] = op_activations(s, wf_dim_chunked(s->vocabulary));
    c->in[1] = op_per_token(s);
    c->in[1].wanted = false;
    c->in[2] = op_token_ids(s);
}

static void apply_smooth_sum(wf_tensor *const *in, wf_tensor **out)
{
    wf_logit_sum(in[0], in[1], in[2], 0.25f, &out[0], &out[1]);
}

static void logit_sum_smooth(op_case *c, const op_shape *s)
{
    logit_sum(c, s);
    c->apply = apply_smooth_sum;
}

static void logit_sum_alone(op_case *c, const op_shape *s)
{
    logit_sum(c, s);
    c->constant[1] = true;
}

static void picked_alone(op_case *c, const op_shape *s)
{
    logit_sum(c, s);
    c->constant[0] = true;
}

static void apply_cross_entropy(wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_cross_entropy(in[0], in[1], in[2]);
}

static void cross_entropy(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 1, .apply = apply_cross_entropy};
    c->in[0] = c->in[1] = c->in[2] = op_per_token(s);
    c->in[0].low = 1;
    c->in[0].high = 50;
    c->in[2].wanted = false;
}

static void apply_loss(wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *max = wf_logit_max(in[0]), *sum, *picked;

    wf_logit_sum(in[0], max, in[1], 0, &sum, &picked);
    out[0] = wf_cross_entropy(sum, picked, max);
}

/* All of it, where the maximum does depend on the logits, and cancels out. Logits that lie far
   apart would leave a loss of nothing but rounding. */
static void loss(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 2, .n_out = 1, .apply = apply_loss};
    c->in[0] = op_activations(s, wf_dim_chunked(s->vocabulary));
    c->in[0].low = -3;
    c->in[0].high = 3;
    c->in[1] = op_token_ids(s);
}

/* The gradient of the logits, and the losses. */
static void apply_logit_loss(wf_tensor *const *in, wf_tensor **out)
{
    static const float smoothing = 0.25f;
    wf_call call = {.op = wf_op_find("logit_loss"),
                    .n_in = 3,
                    .in = {in[0], in[1], in[2]},
                    .n_out = 2,
                    .attr = &smoothing,
                    .attr_size = sizeof smoothing};

    wf_dispatch(&call);
    out[0] = call.out[0];
    out[1] = call.out[1];
}

static void logit_loss(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 2, .constant = {true, true}, .apply = apply_logit_loss};
    c->in[0] = op_unwanted(op_activations(s, wf_dim_chunked(s->vocabulary)));
    c->in[1] = op_token_ids(s);
    c->in[2] = op_unwanted(op_per_token(s));
}

/* All tokens are a part, too. */
static void apply_attention_part(wf_tensor *const *in, wf_tensor **out)
{
    const wf_attention_options o = {.causal = true, .dropout = 0.3F, .site = 2, .window = 9};
    const wf_attention_time now = wf_attention_time_now(in[0]->ctx);
    wf_tensor *lse, *y = wf_attention_part(in[0], in[1], in[2], &o, &now, &lse);

    wf_attention_part_grad(&(wf_attention_operands){in[0], in[1], in[2], y, lse, in[3]}, in[0],
                           &o, &now, out);
    out[3] = y;
}

static void attention_part(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 4,
                   .n_out = 4,
                   .constant = {true, true, true, true},
                   .apply = apply_attention_part};
    c->in[0] = c->in[3] = op_unwanted(op_heads(s, s->heads));
    c->in[1] = c->in[2] = op_unwanted(op_heads(s, s->groups));
}

static const op_entry entries[] = {{"rope", rope},
                                   {"rope, scaled", rope_scaled},
                                   {"rope of neighbours", rope_neighbours},
                                   {"rope of a part, in long texts and short ones", rope_long},
                                   {"logit_max", logit_max},
                                   {"logit_sum", logit_sum},
                                   {"logit_sum, smoothed labels", logit_sum_smooth},
                                   {"logit_sum, picked not used", logit_sum_alone},
                                   {"logit_sum, sum not used", picked_alone},
                                   {"cross_entropy", cross_entropy},
                                   {"loss of logits", loss},
                                   {"loss of logits, with their gradient", logit_loss},
                                   {"rope at positions", rope_at},
                                   {"rope of queries and keys", rope_pair},
                                   {"rope of both, one not used", keys_alone},
                                   {"attention of some tokens", attention_part},
                                   {NULL, NULL}};

int main(void)
{
    static const wf_test more[] = {{"many pairs of neighbours", many_neighbours}, {NULL, NULL}};

    return op_main(OP_SUITE_B, entries, more);
}
