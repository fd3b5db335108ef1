/*
 * tests/mesh/test_rule.c - the layout rules of every row of ops.def, by brute force.
 *
 * Every combination of operand layouts is given to dispatch. Where it is accepted, the outputs,
 * gathered, must be those of whole operands: bit for bit, or the context reports that they are
 * not; which it may do only where a short list says. Where it is refused, all ranks must get
 * the same error, with every operand's layout in the text; and then the op's kernel is run on
 * the parts all the same, to see whether any layout of the outputs would have been right: such
 * an unclaimed rule must be in a short list too, with the reason (rule_trial.h).
 * ctest: builds plain
 */
#include "tests/mesh/rule_trial.h"
#include <math.h>

static int count_outputs(const wf_op *op)
{
    int n = 1;

    for (const char *s = strchr(op->signature, '>'); *s; s++)
        n += *s == ',';
    return n;
}

static wf_call call_of(trial *t, const int *choice)
{
    wf_call call = {.op = t->op, .ctx = t->mesh->ctx, .n_in = t->n_in, .n_out = t->n_out};

    for (int i = 0; i < t->n_in; i++)
        call.in[i] = t->option[i][choice[i]];
    call.attr_size = op_attributes(t->op, call.in[0], &t->attr);
    call.attr = &t->attr;
    return call;
}

/* Reports the error of one combination, with its layouts. */
static wf_status blame(const trial *t, const wf_call *call, const char *what)
{
    char text[512] = "";
    size_t n = 0;

    for (int i = 0; i < call->n_in && n < sizeof text; i++) {
        char layout[128];

        n += (size_t)snprintf(text + n, sizeof text - n, " %s",
                              wf_layout_print(call->in[i]->layout, layout, sizeof layout));
    }
    return wf_error_set(&t->rank->error, WF_EINTERNAL, "%s (%s) of%s: %s", t->op->name,
                        t->op->signature, text, what);
}

/* Returns true where this rank's part of an output is that of the wanted one. */
static bool equal(const wf_tensor *y, const wf_tensor *want, bool exact)
{
    const float *a = y->data, *b = want->data;

    for (int64_t e = 0; e < wf_tensor_local_count(y); e++) {
        float should = b[whole_index(y, e)];

        if (exact ? !same_bits(a[e], should)
                  : !(fabsf(a[e] - should) <= 2e-5f * (1 + fabsf(should))))
            return false;
    }
    return true;
}

/* True on all ranks, or on none. */
static bool everywhere(const trial *t, bool here)
{
    wf_error error = {WF_OK, ""};
    float failed = here ? 0 : 1;

    return wf_all_reduce(t->mesh->world, WF_REDUCE_MAX, &failed, &failed, 1, &error) == WF_OK &&
           failed == 0;
}

/* The text names the op and every operand's layout; what it says goes into `reported`. */
static wf_status check_refused(trial *t, const wf_call *call)
{
    const char *text = wf_context_error(t->mesh->ctx)->text;

    t->refused++;
    if (wf_context_status(t->mesh->ctx) != WF_ELAYOUT)
        return give_up(t->rank, t->mesh->ctx);
    for (const char *s = strstr(text, ": "); s && *s; s++) /* behind "rank 1" */
        t->reported = wf_mix64(t->reported ^ (uint64_t)*s);
    for (int i = 0; i < call->n_in; i++) {
        char layout[128];

        if (!strstr(text, wf_layout_print(call->in[i]->layout, layout, sizeof layout)))
            return blame(t, call, text);
    }
    if (!strstr(text, t->op->name) || !strstr(text, "redistribute"))
        return blame(t, call, text);
    wf_context_clear(t->mesh->ctx);
    return WF_OK;
}

static wf_status check_accepted(trial *t, const wf_call *call)
{
    const char *reported = wf_context_inexact(t->mesh->ctx);
    bool exact = t->op->id && wf_context_exact(t->mesh->ctx) && !reported;

    t->accepted++;
    t->reported_inexact += reported != NULL;
    if (reported && t->op->id && !may_be_inexact(t, call))
        return blame(t, call, reported);
    if (!may_be_partial(t, call))
        return blame(t, call, "it acts on a partial operand, and is to be exact");
    for (int o = 0; o < t->n_out; o++) {
        wf_tensor *whole = wf_whole(call->out[o]);
        char layout[128], text[256];

        if (!whole)
            return give_up(t->rank, t->mesh->ctx);
        if (!everywhere(t, equal(whole, t->want[o], exact))) {
            snprintf(text, sizeof text, "output %d is said to be %s, which is wrong", o,
                     wf_layout_print(call->out[o]->layout, layout, sizeof layout));
            return blame(t, call, text);
        }
    }
    return WF_OK;
}

/* Outputs for the kernel to write to, split where the operands are; false where that cannot be.
 */
static bool open_outputs(const trial *t, wf_call *call, uint32_t split)
{
    for (int o = 0; o < t->n_out; o++) {
        const wf_tensor *want = t->want[o];
        const wf_layout *layout = NULL;
        int row = t->n_in + o;

        for (int d = 0; d < t->sig.ndim[row]; d++)
            if (split >> t->sig.letter[row][d] & 1) {
                if (layout)
                    return false;
                layout = wf_layout_split(t->mesh, NULL, d, 0);
            }
        call->out[o] = wf_tensor_new(t->mesh->ctx, want->dtype, want->ndim, want->dim, layout,
                                     WF_MEMORY_ACTIVATION);
        memset(call->out[o]->data, 0,
               (size_t)wf_tensor_local_count(call->out[o]) * sizeof(float));
    }
    return true;
}

/* Run the op's kernel, or what a view is, on this rank's parts. */
static bool run_kernel(const trial *t, const wf_call *call)
{
    wf_device *device = wf_context_device(t->mesh->ctx);
    const wf_kernel *kernel = device->kernel(device, t->op);
    int64_t n = wf_tensor_local_count(call->in[0]);
    void *workspace;
    wf_status status;

    if (t->op->flags & WF_OP_VIEW) {
        if (wf_tensor_local_count(call->out[0]) != n)
            return false;
        memcpy(call->out[0]->data, call->in[0]->data, (size_t)n * sizeof(float));
        return true;
    }
    workspace = malloc(kernel->workspace ? kernel->workspace(call) + 64 : 64);
    status = workspace ? kernel->run(call, workspace) : WF_ENOMEM;
    free(workspace);
    wf_context_clear(t->mesh->ctx);
    return status == WF_OK;
}

/* Returns true where an output is right as it is, or as a sum or maximum over the ranks. */
static bool right_in_any_way(const trial *t, wf_tensor *y, const wf_tensor *want)
{
    if (everywhere(t, equal(y, want, false)))
        return true;
    for (int r = WF_REDUCE_SUM; !y->layout && r <= WF_REDUCE_MAX; r++) {
        const wf_layout *partial = wf_layout_partial(t->mesh, NULL, 0, (wf_reduction)r);
        wf_tensor *whole = wf_whole(wf_tensor_view(y, y->ndim, y->dim, partial));

        if (whole && everywhere(t, equal(whole, want, false)))
            return true;
    }
    return false;
}

/* Would a refused combination have been right after all? */
static wf_status check_unclaimed(trial *t, wf_call *call)
{
    uint32_t split;

    if (!splits(t, call, &split) || splits_members(t, split) || reads_beyond(t, call, split) ||
        !open_outputs(t, call, split) || !everywhere(t, run_kernel(t, call)))
        return WF_OK;
    for (int o = 0; o < t->n_out; o++)
        if (!right_in_any_way(t, call->out[o], t->want[o]))
            return WF_OK;
    if (!is_unclaimed(t, split))
        return blame(t, call, "would be right, but no rule claims it");
    t->unclaimed++;
    return WF_OK;
}

static wf_status one(trial *t, const int *choice)
{
    wf_call call = call_of(t, choice);
    wf_status status;

    wf_scope_open(t->mesh->ctx);
    wf_context_inexact_clear(t->mesh->ctx);
    if (wf_dispatch(&call) == WF_OK) {
        status = check_accepted(t, &call);
    } else {
        status = check_refused(t, &call);
        if (status == WF_OK && t->mesh->n_axes == 1)
            status = check_unclaimed(t, &call);
    }
    wf_scope_close(t->mesh->ctx);
    return status;
}

/* Returns true for a layout that is left out, as combinations of so many operands would be a
   million: later operands' sums and splits of dims that have to be whole. */
static bool is_left_out(const trial *t, int i, const wf_layout *layout)
{
    if ((t->n_in < MOST && !op_is_part(t->op) && !op_is(t->op, "experts_part_y")) || i == 0)
        return t->n_in > MANY && layout->max; /* sums stand for both */
    for (int d = 0; d < t->sig.ndim[i]; d++)
        if (layout->n_axes[d] && t->sig.whole >> t->sig.letter[i][d] & 1)
            return true;
    return layout->sum;
}

/* Operands in all their layouts, the first of which is whole, and what comes of them whole. */
static wf_status begin(trial *t, wf_rank *rank, wf_mesh *mesh, const wf_op *op, bool heads)
{
    const wf_layout *all[MAX_LAYOUTS];
    int whole[WF_MAX_INPUTS] = {0}, n_out = count_outputs(op);
    wf_call call;

    *t = (trial){.rank = rank, .mesh = mesh, .op = op, .n_out = n_out, .heads = heads};
    t->n_in = op_operands(op, heads, t->operand);
    for (int i = 0; i < t->n_in; i++)
        t->option[i][t->n_options[i]++] = operand_in(mesh, op, i, &t->operand[i], NULL);
    call = call_of(t, whole);
    if (wf_dispatch(&call) != WF_OK)
        return give_up(rank, mesh->ctx);
    call.signature = op->signature;
    if (wf_signature_match(&call, &t->sig) != WF_OK)
        return give_up(rank, mesh->ctx);
    memcpy(t->want, call.out, sizeof t->want);
    for (int i = 0; i < t->n_in; i++) {
        const op_operand *o = &t->operand[i];
        int n = all_layouts(mesh, o->ndim, o->dtype == WF_F32, all);

        for (int k = 0; k < n; k++)
            if (all[k] && !is_left_out(t, i, all[k]))
                t->option[i][t->n_options[i]++] = operand_in(mesh, op, i, o, all[k]);
    }
    return WF_OK;
}

/* All ranks were given the same: the halves of a number and of its complement agree. */
static bool reported_alike(const trial *t)
{
    for (int i = 0; i < 4; i++) {
        float piece[2] = {(float)(t->reported >> 16 * i & 0xffff), 0}, most[2];

        piece[1] = -piece[0];
        memcpy(most, piece, sizeof most);
        if (wf_all_reduce(t->mesh->world, WF_REDUCE_MAX, most, most, 2, &t->rank->error) !=
                WF_OK ||
            most[0] != piece[0] || most[1] != piece[1])
            return false;
    }
    return true;
}

enum { FEW = 10000, STEP = 7 /* shares no factor with the numbers of options */ };

/* Returns the step from one combination that is tried to the next: a part of very many, unless
   all rows are asked for. */
static int64_t step_of(const trial *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_in; i++)
        n *= t->n_options[i];
    return n > FEW ? wf_test_one_in(STEP) : 1;
}

static wf_status every_combination(wf_rank *rank, wf_mesh *mesh, const wf_op *op, bool heads,
                                   trial *t)
{
    int choice[WF_MAX_INPUTS] = {0}, i;
    int64_t step, n = 0;

    GOOD(begin(t, rank, mesh, op, heads));
    step = step_of(t);
    do {
        if (n++ % step == 0)
            GOOD(one(t, choice));
        for (i = 0; i < t->n_in && ++choice[i] == t->n_options[i]; i++)
            choice[i] = 0;
    } while (i < t->n_in);
    NEED(reported_alike(t));
    return step == 1 ? check_lists(t) : WF_OK; /* a part need not meet what is listed */
}

/* Every op with up to so many operands; or those with "...", which stands for heads as well. */
typedef struct ops {
    int most;
    bool heads;
} ops;

static wf_status every_op(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const ops *which = arg;
    trial *t = malloc(sizeof *t);
    wf_status status = t ? WF_OK : WF_ENOMEM;

    for (int id = -1; id <= wf_op_count() && status == WF_OK; id++) {
        const wf_op *op = id > 0 ? wf_op_at(id) : trial_op(-id);
        op_operand o[WF_MAX_INPUTS];

        if ((op->flags & WF_OP_IN_PLACE) || op_operands(op, which->heads, o) > which->most ||
            (which->heads && !strstr(op->signature, "...")))
            continue;
        wf_scope_open(mesh->ctx);
        status = every_combination(rank, mesh, op, which->heads, t);
        wf_scope_close(mesh->ctx);
    }
    free(t);
    return status;
}

static void try_ops(mesh_test test, int most_operands)
{
    test.body = every_op;
    test.arg = &(ops){.most = most_operands};
    on_mesh(test);
}

static void try_ops_of_heads(mesh_test test, int most_operands)
{
    test.body = every_op;
    test.arg = &(ops){.most = most_operands, .heads = true};
    on_mesh(test);
}

static void on_2_and_3_ranks(void)
{
    try_ops((mesh_test){.n_axes = 1, .size = {2}}, MOST);
    try_ops((mesh_test){.n_axes = 1, .size = {3}}, wf_test_one_in(2) == 1 ? MOST : MANY);
}

static void on_4_and_8_ranks(void)
{
    try_ops((mesh_test){.n_axes = 1, .size = {4}}, 3);
    try_ops((mesh_test){.n_axes = 1, .size = {8}}, wf_test_one_in(2) == 1 ? 3 : 2);
}

static void on_two_axes(void)
{
    try_ops((mesh_test){.n_axes = 2, .size = {2, 2}}, 2);
    try_ops((mesh_test){.n_axes = 2, .size = {2, 4}}, 2);
    try_ops((mesh_test){.n_axes = 3, .size = {2, 2, 2}}, 1);
}

static void with_heads(void)
{
    try_ops_of_heads((mesh_test){.n_axes = 1, .size = {2}}, MANY);
    try_ops_of_heads((mesh_test){.n_axes = 1, .size = {8}}, 2);
}

static void exact_off(void)
{
    try_ops((mesh_test){.n_axes = 1, .size = {3}, .exact_off = true}, 2);
}

int main(void)
{
    static const wf_test tests[] = {{"every op on 2 and 3 ranks", on_2_and_3_ranks},
                                    {"empty parts on 4 and 8 ranks", on_4_and_8_ranks},
                                    {"two axes at once", on_two_axes},
                                    {"tokens and heads", with_heads},
                                    {"exact off", exact_off},
                                    {NULL, NULL}};

    return wf_test_main("rule", tests);
}
