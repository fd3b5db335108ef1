/* tests/nn/repeat_module.c - the module of repeat_module.h. */
#include "tests/nn/repeat_module.h"
#include "kernels/ops.h"
#include "tests/nn/model_ranks.h"

static wf_tensor *repeat_forward(wf_nn_module *self, wf_tensor *x)
{
    repeat *m = (repeat *)self;

    for (int i = 0; i < m->times; i++) {
        x = wf_nn_at(m, "in", x);
        x = wf_mul(x, wf_nn_use(m, m->gain));
    }
    return x;
}

const wf_nn_field repeat_fields[] = {
    {"gain", WF_NN_PARAMETER, offsetof(repeat, gain), 0},
    {"a_child_whose_name_takes_up_forty_letters", WF_NN_CHILD, offsetof(repeat, child), 0},
    {"list", WF_NN_CHILDREN, offsetof(repeat, list), offsetof(repeat, children)},
    {NULL, 0, 0, 0}};

static const wf_nn_type repeat_type = {"repeat",       sizeof(repeat), repeat_fields,
                                       repeat_forward, NULL,           "in"};

repeat *new_repeat(wf_context *ctx, int times)
{
    const wf_dim dim = wf_dim_width(3);
    repeat *m = wf_nn_new(ctx, &repeat_type);

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    m->times = times;
    m->gain = wf_nn_parameter_new(ctx, 1, &dim, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->gain);
    wf_tensor_release(m->gain->tensor);
    wf_scope_open(ctx);
    m->gain->tensor = wf_tensor_retain(three_of(ctx, 3));
    wf_scope_close(ctx);
    return m;
}
