/*
 * kernels/cpu/simd/attention_dropout.c - which probabilities attention dropout keeps.
 *
 * The probability of key j for query i belongs to word w = i * keys + j, both of the whole
 * sequence (wf_attention_head.start), which is
 * philox({w / 4 mod 2^32, c1, c2, c3}, key)[w % 4] (core/numerics/random.h); it is kept where
 * word >= floor(p * 2^32). Sixteen queries go side by side, and a call of Philox gives each of
 * them four keys. Where keys is no multiple of 4 the queries differ in which of a call's words
 * is for their first key, their phase.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

#include "kernels/cpu/vec_philox_internal.h"

/* keep[j][0 .. 15], row stride BLOCK, for the 16 queries from `query` on. */
static void keep_queries(const wf_attention_head *head, int64_t query, token_block keys,
                         float *keep)
{
    v16u threshold = v16u_set1((uint32_t)((double)head->dropout * 0x1p32));
    v16 kept = v16_set1(1.0F / (1.0F - head->dropout)), zero = v16_zero();
    uint32_t block[GRAIN], odd[GRAIN], late[GRAIN]; /* phase = odd + 2 late */
    float row[(BLOCK + 4) * GRAIN];                 /* key j is in row j + phase */
    v16m is_odd, is_late;

    for (int l = 0; l < GRAIN; l++) {
        uint64_t w = (uint64_t)(head->start + query + l) * (uint64_t)head->sequence_keys +
                     (uint64_t)(head->start + keys.begin);

        block[l] = (uint32_t)(w / 4);
        odd[l] = (uint32_t)(w & 1);
        late[l] = (uint32_t)(w & 2) / 2;
    }
    for (int64_t g = 0; g <= keys.padded / 4; g++) {
        v16u word[4] = {v16u_add(v16u_load(block), v16u_set1((uint32_t)g)),
                        v16u_set1(head->dropout_counter[0]),
                        v16u_set1(head->dropout_counter[1]),
                        v16u_set1(head->dropout_counter[2])};

        v16u_philox(head->dropout_key, word);
        for (int k = 0; k < 4; k++)
            v16_store(row + (4 * g + k) * GRAIN,
                      v16_select(v16u_ge(word[k], threshold), kept, zero));
    }
    is_odd = v16u_ge(v16u_load(odd), v16u_set1(1));
    is_late = v16u_ge(v16u_load(late), v16u_set1(1));
    for (int64_t j = 0; j < keys.padded; j++) {
        const float *at = row + j * GRAIN;
        v16 early = v16_select(is_odd, v16_load(at + GRAIN), v16_load(at));
        v16 later = v16_select(is_odd, v16_load(at + 3 * GRAIN), v16_load(at + 2 * GRAIN));

        v16_store(keep + j * BLOCK, v16_select(is_late, later, early));
    }
}

void block_keep(const wf_attention_head *head, token_block queries, token_block keys,
                float *keep)
{
    for (int64_t i = 0; i < queries.padded; i += GRAIN)
        keep_queries(head, queries.begin + i, keys, keep + i);
}
