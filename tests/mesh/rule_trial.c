/* tests/mesh/rule_trial.c - ops of applications, and what is known of rows: splits that a
   kernel cannot take, sums that may be reported as not exact, partial operands. See the
   header. */
#include "tests/mesh/rule_trial.h"

/*
 * An application's op, with two summed dims in different operands: the product of two sums is
 * not the sum of the ranks' products, so one axis must not split both.
 */
static wf_status product_of_sums(const wf_call *call, void *workspace)
{
    const wf_tensor *a = call->in[0], *b = call->in[1];
    float *y = call->out[0]->data;

    (void)workspace;
    for (int64_t i = 0; i < a->local[0]; i++)
        for (int64_t j = 0; j < b->local[0]; j++) {
            float sums[2] = {0};

            for (int64_t k = 0; k < a->local[1]; k++)
                sums[0] += ((const float *)a->data)[i * a->local[1] + k];
            for (int64_t k = 0; k < b->local[1]; k++)
                sums[1] += ((const float *)b->data)[j * b->local[1] + k];
            y[i * b->local[0] + j] = sums[0] * sums[1];
        }
    return WF_OK;
}

static const wf_kernel product_kernel = {.run = product_of_sums};
static const wf_op product_op = {.name = "product_of_sums",
                                 .signature = "nk,lm->nl",
                                 .kernels = WF_KERNELS({"cpu", &product_kernel})};

/* An application's op whose outputs are the sums of a matrix over its rows and over its
   columns. Its letter g groups nothing. */
static wf_status sum_both_ways(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    float *of_g = call->out[0]->data, *of_h = call->out[1]->data;

    (void)workspace;
    memset(of_g, 0, (size_t)x->local[0] * sizeof(float));
    memset(of_h, 0, (size_t)x->local[1] * sizeof(float));
    for (int64_t g = 0; g < x->local[0]; g++)
        for (int64_t h = 0; h < x->local[1]; h++) {
            of_g[g] += ((const float *)x->data)[g * x->local[1] + h];
            of_h[h] += ((const float *)x->data)[g * x->local[1] + h];
        }
    return WF_OK;
}

static const wf_kernel both_ways_kernel = {.run = sum_both_ways};
static const wf_op both_ways_op = {.name = "sum_both_ways",
                                   .signature = "gh->g,h",
                                   .flags = WF_OP_OWN_SUMS,
                                   .kernels = WF_KERNELS({"cpu", &both_ways_kernel})};

const wf_op *trial_op(int i)
{
    return i == 0 ? &product_op : &both_ways_op;
}

/* Splits of a letter that would be right and that no row claims. */
static const struct {
    const char *op;
    char letter;
    const char *why;
} unclaimed[] = {
    {"gather", 'k', "its gradient is scatter, a chain over them"},
    {"scatter", 'k',
     "values whose indices differ go to elements of their own; those of one are a chain"},
    {"experts", 'f', "an expert's features are one chain: experts are split, and they are not"},
    {"experts", 'k', "a token's choices are together, so that their experts ascend"},
    {"experts_dx", 'f', "alike"},
    {"experts_dx", 'k', "alike"},
    {"experts_grad", 'f', "alike"},
    {"experts_grad", 'k', "alike"},
    {"experts_part", 'k', "alike"},
    {"experts_part_dx", 'k', "alike"},
    {"experts_part_grad", 'k', "alike"},
    {"experts_sum", 'k', "alike"},
    {"experts_dot", 'k', "alike"},
    {"experts_dot", 't', "its lanes go through all features"},
    {"linear3_rope", 'k', "a product is rounded before it rotates, so its sum is whole"},
    {"linear3_rope_at", 'k', "alike"},
    {"attention_sinks_rows", 'd', "a head's dims are together, as in attention"},
    {NULL, 0, NULL},
};

/*
 * Sums that 2, 4 or 8 ranks of one axis may tell to be other than those of one rank: of these
 * ops, where one of these operand dims is split. Weights' gradients have a chunk for each
 * sequence, and not for pieces of one; a sum over tokens and heads has its chunks where the
 * heads are.
 */
static const struct {
    const char *op;
    int operand, dim;
    bool heads; /* only where there are heads behind the tokens */
} inexact[] = {
    {"linear_dw", 0, 1, false},         {"linear_dw", 0, 2, true},
    {"embedding_dw", 1, 1, false},      {"embedding_dw", 1, 2, true},
    {"bias_grad", 0, 1, true},          {"bias_gelu_grad", 0, 1, true},
    {"token_sum", 0, 1, true},          {"layernorm_dw", 0, 1, true},
    {"rmsnorm_dw", 0, 1, true},         {"layernorm_grad", 0, 1, true},
    {"rmsnorm_grad", 0, 1, true},       {"add_layernorm_grad", 0, 1, true},
    {"add_rmsnorm_grad", 0, 1, true},   {"experts_grad", 3, 1, false},
    {"experts_grad", 3, 2, true},       {"experts_part_grad", 3, 1, false},
    {"experts_part_grad", 3, 2, true},  {"experts_part_whole", 2, 1, false},
    {"experts_part_whole", 2, 2, true}, {NULL, 0, 0, false},
};

bool reads_beyond(const trial *t, const wf_call *call, uint32_t split)
{
    bool of_groups = t->op->flags & WF_OP_GROUPS;

    if (op_is(t->op, "slice") || op_is(t->op, "slice_grad") || op_is(t->op, "concat") ||
        op_is(t->op, "pad") || op_is(t->op, "gather") || op_is(t->op, "scatter"))
        return (split >> ('n' - 'a') | split >> ('p' - 'a')) & 1;
    if (op_is(t->op, "route") || op_is(t->op, "route_grad"))
        return (split >> ('n' - 'a') | split >> ('t' - 'a') | split >> ('k' - 'a')) & 1;
    return (op_is(t->op, "rows") || op_is(t->op, "rows_grad"))
               ? split >> ('p' - 'a') & 1
               : of_groups && split >> ('g' - 'a') & 1 &&
                     !wf_layout_groups_agree(call->in[0], call->in[1]);
}

bool splits(const trial *t, const wf_call *call, uint32_t *split)
{
    *split = 0;
    for (int i = 0; i < call->n_in; i++) {
        int d = wf_layout_split_dim(call->in[i]->layout, 0);

        if (wf_layout_is_partial(call->in[i]->layout, -1))
            return false;
        if (d >= 0)
            *split |= 1u << t->sig.letter[i][d];
    }
    for (int i = 0; i < call->n_in; i++)
        for (int d = 0; d < t->sig.ndim[i]; d++)
            if ((*split >> t->sig.letter[i][d] & 1) !=
                (wf_layout_split_dim(call->in[i]->layout, 0) == d))
                return false;
    return true;
}

/* Axes of a dim in another order than the mesh's. */
static bool out_of_order(const wf_layout *layout)
{
    for (int d = 0; layout && d < WF_MAX_DIMS; d++)
        for (int i = 1; i < layout->n_axes[d]; i++)
            if (layout->axis[d][i] < layout->axis[d][i - 1])
                return true;
    return false;
}

bool may_be_inexact(const trial *t, const wf_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (out_of_order(call->in[i]->layout))
            return true;
    for (int i = 0; inexact[i].op; i++)
        if (op_is(t->op, inexact[i].op) && inexact[i].heads <= t->heads &&
            call->in[inexact[i].operand]->layout &&
            call->in[inexact[i].operand]->layout->n_axes[inexact[i].dim])
            return true;
    return t->mesh->ranks & (t->mesh->ranks - 1);
}

bool may_be_partial(const trial *t, const wf_call *call)
{
    if (!wf_context_exact(t->mesh->ctx))
        return true;
    for (int i = 0; i < call->n_in; i++)
        if (wf_layout_is_partial(call->in[i]->layout, -1) &&
            !((t->op->flags & WF_OP_LINEAR) && i == call->n_in - 1) &&
            !wf_layout_is_picked(call))
            return false;
    return true;
}

bool splits_members(const trial *t, uint32_t split)
{
    uint32_t members = 0;

    for (int o = 0; o < t->n_out; o++)
        for (int d = 0; d < t->sig.ndim[t->n_in + o]; d++)
            members |= 1u << t->sig.letter[t->n_in + o][d];
    for (int d = 0; d < t->sig.ndim[0]; d++)
        members &= ~(1u << t->sig.letter[0][d]);
    return (t->op->flags & WF_OP_MEMBERS) && (split & members) && (split & members) != members;
}

bool is_unclaimed(const trial *t, uint32_t split)
{
    for (int i = 0; unclaimed[i].op; i++)
        if (op_is(t->op, unclaimed[i].op) && split == 1u << (unclaimed[i].letter - 'a'))
            return true;
    return false;
}

wf_status check_lists(trial *t)
{
    for (int k = 0; unclaimed[k].op; k++)
        if (t->mesh->n_axes == 1 && op_is(t->op, unclaimed[k].op) && !t->unclaimed)
            return wf_error_set(&t->rank->error, WF_EINTERNAL, "%s is in the list in vain",
                                t->op->name);
    for (int k = 0; inexact[k].op; k++)
        if (op_is(t->op, inexact[k].op) && inexact[k].heads <= t->heads &&
            wf_context_exact(t->mesh->ctx) && !t->reported_inexact)
            return wf_error_set(&t->rank->error, WF_EINTERNAL, "%s never reports its sums",
                                t->op->name);
    return WF_OK;
}
