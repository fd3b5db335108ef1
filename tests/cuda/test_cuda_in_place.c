/*
 * tests/cuda/test_cuda_in_place.c - initialisation and optimizers on the emulated GPU, which
 * have the CPU's bits, and casts, which have those of core/numerics/bf16.h.
 */
#include "core/host_data.h"
#include "core/numerics/bf16.h"
#include "core/numerics/random.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/devices.h"
#include "kernels/parameters.h"
#include "kernels/shared_internal.h"
#include "nn/optim/muon.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>
#include <string.h>

#define WITH(attr) &attr, sizeof attr

/* The CPU's kernel on the same operands. */
static void on_cpu(const wf_call *like, numbers *in)
{
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cpu_device(1, &error);
    wf_context *cpu = wf_context_open(device, NULL, &error);
    wf_call call = *like;

    CU_ASSERT_PTR_NOT_NULL_FATAL(cpu);
    call.ctx = cpu;
    for (int i = 0; i < call.n_in; i++) {
        in[i].t.ctx = cpu;
        in[i].t.data = in[i].host;
        call.in[i] = &in[i].t;
    }
    CU_ASSERT_EQUAL(device->kernel(device, call.op)->run(&call, NULL), WF_OK);
    wf_context_close(cpu);
}

/* Expressions of + - * / sqrt and fma have one result on any device. */
static void try_in_place(const char *name, const void *attr, size_t attr_size, int n_in,
                         int64_t size, int part)
{
    const wf_dim dims[] = {wf_dim_chunked(7), wf_dim_chunked(size)};
    wf_call call = {.op = wf_op_find(name), .attr = attr, .attr_size = attr_size, .n_in = n_in};
    numbers gpu[WF_MAX_INPUTS], cpu[WF_MAX_INPUTS];

    for (int i = 0; i < n_in; i++) {
        numbers whole;

        whole = random_numbers(2, dims, WF_F32);
        for (int64_t k = 0; i == 3 && k < wf_tensor_local_count(&whole.t); k++)
            ((float *)whole.host)[k] *= ((float *)whole.host)[k]; /* a variance */
        gpu[i] = part_of(&whole, 1, 4, part);
        cpu[i] = part_of(&whole, 1, 4, part);
        free(whole.host);
    }
    run_on_device(&call, gpu, NULL, false);
    on_cpu(&call, cpu);
    for (int i = 0; i < n_in; i++) {
        bool alike = memcmp(gpu[i].host, cpu[i].host, bytes_of(&cpu[i].t)) == 0;

        CU_ASSERT(alike);
        if (!alike)
            printf("\n%s: operand %d is not the CPU's, part %d of %d\n", name, i, part,
                   (int)size);
        free(gpu[i].host);
        free(cpu[i].host);
    }
}

static void in_place(void)
{
    static const wf_update update = {.lr = 1e-3F,
                                     .beta1 = 0.9F,
                                     .beta2 = 0.95F,
                                     .eps = 1e-8F,
                                     .weight_decay = 0.1F,
                                     .bias1 = 10,
                                     .bias2 = 20,
                                     .grad_scale = 0.7F};
    static const wf_init_attr attr = {.key = 5, .stream = 77, .arg = {-1.5F, 0.5F, -2.25F, -1}};
    static const double eps = 1e-7;
    static const char *const inits[] = {"init_fill", "init_normal", "init_uniform",
                                        "init_truncated", "init_scale"};
    static const int64_t sizes[] = {1, 31, 64, 1000};

    open_context(false);
    for (int s = 0; s < 4; s++)
        for (int part = 0; part < 4; part++) {
            for (int i = 0; i < 5; i++)
                try_in_place(inits[i], WITH(attr), 1, sizes[s], part);
            try_in_place("adamw", WITH(update), 4, sizes[s], part);
            try_in_place("sgd", WITH(update), 3, sizes[s], part);
            try_in_place("unit_norm", WITH(eps), 1, sizes[s], part);
        }
    close_context();
}

/* Floats as bf16 and back, in the device's own table: ties, denormals, infinities, and
   addresses that are not aligned. Of a NaN only that it is one. */
static void cast_of(wf_device *device, const float *x, int64_t n, int64_t shift)
{
    wf_allocator *a = &device->allocator;
    size_t wide = (size_t)(n + shift) * sizeof(float), narrow = wide / 2;
    float *floats = a->alloc(a->self, wide), back[64];
    uint16_t *halves = a->alloc(a->self, narrow), half[64];
    wf_error error = {WF_OK, ""};

    CU_ASSERT_FATAL(floats && halves && n <= 64);
    device->memory->write(device, floats + shift, x, (size_t)n * sizeof *x);
    device->narrow(device, floats + shift, halves + shift, n);
    device->widen(device, halves + shift, floats + shift, n);
    CU_ASSERT_EQUAL(device->memory->read(device, half, halves + shift, (size_t)n * 2, &error),
                    WF_OK);
    CU_ASSERT_EQUAL(device->memory->read(device, back, floats + shift, (size_t)n * 4, &error),
                    WF_OK);
    for (int64_t i = 0; i < n; i++) {
        float expected = wf_bf16_value(wf_bf16_of(x[i]));

        CU_ASSERT(x[i] != x[i] ? (half[i] & 0x7fff) > 0x7f80 : half[i] == wf_bf16_of(x[i]));
        CU_ASSERT(x[i] != x[i] ? back[i] != back[i]
                               : memcmp(&back[i], &expected, sizeof expected) == 0);
    }
    a->release(a->self, floats, wide);
    a->release(a->self, halves, narrow);
}

static void casts(void)
{
    static const uint32_t special[] = {0,          0x80000000u, 0x3f808000u, 0x3f818000u,
                                       0x00000001, 0x807fffffu, 0x00800000u, 0x7f7fffffu,
                                       0x7f800000, 0xff800000u, 0x7fc00000u, 0xff800001u};
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error);
    wf_context *own = wf_context_open(device, NULL, &error);
    float x[64];

    CU_ASSERT_PTR_NOT_NULL_FATAL(own);
    for (int i = 0; i < 64; i++)
        x[i] = wf_random_normal(5, 9, (uint64_t)i);
    memcpy(x + 3, special, sizeof special);
    for (int64_t n = 1; n <= 64; n += 7)
        for (int64_t shift = 0; shift < 3; shift++)
            cast_of(device, x, n, shift);
    wf_context_close(own);
}

/* Orthogonalizes a matrix, of which elements are written to `out`; returns what the device was
   asked for. */
static wf_device_counts orthogonalized(wf_device *device, int64_t rows, int64_t columns,
                                       float *out)
{
    const wf_dim dims[] = {wf_dim_width(rows), wf_dim_width(columns)};
    wf_error error = {WF_OK, ""};
    wf_context *own = wf_context_open(device, NULL, &error);
    wf_device_counts before = {0}, after = {0};
    wf_tensor *x;

    CU_ASSERT_PTR_NOT_NULL_FATAL(own);
    x = wf_tensor_new(own, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_init_normal(x, 0, 3, 11);
    if (device->counts)
        before = device->counts();
    CU_ASSERT_EQUAL(wf_nn_orthogonalize(x), WF_OK);
    if (device->counts)
        after = device->counts();
    CU_ASSERT_EQUAL(wf_data_get(x, 0, rows * columns, out), WF_OK);
    wf_context_close(own);
    return (wf_device_counts){after.launches - before.launches, after.syncs - before.syncs,
                              after.waits - before.waits};
}

/* Muon's directions have the CPU's bits; nothing of them waits for the host. */
static void directions(void)
{
    enum { SHORT = 24, LONG = 40 };
    float cpu[SHORT * LONG], gpu[SHORT * LONG];
    wf_error error = {WF_OK, ""};

    for (int tall = 0; tall < 2; tall++) {
        const int64_t rows = tall ? LONG : SHORT, columns = tall ? SHORT : LONG;
        wf_device_counts asked;

        orthogonalized(wf_cpu_device(1, &error), rows, columns, cpu);
        asked = orthogonalized(wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error), rows,
                               columns, gpu);
        CU_ASSERT(memcmp(cpu, gpu, sizeof cpu) == 0);
        CU_ASSERT_EQUAL(asked.syncs, 0);
        CU_ASSERT_EQUAL(asked.launches, 3 + 5 * 5 + 2);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"in place, as on the CPU", in_place},
                                    {"casts", casts},
                                    {"directions of Muon", directions},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_in_place", tests);
}
