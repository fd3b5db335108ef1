/*
 * tests/core/test_nf4.c - NF4 against a plain oracle over flat arrays: codes, scales and numbers, whatever part of a
 * matrix is stored; and ops that read it, which compute with the numbers that it stands for.
 */
#include "core/host_data.h"
#include "core/nf4_tensor.h"
#include "core/numerics/bf16.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/core/core_harness.h"
#include <math.h>
#include <stdlib.h>

/* A matrix as bitsandbytes would store it: codes one in a byte. */
typedef struct oracle {
    int64_t height, width, n, blocks, nested;
    float *value, *absmax, *scale_max, *number, offset;
    uint8_t *code, *scale_code;
} oracle;

static float least(float x)
{
    return x < 1e-38f ? 1e-38f : x;
}

/* Of levels in ascending order, by looking at all means of neighbours. */
static uint8_t level_of(const float *level, int n, float x, float most, bool full)
{
    int code = 0;

    x = full ? x * (1.0f / least(most)) : x / least(most);
    x = fminf(fmaxf(x, -1), 1);
    for (int i = 0; i + 1 < n; i++)
        code += (level[i] + level[i + 1]) / 2 < x;
    return (uint8_t)code;
}

static float greatest(const float *x, int64_t from, int64_t end, float less)
{
    float most = 0;

    for (int64_t i = from; i < end; i++)
        most = fmaxf(most, fabsf(x[i] - less));
    return most;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void *room(int64_t n, size_t element)
{
    void *p = calloc((size_t)n + 1, element);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

static void store_scales(oracle *o)
{
    double sum = 0;

    for (int64_t b = 0; b < o->blocks; b++)
        sum += (double)o->absmax[b];
    o->offset = (float)(sum / (double)o->blocks);
    for (int64_t k = 0; k < o->nested; k++) {
        int64_t end = least_of(o->blocks, (k + 1) * 256);
        bool full = end == (k + 1) * 256;
        float most = greatest(o->absmax, k * 256, end, o->offset);

        o->scale_max[k] = full ? most : least(most);
        for (int64_t b = k * 256; b < end; b++)
            o->scale_code[b] =
                level_of(wf_nf4_scale_levels, 256, o->absmax[b] - o->offset, most, full);
    }
}

static oracle store(int64_t height, int64_t width, const float *value)
{
    int64_t n = height * width, blocks = (n + 63) / 64, nested = (blocks + 255) / 256;
    oracle o = {.height = height, .width = width, .n = n, .blocks = blocks, .nested = nested};

    o.value = room(n, sizeof(float));
    o.absmax = room(blocks, sizeof(float));
    o.scale_max = room(nested, sizeof(float));
    o.number = room(n, sizeof(float));
    o.code = room(n, 1);
    o.scale_code = room(blocks, 1);
    memcpy(o.value, value, (size_t)n * sizeof *value);
    for (int64_t b = 0; b < blocks; b++) {
        o.absmax[b] = greatest(value, b * 64, least_of(n, b * 64 + 64), 0);
        for (int64_t i = b * 64; i < least_of(n, b * 64 + 64); i++)
            o.code[i] = level_of(wf_nf4_levels, 16, value[i], o.absmax[b], b * 64 + 64 <= n);
    }
    store_scales(&o);
    for (int64_t i = 0; i < n; i++) {
        float by = wf_nf4_scale_levels[o.scale_code[i / 64]] * o.scale_max[i / 16384];

        o.number[i] = wf_nf4_levels[o.code[i]] * (by + o.offset);
    }
    return o;
}

static void drop(oracle *o)
{
    free(o->value);
    free(o->absmax);
    free(o->scale_max);
    free(o->number);
    free(o->code);
    free(o->scale_code);
}

static uint32_t chance(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Numbers that test a rule each, by blocks: usual ones, zeros of both signs, means of levels and their neighbours,
   denormals, the largest and the smallest floats, one number among zeros. */
static void fill(float *x, int64_t n)
{
    uint32_t state = 7;

    for (int64_t i = 0; i < n; i++) {
        uint32_t r = chance(&state);
        float usual = ((float)(r % 4096) - 2047.5f) / 1e5f, sign = r & 1 ? -1.0f : 1.0f;
        int level = (int)(i % 15);
        float mean = (wf_nf4_levels[level] + wf_nf4_levels[level + 1]) / 2;

        switch (i / 64 % 8) {
        case 1:
            x[i] = sign * 0.0f;
            break;
        case 2:
            x[i] = i % 64 == 7 ? -1 : nextafterf(mean, (float)((int)(r % 3) - 1) * 2);
            break;
        case 3:
            x[i] = sign * (float)(r % 64) * 1e-41f;
            break;
        case 4:
            x[i] = i % 64 == 9 ? 3e38f : usual * 1e38f;
            break;
        case 5:
            x[i] = i % 64 == 63 ? -0.25f : 0;
            break;
        case 6:
            x[i] = i % 64 == 1 ? 0.5f : mean / 2;
            break;
        default:
            x[i] = usual;
            break;
        }
    }
}

static const struct {
    int64_t height, width;
} shapes[] = {{1, 1},   {1, 63},   {1, 64},    {5, 13},    {3, 64},    {9, 96},    {65, 65},
              {24, 40}, {40, 576}, {129, 130}, {128, 128}, {256, 128}, {33, 2048}, {7, 5000}};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Every part has the whole's codes, and stands for the whole's numbers. */
static void check_part(const oracle *o, const wf_nf4_part *part, const uint8_t *code,
                       const float *scales)
{
    size_t row = wf_nf4_row_bytes(part);
    int64_t n = part->rows * part->columns, wrong = 0;
    uint8_t *bytes = room((int64_t)row * part->rows, 1);
    uint8_t *copy = room((int64_t)row * part->rows, 1), *whole = room((o->n + 1) / 2, 1);
    float *value = room(n, sizeof *value), *number = room(n, sizeof *number);
    uint16_t *half = room(n, sizeof *half);

    for (int64_t i = 0; i < o->n; i++)
        whole[i / 2] |= (uint8_t)(i % 2 ? o->code[i] : o->code[i] << 4);
    for (int64_t i = 0; i < n; i++)
        value[i] = o->value[(part->first_row + i / part->columns) * o->width +
                            part->first_column + i % part->columns];
    wf_nf4_pack(part, value, o->absmax, code, bytes);
    for (int64_t r = 0; r < part->rows; r++)
        wf_nf4_copy_row(part, r, whole, 0, code, copy + (size_t)r * row);
    CU_ASSERT_EQUAL(memcmp(bytes, copy, row * (size_t)part->rows), 0);
    wf_nf4_widen(part, bytes, scales, 0, part->rows, number);
    wf_nf4_widen_bf16(part, bytes, scales, 0, part->rows, half);
    for (int64_t r = 0; r < part->rows; r++)
        for (int64_t c = 0; c < part->columns; c++) {
            int64_t i = (part->first_row + r) * o->width + part->first_column + c;
            uint8_t pair = bytes[(size_t)r * row + (size_t)(c / 2)];
            int64_t at = r * part->columns + c;

            wrong += (c % 2 ? pair & 15 : pair >> 4) != o->code[i];
            wrong += memcmp(&number[at], &o->number[i], sizeof(float)) != 0;
            wrong += half[at] != wf_bf16_of(o->number[i]);
        }
    CU_ASSERT_EQUAL(wrong, 0);
    free(bytes);
    free(copy);
    free(whole);
    free(value);
    free(number);
    free(half);
}

/* Scales by parts of any cut, which are the whole's; and what is stored with them. */
static void check_cut(const oracle *o, int64_t down, int64_t across)
{
    float *most = room(o->blocks, sizeof *most), *some = room(o->blocks, sizeof *some);
    float *scales = room(1 + o->nested, sizeof *scales);
    uint8_t *code = room(o->blocks, 1);
    wf_nf4_part part = {o->height, o->width, 0, 0, 0, 0};
    float *value;

    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < down * across; i++) {
            int64_t r = i / across, c = i % across;

            part.first_row = o->height * r / down;
            part.rows = o->height * (r + 1) / down - part.first_row;
            part.first_column = o->width * c / across;
            part.columns = o->width * (c + 1) / across - part.first_column;
            if (pass) {
                check_part(o, &part, code, scales);
                continue;
            }
            value = room(part.rows * part.columns, sizeof *value);
            for (int64_t k = 0; k < part.rows * part.columns; k++)
                value[k] = o->value[(part.first_row + k / part.columns) * o->width +
                                    part.first_column + k % part.columns];
            wf_nf4_absmax(&part, value, some);
            free(value);
            for (int64_t b = 0; b < o->blocks; b++)
                most[b] = fmaxf(most[b], some[b]);
        }
        wf_nf4_scales(o->blocks, most, code, scales);
    }
    CU_ASSERT_EQUAL(memcmp(most, o->absmax, (size_t)o->blocks * sizeof *most), 0);
    CU_ASSERT_EQUAL(memcmp(code, o->scale_code, (size_t)o->blocks), 0);
    CU_ASSERT_EQUAL(memcmp(scales + 1, o->scale_max, (size_t)o->nested * sizeof *scales), 0);
    CU_ASSERT(scales[0] == o->offset);
    free(most);
    free(some);
    free(scales);
    free(code);
}

static void parts_follow_the_rule(void)
{
    for (int s = 0; s < SHAPES; s++) {
        float *x = room(shapes[s].height * shapes[s].width, sizeof *x);
        oracle o;

        fill(x, shapes[s].height * shapes[s].width);
        o = store(shapes[s].height, shapes[s].width, x);
        for (int64_t down = 1; down <= 4; down += down < 3 ? 1 : 2)
            for (int64_t across = 1; across <= 8; across += across < 3 ? 1 : 5)
                check_cut(&o, down, across);
        drop(&o);
        free(x);
    }
}

/* Codes that are known: levels become themselves, means the level below, zeros the seventh. */
static void known_codes(void)
{
    float x[64] = {0}, absmax, scales[2];
    const wf_nf4_part part = {1, 64, 0, 1, 0, 64};
    uint8_t code, bytes[33];

    for (int i = 0; i < 16; i++)
        x[i] = wf_nf4_levels[i];
    for (int i = 0; i < 15; i++) {
        x[16 + i] = (wf_nf4_levels[i] + wf_nf4_levels[i + 1]) / 2;
        x[32 + i] = nextafterf(x[16 + i], 2);
    }
    CU_ASSERT_EQUAL(wf_nf4_row_bytes(&part), sizeof bytes);
    wf_nf4_absmax(&part, x, &absmax);
    CU_ASSERT_EQUAL(absmax, 1);
    wf_nf4_scales(1, &absmax, &code, scales);
    CU_ASSERT_EQUAL(scales[0], 1);
    CU_ASSERT_EQUAL(code, 127); /* less their mean nothing is left */
    wf_nf4_pack(&part, x, &absmax, &code, bytes);
    for (int i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(bytes[i], (2 * i << 4) + 2 * i + 1);
    for (int i = 0; i < 15; i++) {
        CU_ASSERT_EQUAL(i % 2 ? bytes[8 + i / 2] & 15 : bytes[8 + i / 2] >> 4, i);
        CU_ASSERT_EQUAL(i % 2 ? bytes[16 + i / 2] & 15 : bytes[16 + i / 2] >> 4, i + 1);
    }
    CU_ASSERT_EQUAL(bytes[24], 0x77);
}

static wf_context *open_cpu(int threads, bool compute_fp32)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx =
        wf_context_open(wf_cpu_device(threads, &error),
                        &(wf_context_options){.compute_fp32 = compute_fp32}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

static wf_tensor *matrix(wf_context *ctx, int64_t rows, int64_t columns, float by)
{
    wf_dim dims[] = {wf_dim_width(rows), wf_dim_width(columns)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    uint32_t state = (uint32_t)(rows * 31 + columns);

    for (int64_t i = 0; i < rows * columns; i++)
        ((float *)t->data)[i] = by * ((float)(chance(&state) % 4096) - 2048);
    return t;
}

static wf_tensor *stored(wf_tensor *t, wf_dtype as)
{
    wf_tensor *y = wf_nf4_new(t->ctx, 2, t->dim, NULL, WF_MEMORY_FROZEN, as);
    const wf_nf4_part part = wf_nf4_part_of(y);
    float *absmax = room(wf_nf4_blocks(wf_tensor_count(t)), sizeof *absmax);

    wf_nf4_absmax(&part, t->data, absmax);
    CU_ASSERT_EQUAL(wf_nf4_store(y, t->data, absmax), WF_OK);
    free(absmax);
    return y;
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && a->dtype == b->dtype && memcmp(a->data, b->data, wf_tensor_bytes(a)) == 0;
}

/* A product with a matrix in 4 bits is the product with its numbers, stored as what they are. */
static void ops_read_numbers(void)
{
    for (int mode = 0; mode < 6; mode++) {
        bool bf16 = mode % 2, wide = mode / 2 == 1, half_x = mode / 2 == 2;
        wf_context *ctx = open_cpu(1 + mode % 3, wide);
        wf_tensor *w, *x, *q, *n, *y[2], *dx[2];

        wf_scope_open(ctx);
        x = matrix(ctx, 37, 130, 1e-3f);
        w = matrix(ctx, 70, 130, 1e-4f);
        q = stored(w, bf16 ? WF_BF16 : WF_F32);
        n = wf_cast(q, bf16 ? WF_BF16 : WF_F32);
        if (half_x) {
            x = wf_cast(x, WF_BF16);
            wf_context_storage(ctx, WF_BF16);
        }
        for (int i = 0; i < 2; i++) {
            wf_tensor *leaf = wf_leaf(x), *of = i ? n : q;
            wf_tape *tape = wf_tape_open(ctx);

            y[i] = wf_tensor_retain(wf_linear(leaf, of));
            CU_ASSERT_EQUAL(wf_backward(y[i], y[i], false), WF_OK);
            dx[i] = wf_tensor_retain(leaf->grad);
            wf_tape_close(tape);
        }
        CU_ASSERT(alike(y[0], y[1]));
        CU_ASSERT(alike(dx[0], dx[1]));
        CU_ASSERT(!alike(y[0], wf_linear(x, w)));
        for (int i = 0; i < 2; i++) {
            wf_tensor_release(y[i]);
            wf_tensor_release(dx[i]);
        }
        wf_scope_close(ctx);
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
        wf_context_close(ctx);
    }
}

/* The host reads the numbers, and a cast to bf16 of numbers of f32 is their rounding. */
static void host_reads_numbers(void)
{
    wf_context *ctx = open_cpu(3, false);
    wf_tensor *w, *q, *half, *n;
    wf_host_data view;
    const float *x;

    wf_scope_open(ctx);
    w = matrix(ctx, 201, 167, 1e-4f);
    q = stored(w, WF_F32);
    half = wf_cast(q, WF_BF16);
    n = wf_cast(q, WF_F32);
    CU_ASSERT(alike(half, wf_cast(n, WF_BF16)));
    x = wf_data_read_f32(q, &view);
    CU_ASSERT_EQUAL(memcmp(x, n->data, wf_tensor_bytes(n)), 0);
    wf_data_close(&view);
    CU_ASSERT_EQUAL(wf_tensor_bytes(q), 201 * ((167 + 1) / 2 + (167 + 62) / 64 + 1));
    CU_ASSERT(alike(wf_cast(stored(w, WF_BF16), WF_F32), wf_cast(half, WF_F32)));
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static void no_parts_of_blocks(void)
{
    wf_context *ctx = open_cpu(1, false);
    wf_dim dims[] = {wf_dim_width(8), wf_dim_width(16), wf_dim_width(64)};
    wf_host_data view;
    wf_tensor *q;

    wf_scope_open(ctx);
    q = stored(matrix(ctx, 8, 64, 1e-3f), WF_F32);
    CU_ASSERT_PTR_NULL(wf_tensor_rows(q, 0, 4));
    CU_ASSERT(refused(ctx, WF_EDTYPE, "rows of nf4"));
    dims[1] = wf_dim_width(64);
    CU_ASSERT_PTR_NOT_NULL(wf_tensor_view(q, 2, dims, NULL));
    dims[0] = wf_dim_width(64);
    dims[1] = wf_dim_width(8);
    CU_ASSERT_PTR_NULL(wf_tensor_view(q, 2, dims, NULL));
    CU_ASSERT(refused(ctx, WF_EDTYPE, "a view of nf4"));
    CU_ASSERT_PTR_NULL(wf_tensor_new(ctx, WF_NF4, 3, dims, NULL, WF_MEMORY_FROZEN));
    CU_ASSERT(refused(ctx, WF_ESHAPE, "cannot be nf4"));
    CU_ASSERT_PTR_NULL(wf_data_write_f32(q, &view));
    wf_data_close(&view);
    CU_ASSERT(refused(ctx, WF_EDTYPE, "wf_nf4_store"));
    CU_ASSERT_PTR_NULL(wf_cast(q, WF_I32));
    CU_ASSERT(refused(ctx, WF_EDTYPE, "cannot be cast"));
    wf_init_fill(q, 1);
    CU_ASSERT(refused(ctx, WF_EDTYPE, "operand 0 is nf4"));
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"parts follow the rule", parts_follow_the_rule},
                                    {"known codes", known_codes},
                                    {"ops read numbers", ops_read_numbers},
                                    {"the host reads numbers", host_reads_numbers},
                                    {"no parts of blocks", no_parts_of_blocks},
                                    {NULL, NULL}};

    return wf_test_main("nf4", tests);
}
