/* parallel/formats/convert.c - bf16 and fp16 as integers; see the header. */
#include "parallel/formats/convert_internal.h"
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* value / 2^shift, to the nearest, the even one of two; 0 < shift < 32. */
static uint32_t round_shift(uint32_t value, int shift)
{
    uint32_t half = 1u << (shift - 1), rest = value & ((half << 1) - 1);
    uint32_t quotient = value >> shift;

    return quotient + (rest > half || (rest == half && (quotient & 1)));
}

float wf_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t wf_to_bf16(float x)
{
    uint32_t bits = bits_of(x);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)round_shift(bits,
                                 16); /* a carry propagates into the exponent, as it should */
}

float wf_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, fraction = bits & 0x3ff;
    uint32_t exponent = bits >> 10 & 0x1f;
    const float unit = 0x1p-24f; /* the smallest that there is */

    if (exponent == 0)
        return float_of(sign | bits_of((float)fraction * unit));
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | fraction << 13);
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t wf_to_f16(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffffu;
    int exponent = (int)(size >> 23) - 112;

    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000u) /* 65520, from where the nearest is infinity */
        return (uint16_t)(sign | 0x7c00);
    if (exponent < -10) /* below half of the smallest */
        return (uint16_t)sign;
    if (exponent < 1)
        return (uint16_t)(sign | round_shift((size & 0x7fffff) | 0x800000, 14 - exponent));
    return (uint16_t)(sign | round_shift(size - (112u << 23), 13));
}

bool wf_converts(wf_safetensors_dtype dtype)
{
    return dtype == WF_ST_F32 || dtype == WF_ST_BF16 || dtype == WF_ST_F16;
}

void wf_convert_from(wf_safetensors_dtype dtype, const void *from, float *to, int64_t n)
{
    const uint16_t *narrow = from;

    if (dtype == WF_ST_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    for (int64_t i = 0; dtype == WF_ST_BF16 && i < n; i++)
        to[i] = wf_from_bf16(narrow[i]);
    for (int64_t i = 0; dtype == WF_ST_F16 && i < n; i++)
        to[i] = wf_from_f16(narrow[i]);
}

void wf_convert_to(wf_safetensors_dtype dtype, const float *from, void *to, int64_t n)
{
    uint16_t *narrow = to;

    if (dtype == WF_ST_F32)
        memcpy(to, from, (size_t)n * sizeof *from);
    for (int64_t i = 0; dtype == WF_ST_BF16 && i < n; i++)
        narrow[i] = wf_to_bf16(from[i]);
    for (int64_t i = 0; dtype == WF_ST_F16 && i < n; i++)
        narrow[i] = wf_to_f16(from[i]);
}

void wf_hf_transpose(const float *from, int64_t from_step, int64_t rows, int64_t columns,
                     float *to, int64_t to_step)
{
    enum { TILE = 16 }; /* a cache line of each: both are walked in lines that stay near */

    for (int64_t row = 0; row < rows; row += TILE)
        for (int64_t column = 0; column < columns; column += TILE)
            for (int64_t c = column; c < column + TILE && c < columns; c++)
                for (int64_t r = row; r < row + TILE && r < rows; r++)
                    to[c * to_step + r] = from[r * from_step + c];
}
