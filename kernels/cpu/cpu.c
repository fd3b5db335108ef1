/* kernels/cpu/cpu.c - the fp32 CPU device. */
#include "kernels/cpu/cpu.h"
#include "kernels/devices.h"
#include <stdlib.h>

static const wf_kernel *kernel(const wf_device *device, const wf_op *op)
{
    (void)device;
    return op->cpu;
}

static void add(const wf_tensor *a, const wf_tensor *b, wf_tensor *out)
{
    wf_cpu *cpu = wf_context_device(a->ctx)->self;

    cpu->simd->add(a->data, b->data, out->data, wf_tensor_local_count(a));
}

static void close_device(wf_device *device)
{
    wf_cpu *cpu = device->self;

    wf_team_close(cpu->team);
    free(cpu);
}

wf_device *wf_cpu_device(int threads, wf_error *error)
{
    const char *why = NULL;
    const wf_simd *simd = wf_cpu_simd(&why);
    wf_cpu *cpu;

    if (!simd || threads < 1) {
        wf_error_set(error, WF_EINVAL, "%s",
                     simd ? "a CPU device needs at least one thread" : why);
        return NULL;
    }
    cpu = calloc(1, sizeof *cpu);
    if (!cpu) {
        wf_error_set(error, WF_ENOMEM, "no memory for a device");
        return NULL;
    }
    cpu->simd = simd;
    cpu->device = (wf_device){.name = "cpu",
                              .dtype = WF_F32,
                              .allocator = wf_host_allocator(),
                              .kernel = kernel,
                              .sum = simd->sum,
                              .maximum = simd->maximum,
                              .stream = simd->stream,
                              .sum_squares = simd->sum_squares,
                              .add = add,
                              .close = close_device,
                              .self = cpu};
    if (threads > 1) {
        cpu->team = wf_team_open(threads, error);
        if (!cpu->team) {
            free(cpu);
            return NULL;
        }
    }
    return &cpu->device;
}
