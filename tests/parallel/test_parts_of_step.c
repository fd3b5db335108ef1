/*
 * tests/parallel/test_parts_of_step.c - a training step in parts: a loop written by hand has
 * the bits of wf_par_train_step on every mesh and under every strategy, gradients are there to
 * be read and changed, and a part that is called where another one comes next says so.
 *
 * ctest: builds plain
 */
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/rows.h"

enum { BATCH = 16, STEPS = UNDER_SANITIZER ? 2 : 4 };

static const row rows[] = {
    {"no_shard", .tp = 1, .dp = 1, .micro = 4},
    {"full_shard", .tp = 1, .dp = 4, .micro = 2, .prefetch = 1},
    {"full_shard", .tp = 2, .dp = 2, .micro = 2, .sequence_parallel = true},
    {"full_shard", .tp = 2, .dp = 4, .micro = 1, .accumulate = WF_PAR_LOCAL},
    {"full_shard", .tp = 4, .dp = 2, .micro = 4, .recompute = "block"},
    {"shard_grad_op", .tp = 2, .dp = 2, .micro = 2},
    {"no_shard", .tp = 2, .dp = 4, .micro = 2},
    {"no_shard", .tp = 1, .dp = 2, .micro = 2, .accumulate = WF_PAR_REDUCED},
    {"zero1", .tp = 2, .dp = 2, .micro = 4},
    {"hybrid_shard", .tp = 1, .dp = 8, .group = 2, .micro = 1, .prefetch = 1},
    {"hybrid_shard", .tp = 2, .dp = 4, .group = 2, .micro = 2, .accumulate = WF_PAR_LOCAL},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 2},
    {"mics", .tp = 2, .dp = 4, .group = 2, .micro = 2},
};

enum { ROWS = sizeof rows / sizeof *rows };

static training make_training(model_kind kind)
{
    training t = new_training(kind, kind == GPT2 ? HEADS : 3, BATCH);

    t.steps = STEPS;
    t.model.dropout = kind == GPT2 ? 0.1f : 0;
    t.options.clip = 0.1f;
    t.frozen = "block.1.mlp.down.weight";
    return t;
}

/* Tokens and targets of this rank's sequences, of the caller's own. */
static wf_tensor *own_tensors(part *p, const training *t, int step, wf_tensor **targets)
{
    wf_sequences sequences = wf_context_sequences(p->ctx);
    int64_t micro = t->options.micro_batch ? t->options.micro_batch : BATCH / t->layout.dp;
    const wf_dim dims[] = {wf_dim_batch(micro * t->layout.dp), wf_dim_chunked(TOKENS)};
    const wf_layout *layout = wf_par_batch_layout(p->par);
    wf_tensor *tokens = wf_tensor_new(p->ctx, WF_I32, 2, dims, layout, WF_MEMORY_ACTIVATION);

    *targets = wf_tensor_new(p->ctx, WF_I32, 2, dims, layout, WF_MEMORY_ACTIVATION);
    if (tokens && *targets)
        count_up(NULL, step, wf_sequence_of(&sequences, tokens->start[0]), micro,
                 (void *const[]){tokens->data, (*targets)->data}, NULL);
    return tokens;
}

/* One micro-step; of every second one the batch is made here. */
static wf_status micro_step(part *p, wf_par_trainer *trainer, const training *t, int step,
                            int64_t k)
{
    const wf_par_data data = {.read = count_up};
    const wf_par_batch *batch = wf_par_micro_step_begin(trainer, k % 2 ? NULL : &data);
    wf_rank *rank = p->rank;
    wf_tensor *tokens, *targets, *loss;

    NEED(batch && batch->global_batch == BATCH);
    if (k % 2) {
        tokens = own_tensors(p, t, step, &targets);
        loss = wf_nn_gpt_loss(p->gpt, tokens, targets, wf_par_batch_weight(batch, targets));
    } else {
        loss = wf_par_gpt_loss(p->model, batch);
    }
    return wf_par_backward(trainer, loss);
}

/* Checks the gradients between reduction and update: of each parameter, in its shape, whole
   sums. */
static wf_status check_gradients(part *p, wf_par_trainer *trainer, double norm)
{
    const wf_par_train_state state = wf_par_trainer_state(trainer);
    wf_rank *rank = p->rank;
    wf_tensor *list[64];
    double again = 0;

    NEED(state.count <= 64);
    for (int64_t i = 0; i < state.count; i++) {
        const wf_tensor *t = state.parameter[i]->tensor;

        list[i] = wf_par_gradient(trainer, state.parameter[i]);
        NEED(!list[i] == state.parameter[i]->frozen);
        if (!list[i])
            continue;
        NEED(list[i]->ndim == t->ndim && list[i]->dtype == WF_F32);
        for (int d = 0; d < t->ndim; d++)
            NEED(wf_dim_equal(list[i]->dim[d], t->dim[d]));
        NEED(!wf_layout_is_partial(list[i]->layout, -1));
    }
    GOOD(wf_par_norm(p->par, state.count, state.parameter, list, &again));
    NEED(again == norm && norm > 0);
    return WF_OK;
}

static wf_status step_by_hand(part *p, wf_par_trainer *trainer, training *t, int step)
{
    float loss, lr = wf_nn_schedule_at(&t->options.schedule, step);
    double norm;

    GOOD(wf_par_step_begin(trainer, step));
    for (int64_t k = 0; k < wf_par_micro_steps(trainer); k++)
        GOOD(micro_step(p, trainer, t, step, k));
    GOOD(wf_par_reduce(trainer, &loss));
    GOOD(wf_par_clip(trainer, t->options.clip, &norm));
    GOOD(check_gradients(p, trainer, norm));
    GOOD(wf_par_check_finite(trainer, loss, norm, NULL));
    GOOD(wf_par_optimizer_step(trainer, lr));
    if (p->rank->index == 0) {
        t->loss[step - 1] = loss;
        t->grad_norm[step - 1] = norm;
    }
    return WF_OK;
}

static wf_status steps_by_hand(part *p, wf_par_trainer *trainer)
{
    training *t = p->arg;

    for (int step = 1; step <= t->steps; step++)
        GOOD(step_by_hand(p, trainer, t, step));
    keep_digest(t, p, trainer);
    return WF_OK;
}

static wf_status by_hand_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, steps_by_hand, arg);
}

static void by_hand(model_kind kind)
{
    training one = make_training(kind);

    if (!train(&one))
        return;
    for (int i = 0; i < ROWS; i += UNDER_THREAD_SANITIZER ? 3 : 1) {
        training t = on_row(one, &rows[i]);

        run_ranks(t.layout.tp * t.layout.dp, by_hand_rank, &t);
        check_same(&t, &one);
        for (int step = 0; step < t.steps; step++)
            CU_ASSERT(t.grad_norm[step] == one.grad_norm[step]);
    }
}

static void gpt2_by_hand(void)
{
    by_hand(GPT2);
}

static void llama_by_hand(void)
{
    by_hand(LLAMA);
}

/* Gradients that are halved and doubled in place, or dropped with a step that is given up. */
static wf_status change_gradients(part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = count_up};
    const wf_par_train_state state = wf_par_trainer_state(trainer);
    training *t = p->arg;

    for (int step = 1; step <= t->steps; step++) {
        GOOD(wf_par_step_begin(trainer, step)); /* it is given up, in a micro-step */
        wf_par_backward(trainer,
                        wf_par_gpt_loss(p->model, wf_par_micro_step_begin(trainer, &data)));
        wf_par_gpt_loss(p->model, wf_par_micro_step_begin(trainer, &data));
        GOOD(wf_par_zero_grad(trainer));
        for (int again = 0; again < 2; again++) { /* the second time they are kept */
            GOOD(wf_par_step_begin(trainer, step));
            GOOD(wf_par_forward_backward(trainer, &data));
            GOOD(wf_par_reduce(trainer, NULL));
            for (int64_t i = 0; i < state.count; i++)
                if (wf_par_gradient(trainer, state.parameter[i]))
                    GOOD(wf_init_scale(wf_par_gradient(trainer, state.parameter[i]), 0.5f));
        }
        GOOD(wf_par_clip(trainer, 0, NULL));
        for (int64_t i = 0; i < state.count; i++)
            if (wf_par_gradient(trainer, state.parameter[i]))
                GOOD(wf_init_scale(wf_par_gradient(trainer, state.parameter[i]), 2));
        GOOD(wf_par_optimizer_step(trainer, wf_nn_schedule_at(&t->options.schedule, step)));
    }
    keep_digest(t, p, trainer);
    return WF_OK;
}

static wf_status change_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, arg, change_gradients, arg);
}

static void gradients_in_place(void)
{
    training one = make_training(LLAMA), t;

    one.options.clip = 0;
    if (!train(&one))
        return;
    for (int i = 1; i < 9; i += 2) {
        t = on_row(one, &rows[i]);
        run_ranks(t.layout.tp * t.layout.dp, change_rank, &t);
        CU_ASSERT_EQUAL(t.digest, one.digest);
    }
}

/* Checks the error that a call leaves in the context. */
#define SAYS(call, words)                                                                      \
    do {                                                                                       \
        (void)(call);                                                                          \
        GOOD(refused(rank, p->ctx, NULL, WF_EINVAL, words));                                   \
    } while (0)

static wf_status out_of_order(part *p, wf_par_trainer *t)
{
    const wf_par_data data = {.read = count_up};
    wf_nn_parameter other = {.path = "somebody.else"};
    wf_rank *rank = p->rank;
    float loss;

    SAYS(wf_par_micro_step_begin(t, &data),
         "wf_par_micro_step_begin was called, but no step has begun: wf_par_step_begin comes "
         "next");
    SAYS(wf_par_optimizer_step(t, 1), "no step has begun");
    SAYS(wf_par_backward(t, NULL), "wf_par_backward was called, but no step has begun");
    SAYS(wf_par_check_finite(t, NAN, 1, NULL), "wf_par_check_finite was called, but no step");
    GOOD(wf_par_step_begin(t, 1));
    SAYS(wf_par_reduce(t, &loss), "0 of 2 micro-steps are done: wf_par_micro_step_begin (or");
    wf_par_micro_step_begin(t, &data);
    SAYS(wf_par_micro_step_begin(t, &data),
         "micro-step 1 of 2 has begun: wf_par_backward comes next");
    SAYS(wf_par_evaluate(t, 1, &data, NULL, &loss), "wf_par_evaluate was called, but micro");
    GOOD(wf_par_zero_grad(t));
    GOOD(wf_par_step_begin(t, 1));
    GOOD(wf_par_backward(t, wf_par_gpt_loss(p->model, wf_par_micro_step_begin(t, &data))));
    SAYS(wf_par_forward_backward(t, &data), "1 of 2 micro-steps are done: wf_par_micro_step");
    SAYS(wf_par_optimizer_step(t, 1), "wf_par_optimizer_step was called, but 1 of 2 micro");
    GOOD(wf_par_backward(t, wf_par_gpt_loss(p->model, wf_par_micro_step_begin(t, &data))));
    SAYS(wf_par_micro_step_begin(t, &data), "2 of 2 micro-steps are done: wf_par_reduce comes");
    SAYS(wf_par_gradient(t, p->gpt->norm->gain), "wf_par_reduce comes next");
    SAYS(wf_par_clip(t, 1, NULL), "wf_par_clip was called, but 2 of 2");
    GOOD(wf_par_reduce(t, &loss));
    NEED(loss > 1);
    SAYS(wf_par_reduce(t, &loss), "the gradients of step 1 are reduced: wf_par_optimizer_step");
    SAYS(wf_par_gradient(t, &other), "somebody.else is no parameter of the model");
    NEED(wf_par_gradient(t, p->gpt->norm->gain));
    GOOD(wf_par_evaluate(t, 1, &data, NULL, &loss)); /* gradients stay */
    NEED(wf_par_gradient(t, p->gpt->norm->gain));
    GOOD(wf_par_optimizer_step(t, 0));
    SAYS(wf_par_clip(t, 1, NULL), "no step has begun");
    wf_par_step_begin(t, 2);
    wf_par_micro_step_begin(t, &data); /* left so: closing the trainer ends it */
    return wf_context_status(p->ctx);
}

static wf_status wrong_losses(part *p, wf_par_trainer *t)
{
    const wf_par_data data = {.read = count_up}, empty = {.read = NULL};
    const wf_par_batch *batch;
    wf_rank *rank = p->rank;

    GOOD(wf_par_step_begin(t, 1));
    wf_par_micro_step_begin(t, &data);
    SAYS(wf_par_backward(t, NULL), "the loss function returned NULL");
    GOOD(wf_par_step_begin(t, 1));
    batch = wf_par_micro_step_begin(t, &data);
    wf_par_backward(t, wf_par_batch_tensor(batch, "tokens"));
    GOOD(refused(rank, p->ctx, NULL, WF_ESHAPE, "the loss is i32 [8,16]"));
    GOOD(wf_par_step_begin(t, 1));
    wf_par_micro_step_begin(t, &data);
    wf_par_backward(t, wf_nn_use(p->gpt->norm, p->gpt->norm->gain));
    GOOD(refused(rank, p->ctx, NULL, WF_ESHAPE, "it has to be of floats: [8, ..] with"));
    GOOD(wf_par_step_begin(t, 1));
    batch = wf_par_micro_step_begin(t, &data);
    wf_par_backward(t, wf_nn_call(p->model, wf_par_batch_tensor(batch, "tokens")));
    GOOD(refused(rank, p->ctx, NULL, WF_ESHAPE,
                 "more dims than any field of the batch, as log"));
    GOOD(wf_par_step_begin(t, 1));
    batch = wf_par_micro_step_begin(t, &data);
    SAYS(wf_par_batch_tensor(batch, "pixels"),
         "a batch has no field pixels; the trainer's options name these: tokens, targets");
    GOOD(wf_par_step_begin(t, 1));
    SAYS(wf_par_micro_step_begin(t, &empty), "there is no data to read a batch from");
    GOOD(wf_par_step_begin(t, 1));
    batch = wf_par_micro_step_begin(t, NULL);
    SAYS(wf_par_batch_tensor(batch, "tokens"), "field tokens of the batch was not read");
    return wf_par_zero_grad(t);
}

/* Loss and norm that are not finite, of a loop that has no data to show. */
static wf_status not_finite(part *p, wf_par_trainer *t)
{
    const wf_par_data data = {.read = count_up};
    wf_rank *rank = p->rank;

    for (int i = 0; i < 2; i++) {
        GOOD(wf_par_step_begin(t, 1));
        GOOD(wf_par_forward_backward(t, &data));
        GOOD(wf_par_reduce(t, NULL));
        NEED(wf_par_check_finite(t, 1, INFINITY, i ? &data : NULL) == WF_ENONFINITE);
        NEED(wf_par_optimizer_step(t, 1) == WF_ENONFINITE);
        GOOD(refused(rank, p->ctx, NULL, WF_ENONFINITE,
                     i ? "no op makes it" : "with the step's data and a loss function"));
    }
    return WF_OK;
}

typedef struct misuse {
    training t;
    wf_status (*work)(part *, wf_par_trainer *);
} misuse;

static wf_status misuse_rank(wf_rank *rank, void *arg)
{
    misuse *m = arg;

    return on_trainer(rank, &m->t, m->work, NULL);
}

static void misused(wf_status (*work)(part *, wf_par_trainer *))
{
    misuse m = {new_training(LLAMA, 3, BATCH), work};

    m.t.options.micro_batch = BATCH / 2;
    run_ranks(1, misuse_rank, &m);
}

static void parts_out_of_order(void)
{
    misused(out_of_order);
}

static void losses_that_are_none(void)
{
    misused(wrong_losses);
}

static void numbers_that_are_not_finite(void)
{
    misused(not_finite);
}

int main(void)
{
    static const wf_test tests[] = {
        {"gpt2 by hand: the bits of wf_par_train_step", gpt2_by_hand},
        {"llama by hand", llama_by_hand},
        {"gradients changed in place, and steps given up", gradients_in_place},
        {"parts out of order", parts_out_of_order},
        {"losses that are none", losses_that_are_none},
        {"numbers that are not finite", numbers_that_are_not_finite},
        {NULL, NULL},
    };

    return wf_test_main("parts_of_step", tests);
}
