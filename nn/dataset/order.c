/* nn/dataset/order.c - see order.h. */
#include "nn/dataset/order_internal.h"
#include "core/numerics/random.h"
#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 6 };

struct wf_dataset_mixture {
    int64_t *quota;
    /* For each sample of a period: its source, and how many of that source came before it. */
    uint16_t source[WF_DATASET_ORDER_PERIOD], before[WF_DATASET_ORDER_PERIOD];
};

/* Permutes [0, 4^half_bits). */
static uint64_t feistel(uint64_t key, uint32_t stream, uint64_t epoch, int half_bits,
                        uint64_t x)
{
    uint32_t mask = (uint32_t)((UINT64_C(1) << half_bits) - 1);
    uint32_t left = (uint32_t)(x >> half_bits), right = (uint32_t)x & mask;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t word[4] = {right, (uint32_t)epoch, stream,
                            (uint32_t)(epoch >> 32) * 8 + round};
        uint32_t old_right = right;

        wf_philox(word, key, word);
        right = left ^ (word[0] & mask);
        left = old_right;
    }
    return (uint64_t)left << half_bits | right;
}

int64_t wf_dataset_order_permuted(uint64_t key, uint32_t stream, int64_t epoch, int64_t n,
                                  int64_t index)
{
    uint64_t x = (uint64_t)index;
    int half_bits = 1;

    while (INT64_C(1) << 2 * half_bits < n)
        half_bits++;
    do
        x = feistel(key, stream, (uint64_t)epoch, half_bits, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* Divides a period by largest remainders: shares are rounded down, and what remains of the
   period goes to those that lost most by that, one each; of equal ones to the first. */
static wf_status divide(const double *weights, int64_t count, int64_t *quota, wf_error *error)
{
    double *lost = calloc((size_t)count, sizeof *lost), sum = 0;
    int64_t left = WF_DATASET_ORDER_PERIOD;

    if (!lost)
        return wf_error_set(error, WF_ENOMEM, "no memory for the shares of %lld sources",
                            (long long)count);
    for (int64_t s = 0; s < count; s++)
        sum += weights[s];
    if (!isfinite(sum)) {
        free(lost);
        return wf_error_set(error, WF_EINVAL,
                            "the weights of the %lld sources of a mixture have no finite sum: "
                            "make them smaller",
                            (long long)count);
    }
    for (int64_t s = 0; s < count; s++) {
        double share = weights[s] / sum * WF_DATASET_ORDER_PERIOD;

        quota[s] = (int64_t)share;
        lost[s] = share - (double)quota[s];
        left -= quota[s];
    }
    for (; left > 0; left--) {
        int64_t most = 0;

        for (int64_t s = 1; s < count; s++)
            if (lost[s] > lost[most])
                most = s;
        quota[most]++;
        lost[most] = -1;
    }
    free(lost);
    return WF_OK;
}

/* Slot t of the quotas, which lie one after the other, is permuted to be sample j of the
   period. */
static wf_status permute(wf_dataset_mixture *m, uint64_t key, int64_t count, wf_error *error)
{
    uint16_t *owner = malloc(WF_DATASET_ORDER_PERIOD * sizeof *owner);
    int64_t *seen = calloc((size_t)count, sizeof *seen), at = 0;

    if (!owner || !seen) {
        free(owner);
        free(seen);
        return wf_error_set(error, WF_ENOMEM, "no memory for the order of a mixture");
    }
    for (int64_t s = 0; s < count; s++)
        for (int64_t k = 0; k < m->quota[s]; k++)
            owner[at++] = (uint16_t)s;
    for (int64_t j = 0; j < WF_DATASET_ORDER_PERIOD; j++) {
        const int64_t slot = count == 1
                                 ? j /* all are its own, in any order */
                                 : wf_dataset_order_permuted(key, WF_DATASET_ORDER_MIXTURE, 0,
                                                             WF_DATASET_ORDER_PERIOD, j);

        m->source[j] = owner[slot];
        m->before[j] = (uint16_t)seen[m->source[j]]++;
    }
    free(owner);
    free(seen);
    return WF_OK;
}

wf_status wf_dataset_mixture_new(uint64_t key, const double *weights, int64_t count,
                                 wf_dataset_mixture **mixture, wf_error *error)
{
    wf_dataset_mixture *m = calloc(1, sizeof *m);
    wf_status status = WF_OK;

    *mixture = NULL;
    if (m)
        m->quota = calloc((size_t)count, sizeof *m->quota);
    if (!m || !m->quota)
        status = wf_error_set(error, WF_ENOMEM, "no memory for a mixture of %lld sources",
                              (long long)count);
    if (status == WF_OK)
        status = divide(weights, count, m->quota, error);
    if (status == WF_OK)
        status = permute(m, key, count, error);
    if (status == WF_OK)
        *mixture = m;
    else
        wf_dataset_mixture_free(m);
    return status;
}

void wf_dataset_mixture_free(wf_dataset_mixture *mixture)
{
    if (mixture)
        free(mixture->quota);
    free(mixture);
}

int64_t wf_dataset_mixture_quota(const wf_dataset_mixture *mixture, int64_t source)
{
    return mixture->quota[source];
}

int64_t wf_dataset_mixture_at(const wf_dataset_mixture *mixture, int64_t sample,
                              int64_t *before)
{
    int64_t slot = sample % WF_DATASET_ORDER_PERIOD, source = mixture->source[slot];

    *before = sample / WF_DATASET_ORDER_PERIOD * mixture->quota[source] + mixture->before[slot];
    return source;
}
