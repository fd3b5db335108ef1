/*
 * tests/kernels/vectors/vectors.c - prints a digest of what each vector operation of
 * kernels/cpu/vec_internal.h makes of the same numbers, for the WF_ISA that it is compiled for:
 * two instruction sets that print the same lines have the same bits. It needs no library, so
 * that it is compiled for another processor in half a second (test_neon.sh).
 */
#include "kernels/cpu/vec_internal.h"
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 400 };

static uint64_t state;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

/* Returns a number of any size that is not NaN: one in eight is 0, infinite or denormal. */
static float number(void)
{
    static const uint32_t special[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                       0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff};
    uint32_t bits = draw() % 8 ? draw() : special[draw() % 8];
    float x;

    if ((bits & 0x7f800000) == 0x7f800000 && bits & 0x7fffff)
        bits &= 0xff800000;
    if (draw() % 2) /* two numbers of like size, whose sum is rounded */
        bits = (bits & 0x807fffff) | (120 + draw() % 16) << 23;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Adds bytes to a digest, FNV-1a by words; a NaN counts as one, whatever its payload. */
static uint64_t add(uint64_t digest, const void *from, size_t words, int floats)
{
    for (size_t i = 0; i < words; i++) {
        uint32_t w;

        memcpy(&w, (const char *)from + 4 * i, sizeof w);
        if (floats && (w & 0x7f800000) == 0x7f800000 && w & 0x7fffff)
            w = 0x7fc00000;
        digest = (digest ^ w) * 1099511628211u;
    }
    return digest;
}

/* The operands of a round, and what an operation has made. */
static float x[3][16], y[4][16];
static uint32_t u[4][16], made[8][16];
static double sum;

static v16 in(int i)
{
    return v16_load(x[i]);
}

static v16u word(int i)
{
    return v16u_load(u[i]);
}

static void out(v16 a)
{
    v16_store(y[0], a);
}

static void out_words(v16u a)
{
    v16u_store(made[0], a);
}

/* Stores a mask as ones and zeros. */
static void out_mask(v16m m)
{
    out(v16_select(m, v16_set1(1), v16_zero()));
}

static void split2(void)
{
    float positive[16];
    v16 n;

    for (int i = 0; i < 16; i++) {
        uint32_t bits = (u[0][i] & 0x7fffff) | (1 + u[1][i] % 254) << 23;

        memcpy(&positive[i], &bits, sizeof bits);
    }
    v16_store(y[1], v16_split2(v16_load(positive), &n));
    out(n);
}

static void scale2(void)
{
    float a[16], n[16];

    for (int i = 0; i < 16; i++) {
        uint32_t bits = (u[0][i] & 0x807fffff) | 127u << 23;

        memcpy(&a[i], &bits, sizeof bits);
        n[i] = (float)((int)(u[1][i] % 321) - 160);
    }
    out(v16_scale2(v16_load(a), v16_load(n)));
}

static void parts(void)
{
    const int64_t n = u[0][0] % 20;

    memset(y, 1, sizeof y);
    v16_store_n(y[0], in(0), n);
    v16_store(y[1], v16_load_n(x[1], n));
    v16_store(y[2], v16_select(v16m_first(n), in(0), in(1)));
    v16u_store(made[0], v16u_load_half((const uint16_t *)u[1], n));
}

static void products(void)
{
    v16u high;

    v16u_store(made[0], v16u_mul(word(0), word(1), &high));
    v16u_store(made[1], high);
}

static void turned(void)
{
    v16u w[4] = {word(0), word(1), word(2), word(3)};
    v16 q[4] = {in(0), in(1), in(2), v16_of(word(0))};

    v16u_transpose4(w);
    v16_transpose_quads(q);
    for (int i = 0; i < 4; i++) {
        v16u_store(made[i], w[i]);
        v16u_store(made[4 + i], v16u_of(q[i]));
    }
}

static void rows(void)
{
    v16u pair[2];
    v16u a[16];

    v16u_pair_rows((const uint16_t *)u[0], (const uint16_t *)u[1], pair);
    v16u_store(made[0], pair[0]);
    v16u_store(made[1], pair[1]);
    memset(made[2], 0, sizeof made[2]);
    v16u_load_transposed(a, u, 4); /* rows that overlap */
    for (int i = 0; i < 5; i++)
        v16u_store(made[2 + i], a[i]);
    v16u_store(made[7], v16u_load_quarters(u, 20));
}

static void eights(void)
{
    float small[16];

    for (int i = 0; i < 16; i++)
        small[i] = (float)(int32_t)u[0][i];
    sum = v8d_sum(
        v8d_add(v8d_mul(v8d_low(v16_load(small)), v8d_high(v16_load(small))), v8d_zero()));
}

static void streamed(void)
{
    static _Alignas(64) float lines[16];

    v16_store_non_temporal(lines, in(0));
    v16_non_temporal_end();
    memcpy(y[0], lines, sizeof lines);
}

/* clang-format off */
#define OPERATIONS(OP) \
    OP(load, out(in(0))) OP(set1, out(v16_set1(x[0][0]))) OP(non_temporal, streamed()) OP(parts, parts()) \
    OP(add, out(v16_add(in(0), in(1)))) OP(sub, out(v16_sub(in(0), in(1)))) \
    OP(mul, out(v16_mul(in(0), in(1)))) OP(div, out(v16_div(in(0), in(1)))) \
    OP(sqrt, out(v16_sqrt(in(0)))) OP(neg, out(v16_neg(in(0)))) \
    OP(fma, out(v16_fma(in(0), in(1), in(2)))) OP(fnma, out(v16_fnma(in(0), in(1), in(2)))) \
    OP(max, out(v16_max(in(0), in(1)))) OP(min, out(v16_min(in(0), in(1)))) \
    OP(less, out_mask(v16_less(in(0), in(1)))) \
    OP(unordered, out_mask(v16_unordered(in(0), v16_of(word(0))))) \
    OP(scale2, scale2()) OP(split2, split2()) OP(sum, y[0][0] = v16_sum(in(0))) \
    OP(bits, out(v16_of_bits(v16u_of_bits(in(0))))) OP(of_int, out(v16_of_int(word(0)))) \
    OP(word_add, out_words(v16u_add(word(0), word(1)))) OP(word_xor, out_words(v16u_xor(word(0), word(1)))) \
    OP(word_and, out_words(v16u_and(word(0), word(1)))) OP(word_or, out_words(v16u_or(word(0), word(1)))) \
    OP(word_set1, out_words(v16u_set1(u[0][0]))) OP(word_ge, out_mask(v16u_ge(word(0), word(1)))) \
    OP(left, out_words(v16u_left(word(0), u[1][0] % 32))) OP(right, out_words(v16u_right(word(0), u[1][0] % 32))) \
    OP(word_mul, products()) OP(transposes, turned()) OP(rows, rows()) OP(doubles, eights())
/* clang-format on */

static void draw_operands(void)
{
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 3; k++)
            x[k][i] = number();
        for (int k = 0; k < 4; k++)
            u[k][i] = draw();
        if (draw() % 8 == 0) { /* equal ones */
            x[1][i] = x[0][i];
            u[1][i] = u[0][i];
        }
    }
    memset(y, 0, sizeof y);
    memset(made, 0, sizeof made);
    sum = 0;
}

int main(void)
{
#define RUN(name, call)                                                                        \
    {                                                                                          \
        uint64_t digest = 14695981039346656037u;                                               \
        state = 1;                                                                             \
        for (int round = 0; round < ROUNDS; round++) {                                         \
            draw_operands();                                                                   \
            call;                                                                              \
            digest = add(digest, y, sizeof y / 4, 1);                                          \
            digest = add(digest, made, sizeof made / 4, 0);                                    \
            digest = add(digest, &sum, 2, 0);                                                  \
        }                                                                                      \
        printf("%-12s %016llx\n", #name, (unsigned long long)digest);                          \
    }
    OPERATIONS(RUN)
    return 0;
}
