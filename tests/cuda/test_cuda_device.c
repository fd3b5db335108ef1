/*
 * tests/cuda/test_cuda_device.c - the device of the plugin: its table of kernels is whole,
 * versions are compared, and what the host asks of far memory is what the CPU would have done.
 */
#include "core/numerics/digest.h"
#include "core/host_data.h"
#include "core/plugin.h"
#include "core/numerics/squares.h"
#include "kernels/cuda_host_internal.h"
#include "kernels/op_table_internal.h"
#include "tests/cuda/gpu_main.h"
#include "tests/mesh/ranks.h"
#include <dlfcn.h>
#include <math.h>

static const char *const names[] = {
    [WF_ID_none] = "",
#define OP(name, signature, flags) [WF_ID_##name] = #name,
#include "kernels/ops.def"
#undef OP
};

static const bool listed[WF_ID_count] = {
#define MISSING(name, reason) [WF_ID_##name] = true,
#include "kernels/cuda/missing.def"
#undef MISSING
    [WF_ID_none] = false};

static wf_context *open_context(size_t limit)
{
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error);
    wf_context *ctx =
        wf_context_open(device, &(wf_context_options){.memory_limit = limit}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

/* Rows without a kernel are those of missing.def, and no others. */
static void table_is_whole(void)
{
    wf_error error = {WF_OK, ""};
    const wf_cuda_plugin *plugin =
        wf_plugin_find(&(wf_plugin_ask){.name = "cuda", .what = "device cuda"}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(plugin);
    for (int id = 1; id < WF_ID_count; id++) {
        const char *why = plugin->missing(id);

        CU_ASSERT_EQUAL(why != NULL, listed[id]);
        if ((why != NULL) != listed[id])
            printf("\n    %s: %s", names[id],
                   why ? "no kernel, and not in missing.def" : "a kernel, and in missing.def");
    }
    CU_ASSERT_PTR_NULL(plugin->missing(0)); /* an application's op brings its own */
}

static void versions(void)
{
    char path[4096];
    const wf_cuda_host host = {
        .size = sizeof host, .version = WF_CUDA_VERSION, .ops = WF_ID_count};
    wf_cuda_host other = host;
    wf_cuda_entry *entry;
    void *library, *symbol;

    snprintf(path, sizeof path, "%s/libweft_cuda.so", getenv("WEFT_PLUGINS"));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(library);
    symbol = dlsym(library, "wf_plugin");
    CU_ASSERT_PTR_NOT_NULL_FATAL(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    other.size--;
    CU_ASSERT_PTR_NULL(entry(&other));
    other = host;
    other.version++;
    CU_ASSERT_PTR_NULL(entry(&other));
    other = host;
    other.ops++;
    CU_ASSERT_PTR_NULL(entry(&other));
    dlclose(library);
}

static wf_tensor *new_tensor(wf_context *ctx, int64_t rows, int64_t columns, int member)
{
    wf_dim dims[] = {wf_dim_batch(rows), wf_dim_chunked(columns)};

    return gpu_filled(wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION), member);
}

static void bytes_there_and_back(void)
{
    enum { ROWS = 37, COLUMNS = 41 };
    wf_context *ctx = open_context(0);
    wf_device *device = wf_context_device(ctx);
    wf_tensor *a = new_tensor(ctx, ROWS, COLUMNS, 1), *b = new_tensor(ctx, ROWS, COLUMNS, 2);
    float *x, *y, one = 0;
    wf_host_data vx, vy;

    /* columns 5 .. 14 of a to columns 20 .. 29 of b, then b's first floats one element on */
    device->memory->copy(device,
                         &(wf_copy){.from = (float *)a->data + 5,
                                    .to = (float *)b->data + 20,
                                    .bytes = 10 * sizeof(float),
                                    .from_step = COLUMNS * sizeof(float),
                                    .to_step = COLUMNS * sizeof(float),
                                    .rows = ROWS},
                         false, NULL);
    device->memory->copy(device,
                         &(wf_copy){.from = b->data,
                                    .to = (float *)b->data + 1,
                                    .bytes = 18 * sizeof(float),
                                    .rows = 1},
                         false, NULL);
    device->memory->fill(device, (float *)b->data + 38, 0x80000000u, 3);
    x = (float *)(uintptr_t)wf_data_read(a, &vx);
    y = (float *)(uintptr_t)wf_data_read(b, &vy);
    CU_ASSERT_FATAL(x && y);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            float want = number(2, 0, r * COLUMNS + c);

            if (c >= 20 && c < 30)
                want = x[r * COLUMNS + c - 15];
            else if (r == 0 && c >= 1 && c < 19)
                want = number(2, 0, c - 1);
            else if (r == 0 && c >= 38)
                want = -0.0f;
            CU_ASSERT(memcmp(&y[r * COLUMNS + c], &want, sizeof want) == 0);
        }
    CU_ASSERT_EQUAL(wf_data_get(b, 38, 1, &one), WF_OK);
    CU_ASSERT(one == 0 && signbit(one));
    wf_data_close(&vx);
    wf_data_close(&vy);
    wf_context_close(ctx);
}

/* A batch is written, changed on the host at once and written again, more often than there are
   places on the way. */
static void writes_do_not_wait(void)
{
    wf_context *ctx = open_context(0);
    wf_tensor *t[9];

    for (int i = 0; i < 9; i++)
        t[i] = new_tensor(ctx, 3, 5, i);
    for (int i = 0; i < 9; i++) {
        float x[15];

        CU_ASSERT_EQUAL(wf_data_get(t[i], 0, 15, x), WF_OK);
        for (int64_t k = 0; k < 15; k++)
            CU_ASSERT_EQUAL(x[k], number(i, 0, k));
    }
    wf_context_close(ctx);
}

/* The bits of the CPU: a tree has one order. */
static void sums_over_ranks(void)
{
    enum { MEMBERS = 7, N = 1003 };
    wf_context *ctx = open_context(0);
    wf_device *device = wf_context_device(ctx);
    wf_tensor *t[MEMBERS];
    const void *src[MEMBERS];
    const float *host[MEMBERS];
    wf_host_data view[MEMBERS];
    float want[N], got[N];

    for (int tree = 0; tree < 2; tree++) {
        wf_error error = {WF_OK, ""};
        void *dst[2];

        for (int i = 0; i < MEMBERS; i++) {
            t[i] = new_tensor(ctx, 1, N, i);
            src[i] = t[i]->data;
            host[i] = wf_data_read(t[i], &view[i]);
        }
        test_sum(host, MEMBERS, tree, want, N);
        dst[0] = t[0]->data;
        dst[1] = t[3]->data;
        CU_ASSERT_EQUAL(device->memory->wait(device, &error), WF_OK);
        CU_ASSERT_EQUAL(device->memory->reduce(device,
                                               &(wf_reduce){.src = src,
                                                            .dst = dst,
                                                            .n_src = MEMBERS,
                                                            .n_dst = 2,
                                                            .element = 4,
                                                            .out_element = 4,
                                                            .tree = tree,
                                                            .n = N},
                                               1, false, &error),
                        WF_OK);
        for (int i = 0; i < 4; i += 3) {
            CU_ASSERT_EQUAL(wf_data_get(t[i], 0, N, got), WF_OK);
            CU_ASSERT(memcmp(got, want, sizeof want) == 0);
        }
        for (int i = 0; i < MEMBERS; i++)
            wf_data_close(&view[i]);
    }
    wf_context_close(ctx);
}

enum { SQUARED = 40 };

/* Returns the sum of squares of more tensors than a launch takes, some without elements, and of
   `special`. */
static double squares_on(wf_device *device, float special, wf_error *error)
{
    wf_context *ctx = wf_context_open(device, NULL, error);
    wf_tensor *vector = wf_tensor_new(ctx, WF_F32, 1, (wf_dim[]){wf_dim_chunked(1)}, NULL,
                                      WF_MEMORY_ACTIVATION);
    wf_host_data view;
    wf_tensor *list[SQUARED];
    wf_squares squares;
    wf_exact_sum sum;
    float *x = wf_data_write(vector, false, &view);

    x[0] = special;
    wf_data_close(&view);
    wf_squares_begin(&squares, ctx);
    for (int i = 0; i < SQUARED; i++)
        list[i] = i == 7 ? new_tensor(ctx, 411, 3, 4) : new_tensor(ctx, i % 5, 7 * i, 3);
    wf_squares_add(&squares, SQUARED, list);
    wf_squares_add(&squares, 1, &vector);
    CU_ASSERT_EQUAL(wf_squares_end(&squares, &sum), WF_OK);
    wf_context_close(ctx);
    return wf_exact_value(&sum);
}

static void squares(void)
{
    const float special[] = {0, -1e-30f, 3e38f, INFINITY, NAN};
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < 5; i++) {
        wf_device *gpu = wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error);
        double there = squares_on(gpu, special[i], &error);
        double here = squares_on(wf_cpu_device(1, &error), special[i], &error);

        CU_ASSERT(isnan(here) ? isnan(there) : here > 0 && here == there);
    }
}

/* Parts of a tensor of three dims, as layouts cut them: the elements' places in the whole
   count. */
static void digests(void)
{
    const wf_dim dims[] = {wf_dim_batch(7), wf_dim_chunked(12), wf_dim_chunked(5)};
    const int64_t size[] = {7, 12, 5};
    const struct {
        int64_t start[3], local[3];
    } parts[] = {{{0, 0, 0}, {7, 12, 5}}, {{2, 0, 0}, {3, 12, 5}}, {{0, 4, 0}, {7, 8, 5}},
                 {{0, 0, 3}, {7, 12, 2}}, {{1, 5, 2}, {2, 3, 1}},  {{7, 0, 0}, {0, 12, 5}}};
    wf_context *ctx = open_context(0);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_host_data view;
    float *x = wf_data_write(t, false, &view), host[7 * 12 * 5];

    for (int i = 0; i < 7 * 12 * 5; i++)
        x[i] = host[i] = number(1, 2, i);
    wf_data_close(&view);
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        wf_tensor part = *t;
        uint64_t got = 1, want;

        memcpy(part.start, parts[p].start, sizeof parts[p].start);
        memcpy(part.local, parts[p].local, sizeof parts[p].local);
        want = wf_digest_part(42, 2, 3, size, part.start, part.local, host);
        CU_ASSERT_EQUAL(wf_context_device(ctx)->memory->digest(&part, 42, 2, &got), WF_OK);
        CU_ASSERT_EQUAL(got, want);
    }
    wf_context_close(ctx);
}

static void what_cannot_be(void)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx;

    CU_ASSERT_PTR_NULL(wf_cuda_device(&(wf_cuda_options){.ordinal = 99}, &error));
    CU_ASSERT_EQUAL(error.code, WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "there is no GPU 99"));
    ctx = open_context(1 << 20);
    CU_ASSERT_PTR_NULL(wf_tensor_new(ctx, WF_F32, 1, (wf_dim[]){wf_dim_chunked(1 << 20)}, NULL,
                                     WF_MEMORY_ACTIVATION));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_ENOMEM);
    wf_context_close(ctx);
    ctx = open_context(0); /* more than any device has */
    CU_ASSERT_PTR_NULL(wf_tensor_new(ctx, WF_F32, 1, (wf_dim[]){wf_dim_chunked(1ll << 40)},
                                     NULL, WF_MEMORY_ACTIVATION));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_ENOMEM);
    wf_context_close(ctx);
}

/* By its name a rank gets the device of its index among the ranks of its host; a plan has
   none. */
static void locations(void)
{
    wf_device_options options = {.local_rank = 5, .local_size = 7, .cuda_graph = true};
    wf_error error = {WF_OK, ""};
    wf_device *device;
    int gpus;

    setenv("WEFT_EMULATOR_DEVICES", "3", 1); /* real ones are as many as there are */
    gpus = wf_cuda_count(false, &error);
    device = wf_device_open("cuda", &options, &error);
    unsetenv("WEFT_EMULATOR_DEVICES");
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    CU_ASSERT(device->location.ordinal == 5 % gpus && device->location.devices == gpus);
    CU_ASSERT(device->location.ranks == 7 && device->graphs != NULL);
    device->close(device);
    options.plan = true;
    device = wf_device_open("cuda", &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    CU_ASSERT_EQUAL(device->location.devices, 0);
    device->close(device);
}

static wf_status cube_on_cpu(const wf_call *call, void *workspace)
{
    (void)call, (void)workspace;
    return WF_OK;
}

static const wf_kernel cube_kernel = {.run = cube_on_cpu};
static const wf_op cube_op = {.name = "cube",
                              .signature = "...->...",
                              .reference = {.run = cube_on_cpu},
                              .kernels = WF_KERNELS({"cpu", &cube_kernel})};

/* Runs an op that an application has for the CPU alone, attention of a head that is too wide
   for a GPU, and of one that is not; text gets the device's errors. */
static wf_status refusals(bool plan, char text[2][sizeof((wf_error *)NULL)->text])
{
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cuda_device(&(wf_cuda_options){.plan = plan}, &error);
    wf_context *ctx = wf_context_open(device, &(wf_context_options){.plan = plan}, &error);
    wf_tensor *x[2];
    wf_status status;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    for (int i = 0; i < 2; i++) {
        const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(4), wf_dim_chunked(2),
                               wf_dim_width(i ? 512 : 32)};

        x[i] = wf_tensor_new(ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);
    }
    CU_ASSERT_PTR_NULL(wf_apply(&cube_op, NULL, 0, 1, x[0]));
    snprintf(text[0], sizeof text[0], "%s", wf_context_error(ctx)->text);
    wf_context_clear(ctx);
    CU_ASSERT_PTR_NULL(wf_attention(x[1], x[1], x[1], &(wf_attention_options){.causal = true}));
    snprintf(text[1], sizeof text[1], "%s", wf_context_error(ctx)->text);
    wf_context_clear(ctx);
    CU_ASSERT_PTR_NOT_NULL(
        wf_attention(x[0], x[0], x[0], &(wf_attention_options){.causal = true}));
    status = wf_context_status(ctx);
    wf_context_close(ctx);
    return status;
}

/* A plan needs no GPU to know what it would not run: the plugin tells it, in the words of a
   run. */
static void a_plan_refuses_what_a_run_does(void)
{
    char ran[2][sizeof((wf_error *)NULL)->text], planned[2][sizeof((wf_error *)NULL)->text];

    CU_ASSERT_EQUAL(refusals(false, ran), WF_OK);
    CU_ASSERT_EQUAL(refusals(true, planned), WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(
        ran[0], "cube has no kernel for device cuda: write one, and list it in .kernels of "
                "the op as {\"cuda\", &kernel}"));
    CU_ASSERT_PTR_NOT_NULL(strstr(ran[1], "attention: heads of 512 dims"));
    for (int i = 0; i < 2; i++)
        CU_ASSERT_STRING_EQUAL(planned[i], ran[i]);
}

int main(void)
{
    static const wf_test tests[] = {
        {"the table of kernels is whole", table_is_whole},
        {"versions are compared", versions},
        {"bytes go there and back", bytes_there_and_back},
        {"writes do not wait", writes_do_not_wait},
        {"sums over ranks", sums_over_ranks},
        {"squares are the CPU's", squares},
        {"digests are the CPU's", digests},
        {"what cannot be", what_cannot_be},
        {"locations of ranks", locations},
        {"a plan refuses what a run does", a_plan_refuses_what_a_run_does},
        {NULL, NULL}};

    return gpu_test_main("cuda_device", tests);
}
