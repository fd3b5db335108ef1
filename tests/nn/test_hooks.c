/* tests/nn/test_hooks.c - a module's list of hooks: order, what they may replace, and when it
   is recomputed; and who takes the losses that modules add. */
#include "kernels/ops.h"
#include "nn/added_loss.h"
#include "nn/checkpointing.h"
#include "nn/children.h"
#include "tests/nn/model_ranks.h"

/* y = gain * x */
static wf_tensor *scaled_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_mul(x, wf_nn_weight(self, "gain"));
}

static wf_nn_module *scaled(wf_context *ctx, float gain)
{
    const wf_dim wide = wf_dim_width(3);
    wf_nn_parameter *p = wf_nn_parameter_new(ctx, 1, &wide, false);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    wf_tensor_release(p->tensor);
    wf_scope_open(ctx);
    p->tensor = wf_tensor_retain(three_of(ctx, gain));
    wf_scope_close(ctx);
    return wf_nn_module_new(ctx, "scaled", scaled_forward, WF_PARAMETER("gain", p));
}

static wf_tensor *run_inner(wf_nn_module *self, wf_tensor *x)
{
    return wf_nn_run(self, "inner", x);
}

static wf_nn_module *outer(wf_context *ctx)
{
    wf_nn_module *m =
        wf_nn_module_new(ctx, "outer", run_inner, WF_CHILD("inner", scaled(ctx, 3)));

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    wf_nn_name_tree(m);
    return m;
}

/* Writes its letter and that of what is called to one text, and multiplies what it is given. */
typedef struct scribe {
    char letter, *text;
    float x, y, dy, dx;
    int again;
} scribe;

static wf_tensor *note(scribe *s, const wf_nn_module *m, char what, wf_tensor *t, float factor)
{
    size_t n = strlen(s->text);

    s->text[n] = s->letter;
    s->text[n + 1] = what;
    s->text[n + 2] = 0;
    s->again += wf_nn_is_recomputing(m);
    return t && factor != 0 ? wf_scale(t, factor) : t;
}

static void enter(void *self, wf_nn_module *m)
{
    note(self, m, 'e', NULL, 0);
}

static void leave(void *self, wf_nn_module *m)
{
    note(self, m, 'l', NULL, 0);
}

static wf_tensor *pre_forward(void *self, wf_nn_module *m, wf_tensor *x)
{
    return note(self, m, 'x', x, ((scribe *)self)->x);
}

static wf_tensor *post_forward(void *self, wf_nn_module *m, wf_tensor *x, wf_tensor *y)
{
    CU_ASSERT_PTR_NOT_NULL(x);
    return note(self, m, 'y', y, ((scribe *)self)->y);
}

static wf_tensor *pre_backward(void *self, wf_nn_module *m, wf_tensor *dy)
{
    return note(self, m, 'Y', dy, ((scribe *)self)->dy);
}

static wf_tensor *post_backward(void *self, wf_nn_module *m, wf_tensor *dx)
{
    return note(self, m, 'X', dx, ((scribe *)self)->dx);
}

static wf_nn_hooks hooks_of(scribe *s)
{
    return (wf_nn_hooks){.enter = enter,
                         .leave = leave,
                         .pre_forward = pre_forward,
                         .post_forward = post_forward,
                         .pre_backward = pre_backward,
                         .post_backward = post_backward,
                         .self = s};
}

/* y and dx of a run on 1 with dy 1, and the gradient of m's gain. */
static void run(wf_nn_module *m, float got[3])
{
    wf_context *ctx = m->ctx;
    wf_nn_parameter *gain = wf_nn_parameter_of(wf_nn_child(m, "inner"), "gain");
    wf_tensor *x, *y;
    wf_tape *tape;

    wf_scope_open(ctx);
    tape = wf_tape_open(ctx);
    x = wf_leaf(three_of(ctx, 1));
    y = wf_nn_call(m, x);
    if (wf_backward(y, three_of(ctx, 1), false) == WF_OK) {
        got[0] = first_of(y);
        got[1] = first_of(x->grad);
        got[2] = wf_nn_leaves_of(gain, NULL)->uses == 1
                     ? first_of(wf_nn_leaves_of(gain, NULL)->use[0]->grad)
                     : -1;
    }
    wf_nn_forget_uses(gain);
    wf_tape_close(tape);
    wf_scope_close(ctx);
}

/* Each hook is around those that were added after it, on the way in, out, and back. */
static void order(void)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m = outer(ctx);
    char text[64] = "";
    scribe a = {.letter = 'a', .text = text}, b = {.letter = 'b', .text = text};
    wf_nn_hooks first = hooks_of(&a), second = hooks_of(&b);
    float got[3];

    CU_ASSERT_EQUAL(wf_nn_hook_add(m, &first), WF_OK);
    CU_ASSERT_EQUAL(wf_nn_hook_add(m, &second), WF_OK);
    run(m, got);
    CU_ASSERT_STRING_EQUAL(text, "aebeaxbxbyayblalaYbYbXaX");
    CU_ASSERT(got[0] == 3 && got[1] == 3 && got[2] == 1); /* who looks changes nothing */

    text[0] = 0;
    CU_ASSERT(wf_nn_hook_remove(m, &first));
    CU_ASSERT(!wf_nn_hook_remove(m, &first));
    run(m, got);
    CU_ASSERT_STRING_EQUAL(text, "bebxbyblbYbX");
    CU_ASSERT_EQUAL(wf_nn_hook_add(m, &second), WF_OK); /* twice */
    CU_ASSERT(wf_nn_hook_remove(m, &second) && wf_nn_hook_remove(m, &second));
    CU_ASSERT(!wf_nn_hook_remove(m, &second) && !wf_nn_hook_remove(NULL, &second));
    text[0] = 0;
    run(m, got);
    CU_ASSERT_STRING_EQUAL(text, "");
    wf_nn_free(m);
    close_lone(ctx, WF_OK);
}

/* y = 5 g (2 x); dy * 7 enters the module's gradients, and dx * 11 leaves it. */
static void replaced(void)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m = outer(ctx);
    char text[64] = "";
    scribe s = {.letter = 's', .text = text, .x = 2, .y = 5, .dy = 7, .dx = 11};
    wf_nn_hooks hooks = hooks_of(&s);
    float got[3];

    CU_ASSERT_EQUAL(wf_nn_hook_add(wf_nn_child(m, "inner"), &hooks), WF_OK);
    for (int again = 0; again < 2; again++) { /* also where it all happens in backward */
        CU_ASSERT_EQUAL(wf_nn_recompute(m, again ? "outer" : NULL), WF_OK);
        text[0] = 0;
        s.again = 0;
        run(m, got);
        CU_ASSERT_EQUAL(got[0], 2 * 3 * 5);
        CU_ASSERT_EQUAL(got[1], 7 * 5 * 3 * 11 * 2);
        CU_ASSERT_EQUAL(got[2], 7 * 5 * 2);
        CU_ASSERT_STRING_EQUAL(text, again ? "sesxsyslsesxsyslsYsX" : "sesxsyslsYsX");
        CU_ASSERT_EQUAL(s.again, again ? 4 : 0); /* those of the second forward */
    }
    wf_nn_free(m);
    close_lone(ctx, WF_OK);
}

/* The hooks of the module itself that runs again see one run. */
static void recomputed(void)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m = outer(ctx);
    char text[64] = "";
    scribe s = {.letter = 's', .text = text, .x = 2, .y = 5, .dy = 7, .dx = 11};
    wf_nn_hooks hooks = hooks_of(&s);
    float got[3];

    CU_ASSERT_EQUAL(wf_nn_hook_add(m, &hooks), WF_OK);
    CU_ASSERT_EQUAL(wf_nn_recompute(m, "outer"), WF_OK);
    run(m, got);
    CU_ASSERT_STRING_EQUAL(text, "sesxsyslsYsX");
    CU_ASSERT_EQUAL(s.again, 0);
    CU_ASSERT(got[0] == 2 * 3 * 5 && got[1] == 7 * 5 * 3 * 11 * 2 && got[2] == 7 * 5 * 2);
    wf_nn_free(m);
    close_lone(ctx, WF_OK);
}

static wf_tensor *nothing(void *self, wf_nn_module *m, wf_tensor *x)
{
    (void)self, (void)m, (void)x;
    return NULL;
}

static wf_tensor *shorter(void *self, wf_nn_module *m, wf_tensor *x)
{
    const wf_dim two = wf_dim_width(2);

    (void)self, (void)x;
    return wf_tensor_new(m->ctx, WF_F32, 1, &two, NULL, WF_MEMORY_ACTIVATION);
}

static void refused_hooks(void)
{
    static const struct {
        wf_nn_hooks hooks;
        wf_status code;
        const char *words;
    } wrong[] = {
        {{.pre_forward = nothing}, WF_EINVAL, "a forward hook of module inner returned NULL"},
        {{.pre_backward = nothing}, WF_EINVAL, "a backward hook of module inner returned NULL"},
        {{.post_backward = shorter}, WF_ESHAPE, "a backward hook of module inner changed"}};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wf_context *ctx = lone_context(1);
        wf_nn_module *m = outer(ctx);
        float got[3];

        CU_ASSERT_EQUAL(wf_nn_hook_add(wf_nn_child(m, "inner"), &wrong[i].hooks), WF_OK);
        run(m, got);
        CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, wrong[i].words));
        wf_nn_free(m);
        close_lone(ctx, wrong[i].code);
    }
    CU_ASSERT_EQUAL(wf_nn_hook_add(NULL, &wrong[0].hooks), WF_EINVAL);
}

static wf_status take_loss(void *self, wf_nn_module *m, const char *name, wf_tensor *loss,
                           float weight, bool first)
{
    int *taken = self;

    *taken += m && loss && first && weight == 0.5f && strcmp(name, "penalty") == 0;
    return WF_OK;
}

/* Returns whether a loss that a module adds in training or evaluation is taken. */
static bool is_taken(wf_nn_module *m, int *taken, bool training)
{
    wf_context *ctx = m->ctx;
    const int before = *taken;
    wf_tape *tape = wf_tape_open(ctx);

    wf_context_training(ctx, training);
    wf_scope_open(ctx);
    CU_ASSERT_EQUAL(wf_nn_adds_losses(m), training);
    wf_nn_add_loss(m, "penalty", three_of(ctx, 1), 0.5f);
    wf_scope_close(ctx);
    wf_tape_close(tape);
    return *taken > before;
}

/* Added losses come to the receiver until it says that it goes; another's going changes
   nothing, and an evaluation adds none. */
static void losses_that_modules_add(void)
{
    wf_context *ctx = lone_context(1);
    wf_nn_module *m = outer(ctx);
    int taken = 0, other = 0;

    wf_nn_receive_losses(ctx, take_loss, &taken);
    CU_ASSERT(is_taken(m, &taken, true) && !is_taken(m, &taken, false));
    wf_nn_receive_losses(ctx, NULL, &other);
    CU_ASSERT(is_taken(m, &taken, true) && taken == 2);
    wf_nn_receive_losses(ctx, NULL, &taken);
    CU_ASSERT_FALSE(wf_nn_adds_losses(m));
    wf_nn_free(m);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {{"order", order},
                                    {"what hooks replace", replaced},
                                    {"hooks of what runs again", recomputed},
                                    {"hooks that return what they may not", refused_hooks},
                                    {"losses that modules add", losses_that_modules_add},
                                    {NULL, NULL}};

    return wf_test_main("hooks", tests);
}
