/*
 * tests/kernels/test_ops_in_place.c - the ops that work in place, initialisation and updates:
 * cases for op_harness.h, then what a case cannot say.
 */
#include "core/numerics/random.h"
#include "kernels/attention_cached.h"
#include "kernels/parameters.h"
#include "tests/kernels/op_harness.h"
#include <string.h>

static const wf_update update = {.lr = 0.03F,
                                 .beta1 = 0.9F,
                                 .beta2 = 0.95F,
                                 .eps = 1e-6F,
                                 .weight_decay = 0.1F,
                                 .bias1 = 3.7F,
                                 .bias2 = 7.1F,
                                 .grad_scale = 0.5F};

static void apply_cache_write(wf_tensor *const *in, wf_tensor **out)
{
    wf_cache_write(in[0], in[1], in[2], in[3], in[4], in[5]);
    out[0] = in[0];
    out[1] = in[1];
}

static void cache_write(op_case *c, const op_shape *s)
{
    const op_operand cache = {.ndim = 4,
                              .dim = {wf_dim_width(s->batch + 1), wf_dim_width(s->tokens + 70),
                                      wf_dim_chunked(s->groups), wf_dim_width(s->head_dim)}};
    const op_operand position = {.ndim = 1, .dim = {wf_dim_batch(s->batch)}, .below = 71};

    *c = (op_case){.n_in = 6, .n_out = 2, .apply = apply_cache_write};
    c->in[0] = c->in[1] = cache;
    c->in[2] = c->in[3] = op_unwanted(op_heads(s, s->groups));
    c->in[4] = c->in[5] = position;
    c->in[5].below = s->batch + 1;
}

static op_operand unwanted(const op_shape *s)
{
    op_operand o = op_activations(s, wf_dim_width(s->width));

    o.wanted = false;
    return o;
}

static void in_place(op_case *c, const op_shape *s,
                     void (*apply)(wf_tensor *const *, wf_tensor **))
{
    *c = (op_case){.n_in = 1, .n_out = 1, .apply = apply};
    c->in[0] = unwanted(s);
}

static void apply_init_fill(wf_tensor *const *in, wf_tensor **out)
{
    wf_init_fill(in[0], 0.3F);
    out[0] = in[0];
}

static void init_fill(op_case *c, const op_shape *s)
{
    in_place(c, s, apply_init_fill);
}

static void apply_init_normal(wf_tensor *const *in, wf_tensor **out)
{
    wf_init_normal(in[0], 0.5F, 0.02F, 11);
    out[0] = in[0];
}

static void init_normal(op_case *c, const op_shape *s)
{
    in_place(c, s, apply_init_normal);
}

static void apply_init_uniform(wf_tensor *const *in, wf_tensor **out)
{
    wf_init_uniform(in[0], -0.25F, 0.75F, 12);
    out[0] = in[0];
}

static void init_uniform(op_case *c, const op_shape *s)
{
    in_place(c, s, apply_init_uniform);
}

static void apply_init_truncated(wf_tensor *const *in, wf_tensor **out)
{
    wf_init_truncated(in[0], 0.5F, 0.02F, 0.47F, 0.56F, 13);
    out[0] = in[0];
}

static void init_truncated(op_case *c, const op_shape *s)
{
    in_place(c, s, apply_init_truncated);
}

static void apply_init_scale(wf_tensor *const *in, wf_tensor **out)
{
    wf_init_scale(in[0], 0.3F);
    out[0] = in[0];
}

static void init_scale(op_case *c, const op_shape *s)
{
    in_place(c, s, apply_init_scale);
}

/* x = a x + b uniform(index) */
static void add_noise(float *x, int64_t n, int64_t first, const wf_init_site *site)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = site->arg[0] * x[i] +
               site->arg[1] * wf_random_uniform(site->key, site->stream, (uint64_t)(first + i));
}

static void apply_init_elements(wf_tensor *const *in, wf_tensor **out)
{
    wf_init_elements(in[0], add_noise, (const float[]){0.5F, 2, 0, 0}, 14);
    out[0] = in[0];
}

static void init_elements(op_case *c, const op_shape *s)
{
    in_place(c, s, apply_init_elements);
}

/* Each element looks at the one before it, which may be another rank's. */
static wf_status running_sum(float *x, const wf_tensor *like, const wf_init_site *site)
{
    float sum = 0;

    for (int64_t i = 0; i < wf_tensor_count(like); i++) {
        sum =
            0.5F * sum + site->arg[0] * wf_random_uniform(site->key, site->stream, (uint64_t)i);
        x[i] = sum;
    }
    return WF_OK;
}

static void apply_init_whole(wf_tensor *const *in, wf_tensor **out)
{
    wf_init_whole(in[0], running_sum, (const float[]){3, 0, 0, 0}, 15);
    out[0] = in[0];
}

static void init_whole(op_case *c, const op_shape *s)
{
    in_place(c, s, apply_init_whole);
}

static void apply_adamw(wf_tensor *const *in, wf_tensor **out)
{
    wf_adamw(in[0], in[1], in[2], in[3], &update);
    out[0] = in[0];
    out[1] = in[2];
    out[2] = in[3];
}

static void adamw(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 4, .n_out = 3, .apply = apply_adamw};
    for (int i = 0; i < 4; i++)
        c->in[i] = unwanted(s);
    c->in[3].low = 0.01; /* squares are positive */
    c->in[3].high = 1;
}

static void apply_sgd(wf_tensor *const *in, wf_tensor **out)
{
    wf_sgd(in[0], in[1], in[2], &update);
    out[0] = in[0];
    out[1] = in[2];
}

static void sgd(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 3, .n_out = 2, .apply = apply_sgd};
    for (int i = 0; i < 3; i++)
        c->in[i] = unwanted(s);
}

static void apply_sgd_plain(wf_tensor *const *in, wf_tensor **out)
{
    wf_update plain = update;

    plain.beta1 = 0;
    wf_sgd(in[0], in[1], in[2], &plain);
    out[0] = in[0];
    out[1] = in[2]; /* not touched */
}

static void sgd_plain(op_case *c, const op_shape *s)
{
    sgd(c, s);
    c->apply = apply_sgd_plain;
}

static void apply_unit_norm(wf_tensor *const *in, wf_tensor **out)
{
    wf_unit_norm(in[0], 0.25);
    out[0] = in[0];
}

static void unit_norm(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 1, .n_out = 1, .apply = apply_unit_norm};
    c->in[0] =
        (op_operand){.ndim = 2, .dim = {wf_dim_width(s->tokens), wf_dim_width(s->width)}};
}

/* Reads and writes all that there is, each number for itself. */
static void mix(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    for (int64_t i = 0; i < n; i++) {
        state[0][i] = u->beta1 * state[0][i] + g[i];
        state[1][i] += u->own[1] * state[0][i] * p[i];
        p[i] -= u->lr * (state[1][i] + (float)u->step * u->weight_decay * p[i]);
    }
}

static void apply_update_elements(wf_tensor *const *in, wf_tensor **out)
{
    wf_update numbers = update;

    numbers.step = 3;
    numbers.own[1] = 0.3F;
    wf_update_elements(in[0], in[1], 2, in + 2, mix, &numbers);
    out[0] = in[0];
    out[1] = in[2];
    out[2] = in[3];
}

static void update_elements(op_case *c, const op_shape *s)
{
    *c = (op_case){.n_in = 4, .n_out = 3, .apply = apply_update_elements};
    for (int i = 0; i < 4; i++)
        c->in[i] = unwanted(s);
}

static const op_entry cases[] = {
    {"cache_write", cache_write},
    {"init_fill", init_fill},
    {"init_normal", init_normal},
    {"init_uniform", init_uniform},
    {"init_truncated", init_truncated},
    {"init_scale", init_scale},
    {"init_elements", init_elements},
    {"init_whole", init_whole},
    {"adamw", adamw},
    {"sgd", sgd},
    {"sgd without momentum", sgd_plain},
    {"unit_norm", unit_norm},
    {"update_elements", update_elements},
    {NULL, NULL},
};

static void thin_intervals(void)
{
    static const float bad[][4] = {{0, 1, 5, 6}, {0, 1, 2, 1}, {0, 0, -1, 1}, {0, -1, -1, 1}};
    wf_context *ctx = op_context_open(1);
    const wf_dim dim = wf_dim_width(4);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_PARAMETER);

    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(wf_init_truncated(t, bad[i][0], bad[i][1], bad[i][2], bad[i][3], 1),
                        WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(
            strstr(wf_context_error(ctx)->text, "holds less than a thousandth of the normal"));
        wf_context_clear(ctx);
    }
    CU_ASSERT_EQUAL(wf_init_truncated(t, 0, 1, 3, 1e30F, 1), WF_OK); /* a tail */
    wf_context_close(ctx);
}

static wf_status refuses(float *x, const wf_tensor *like, const wf_init_site *site)
{
    (void)x, (void)site;
    return wf_fail(like->ctx, WF_EINVAL, "only squares");
}

static void whole_that_fails(void)
{
    wf_context *ctx = op_context_open(1);
    const wf_dim dim = wf_dim_width(4);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_PARAMETER);

    CU_ASSERT_EQUAL(wf_init_whole(t, refuses, NULL, 1), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "only squares"));
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test more[] = {{"intervals too thin are refused", thin_intervals},
                                   {"a whole initialisation that fails", whole_that_fails},
                                   {NULL, NULL}};

    return op_main(OP_SUITE_IN_PLACE, cases, more);
}
