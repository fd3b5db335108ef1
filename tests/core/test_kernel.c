/* tests/core/test_kernel.c - what the kernel of an op may do: ask for memory, fail, or not be
   there. */
#include "tests/core/core_harness.h"

/* An op whose kernel fails, asks for memory, or has a shape of its own. */
typedef struct odd_attr {
    wf_status status;
    size_t workspace;
    const char *text;
} odd_attr;

static wf_status odd_run(const wf_call *call, void *workspace)
{
    const odd_attr *attr = call->attr;

    if (attr->workspace)
        memset(workspace, 0xff, attr->workspace);
    if (attr->text)
        return wf_fail(call->ctx, attr->status, "odd: %s", attr->text);
    return attr->status;
}

static size_t odd_workspace(const wf_call *call)
{
    return ((const odd_attr *)call->attr)->workspace;
}

static wf_status odd_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    if (call->in[0]->ndim != 1)
        return WF_ESHAPE;
    *ndim = out;
    dims[0] = wf_dim_width(5);
    return WF_OK;
}

static const wf_op odd_op = {.name = "odd",
                             .signature = "...->...,...",
                             .shape = odd_shape,
                             .reference = {.run = odd_run, .workspace = odd_workspace}};

static wf_status odd(wf_tensor *x, const odd_attr *attr, wf_call *call)
{
    *call = (wf_call){.op = &odd_op,
                      .n_in = 1,
                      .in = {x},
                      .n_out = 2,
                      .attr = attr,
                      .attr_size = sizeof *attr};
    return wf_dispatch(call);
}

static void kernels_of_all_kinds(void)
{
    static const double value[] = {1, 2};
    wf_context *ctx = open_reference(1024);
    wf_tensor *x = make(ctx, 0, 2, value), *matrix = make(ctx, 1, 2, value);
    wf_memory_report report;
    wf_call call;

    CU_ASSERT_EQUAL(odd(x, &(odd_attr){.workspace = 500}, &call), WF_OK);
    CU_ASSERT_FATAL(call.out[0] && call.out[1]);
    CU_ASSERT_TRUE(call.out[0]->ndim == 0 && wf_tensor_count(call.out[1]) == 5);
    wf_pool_report(wf_context_pool(ctx), &report);
    CU_ASSERT_EQUAL(report.now[WF_MEMORY_WORKSPACE], 0);
    CU_ASSERT_EQUAL(report.at_peak[WF_MEMORY_WORKSPACE], 512);

    wf_scope_open(ctx);
    CU_ASSERT_EQUAL(odd(x, &(odd_attr){.workspace = 2000}, &call), WF_ENOMEM);
    CU_ASSERT_TRUE(!call.out[0] && !call.out[1]);
    CU_ASSERT_TRUE(
        refused(ctx, WF_ENOMEM, "odd: out of memory: 2000 bytes for kernel workspace"));
    CU_ASSERT_EQUAL(odd(x, &(odd_attr){WF_EIO, 0, NULL}, &call), WF_EIO);
    CU_ASSERT_TRUE(refused(ctx, WF_EIO, "rank 3: odd failed"));
    CU_ASSERT_EQUAL(odd(x, &(odd_attr){WF_EIO, 64, "the disk is full"}, &call), WF_EIO);
    CU_ASSERT_TRUE(refused(ctx, WF_EIO, "rank 3: odd: the disk is full"));
    CU_ASSERT_EQUAL(odd(matrix, &(odd_attr){WF_OK, 0, NULL}, &call), WF_ESHAPE);
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "odd failed"));
    wf_scope_close(ctx);
    wf_pool_report(wf_context_pool(ctx), &report);
    CU_ASSERT_EQUAL(report.in_use, 256); /* x, matrix and the two results that stayed */
    wf_context_close(ctx);
}

static const wf_kernel odd_kernel = {.run = odd_run}, hollow = {.run = NULL};
static const wf_op of_others = {.name = "mine",
                                .signature = "->",
                                .kernels =
                                    WF_KERNELS({"abacus", &odd_kernel}, {"cpus", &odd_kernel})},
                   of_none = {.name = "mine", .signature = "->"},
                   of_no_row = {.name = "mine", .signature = "->", .id = 1 << 20},
                   of_nothing = {.name = "mine",
                                 .signature = "->",
                                 .kernels =
                                     WF_KERNELS({"abacus", &odd_kernel}, {"cpu", &hollow})};

/* An application's op that cannot run here is refused, in a plan as in a run: it has no kernel
   for the device, no list at all, or a kernel without a function. */
static void no_kernel_for_the_device(void)
{
    static const struct {
        const wf_op *op;
        const char *says;
    } rows[] = {{&of_others, "mine has no kernel for device cpu: write one, and list it in "
                             ".kernels of the op as {\"cpu\", &kernel}"},
                {&of_none, "mine has no kernel for device cpu: write one"},
                {&of_no_row, "mine has no kernel for device cpu: write one"},
                {&of_nothing, "mine: its kernel for device cpu has no function: fill in .run"}};

    for (int plan = 0; plan < 2; plan++) {
        wf_context *cpu = wf_context_open(wf_cpu_device(1, NULL),
                                          &(wf_context_options){.rank = 3, .plan = plan}, NULL);
        wf_tensor *x;

        CU_ASSERT_PTR_NOT_NULL_FATAL(cpu);
        x = wf_tensor_new(cpu, WF_F32, 0, NULL, NULL, WF_MEMORY_ACTIVATION);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            CU_ASSERT_PTR_NULL(wf_apply(rows[i].op, NULL, 0, 1, x));
            CU_ASSERT_TRUE(refused(cpu, WF_EUNSUPPORTED, rows[i].says));
        }
        wf_context_close(cpu);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"kernels of all kinds", kernels_of_all_kinds},
                                    {"no kernel for the device", no_kernel_for_the_device},
                                    {NULL, NULL}};

    return wf_test_main("kernels of an op", tests);
}
