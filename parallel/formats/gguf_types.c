/* parallel/formats/gguf_types.c - the types of tensors in GGUF files: their blocks, as floats
   and back. */
#include "parallel/formats/convert_internal.h"
#include "parallel/formats/gguf_internal.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { LARGE = 256, Q8_BYTES = WF_GGUF_BLOCK + 2 };

static float f16_at(const uint8_t *b)
{
    uint16_t bits;

    memcpy(&bits, b, sizeof bits);
    return wf_from_f16(bits);
}

static void from_f32(const uint8_t *b, float *x)
{
    memcpy(x, b, sizeof *x);
}

static void from_f16(const uint8_t *b, float *x)
{
    *x = f16_at(b);
}

static void from_bf16(const uint8_t *b, float *x)
{
    uint16_t bits;

    memcpy(&bits, b, sizeof bits);
    *x = wf_from_bf16(bits);
}

/* Decodes Q4_0: the halves of byte i are elements i and i + 16. */
static void from_q4_0(const uint8_t *b, float *x)
{
    const float scale = f16_at(b);

    for (int i = 0; i < 16; i++) {
        x[i] = (float)((b[2 + i] & 15) - 8) * scale;
        x[i + 16] = (float)((b[2 + i] >> 4) - 8) * scale;
    }
}

static void from_q4_1(const uint8_t *b, float *x)
{
    const float scale = f16_at(b), least = f16_at(b + 2);

    for (int i = 0; i < 16; i++) {
        x[i] = (float)(b[4 + i] & 15) * scale + least;
        x[i + 16] = (float)(b[4 + i] >> 4) * scale + least;
    }
}

/* The fifth bits of 32 elements are a word before their halves of bytes. */
static void five_bits(const uint8_t *b, int q[32])
{
    uint32_t high;

    memcpy(&high, b, sizeof high);
    for (int i = 0; i < 16; i++) {
        q[i] = (b[4 + i] & 15) | (int)(high >> i & 1) << 4;
        q[i + 16] = b[4 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
    }
}

static void from_q5_0(const uint8_t *b, float *x)
{
    const float scale = f16_at(b);
    int q[32];

    five_bits(b + 2, q);
    for (int i = 0; i < 32; i++)
        x[i] = (float)(q[i] - 16) * scale;
}

static void from_q5_1(const uint8_t *b, float *x)
{
    const float scale = f16_at(b), least = f16_at(b + 2);
    int q[32];

    five_bits(b + 4, q);
    for (int i = 0; i < 32; i++)
        x[i] = (float)q[i] * scale + least;
}

static void from_q8_0(const uint8_t *b, float *x)
{
    const float scale = f16_at(b);

    for (int i = 0; i < 32; i++)
        x[i] = (float)(int8_t)b[2 + i] * scale;
}

/* Scale and offset of run i of 32 in a block of 256: 6 bits each, the last four in pieces. */
static void run_scale(const uint8_t *b, int i, int *scale, int *least)
{
    if (i < 4) {
        *scale = b[i] & 63;
        *least = b[i + 4] & 63;
    } else {
        *scale = (b[i + 4] & 15) | b[i - 4] >> 6 << 4;
        *least = b[i + 4] >> 4 | b[i] >> 6 << 4;
    }
}

/* Combines 4 bits of `low` and fifth bits: a byte of `high` has those of 8 elements at a stride
   of 32; NULL: four bits alone. */
static void from_runs(const uint8_t *b, const uint8_t *high, const uint8_t *low, float *x)
{
    const float scale = f16_at(b), least = f16_at(b + 2);

    for (int run = 0; run < 8; run++) {
        int s, m;
        float run_step, run_least;

        run_scale(b + 4, run, &s, &m);
        run_step = scale * (float)s;
        run_least = least * (float)m;
        for (int i = 0; i < 32; i++) {
            uint8_t byte = low[run / 2 * 32 + i];
            int q = run % 2 ? byte >> 4 : byte & 15;

            if (high)
                q += (high[i] >> run & 1) << 4;
            x[run * 32 + i] = run_step * (float)q - run_least;
        }
    }
}

static void from_q4_k(const uint8_t *b, float *x)
{
    from_runs(b, NULL, b + 16, x);
}

static void from_q5_k(const uint8_t *b, float *x)
{
    from_runs(b, b + 16, b + 48, x);
}

/* 128 bytes of four bits, 64 of two more, 16 scales, the scale of all. */
static void from_q6_k(const uint8_t *b, float *x)
{
    const float scale = f16_at(b + 208);

    for (int i = 0; i < LARGE; i++) {
        int half = i / 128, part = i % 128 / 32, at = i % 32;
        uint8_t low = b[64 * half + 32 * (part % 2) + at], high = b[128 + 32 * half + at];
        int q = (part < 2 ? low & 15 : low >> 4) | (high >> 2 * part & 3) << 4;

        x[i] = scale * (float)(int8_t)b[192 + i / 16] * (float)(q - 32);
    }
}

static const struct row {
    wf_gguf_type type;
    int block, bytes;
    void (*read)(const uint8_t *block, float *to);
} types[] = {{WF_GGUF_F32, 1, 4, from_f32},
             {WF_GGUF_F16, 1, 2, from_f16},
             {WF_GGUF_BF16, 1, 2, from_bf16},
             {WF_GGUF_Q4_0, WF_GGUF_BLOCK, 18, from_q4_0},
             {WF_GGUF_Q4_1, WF_GGUF_BLOCK, 20, from_q4_1},
             {WF_GGUF_Q5_0, WF_GGUF_BLOCK, 22, from_q5_0},
             {WF_GGUF_Q5_1, WF_GGUF_BLOCK, 24, from_q5_1},
             {WF_GGUF_Q8_0, WF_GGUF_BLOCK, Q8_BYTES, from_q8_0},
             {WF_GGUF_Q4_K, LARGE, 144, from_q4_k},
             {WF_GGUF_Q5_K, LARGE, 176, from_q5_k},
             {WF_GGUF_Q6_K, LARGE, 210, from_q6_k}};

static const struct row *row_of(uint32_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((uint32_t)types[i].type == type)
            return &types[i];
    return NULL;
}

int wf_gguf_block(uint32_t type)
{
    return row_of(type) ? row_of(type)->block : 0;
}

int64_t wf_gguf_bytes(wf_gguf_type type, int64_t n)
{
    const struct row *row = row_of(type);

    return n / row->block * row->bytes;
}

void wf_gguf_numbers(wf_gguf_type type, const void *from, float *to, int64_t n)
{
    const struct row *row = row_of(type);
    const uint8_t *bytes = from;

    for (int64_t i = 0; i < n / row->block; i++)
        row->read(bytes + i * row->bytes, to + i * row->block);
}

float wf_gguf_largest(wf_gguf_type type)
{
    const float largest_f16 = 65504;

    if (type == WF_GGUF_F16)
        return largest_f16;
    return type == WF_GGUF_Q8_0 ? 127 * largest_f16 : FLT_MAX;
}

/* One block of 32. */
static void quantise(const float *from, char *to)
{
    float most = 0, scale, inverse;
    uint16_t bits;

    for (int i = 0; i < WF_GGUF_BLOCK; i++)
        most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
    scale = most / 127;
    inverse = scale > 0 ? 1 / scale : 0;
    bits = wf_to_f16(scale);
    memcpy(to, &bits, sizeof bits);
    for (int i = 0; i < WF_GGUF_BLOCK; i++)
        to[2 + i] = (char)(int)roundf(from[i] * inverse);
}

void wf_gguf_convert(wf_gguf_type type, const float *from, void *to, int64_t n)
{
    char *bytes = to;

    if (type != WF_GGUF_Q8_0) {
        wf_convert_to(type == WF_GGUF_F32   ? WF_ST_F32
                      : type == WF_GGUF_F16 ? WF_ST_F16
                                            : WF_ST_BF16,
                      from, to, n);
        return;
    }
    for (int64_t i = 0; i < n / WF_GGUF_BLOCK; i++)
        quantise(from + i * WF_GGUF_BLOCK, bytes + i * Q8_BYTES);
}
