/*
 * nn/dataset/order_internal.h - which window of which source a sample is, as a pure function of
 * (seed, source, epoch, number): no state, so every rank computes its own, and a resumed run
 * needs to know its step alone.
 *
 * A permutation of [0, n) is a Feistel network of 6 rounds over the next power of four, whose
 * round function is Philox4x32-10 (core/numerics/random.h) at counter {half, epoch, stream,
 * epoch / 2^32 x 8 + round}, lowest bits of its first word; a result that is not below n is
 * permuted once more (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
 * domains", CT-RSA 2002). scripts/proofs/data_order.py says the same in Python.
 *
 * A mixture is a period of 65,536 samples. Each source has its share of them, rounded by
 * largest remainders, so that every period has them exactly; a permutation says which sample of
 * the period is whose.
 */
#ifndef WF_NN_DATASET_ORDER_INTERNAL_H
#define WF_NN_DATASET_ORDER_INTERNAL_H

#include "core/status.h"
#include <stdint.h>

enum { WF_DATASET_ORDER_PERIOD = 65536 };

/* Streams of permutations that are no source's; sources have their numbers, from 0. */
#define WF_DATASET_ORDER_MIXTURE    UINT32_MAX
#define WF_DATASET_ORDER_VALIDATION (UINT32_MAX - 1)

/**
 * wf_dataset_order_permuted - element `index` of a permutation of [0, n)
 *
 * @param key     wf_random_key(seed, WF_RANDOM_ORDER)
 * @param stream  the number of the source; with the epoch it chooses the permutation
 * @param n       in [1, 2^62]
 * @param index   in [0, n)
 */
int64_t wf_dataset_order_permuted(uint64_t key, uint32_t stream, int64_t epoch, int64_t n,
                                  int64_t index);

typedef struct wf_dataset_mixture wf_dataset_mixture;

/**
 * wf_dataset_mixture_new - divides a period among sources
 *
 * @param weights  positive and finite; what counts is their ratio
 * @param count    in [1, 65536]
 * Owner:   the caller, wf_dataset_mixture_free
 * Errors:  WF_ENOMEM
 */
wf_status wf_dataset_mixture_new(uint64_t key, const double *weights, int64_t count,
                                 wf_dataset_mixture **mixture, wf_error *error);

/** wf_dataset_mixture_free - frees it; NULL is allowed. */
void wf_dataset_mixture_free(wf_dataset_mixture *mixture);

/** wf_dataset_mixture_quota - returns a source's samples in a period: 0 where its weight is too
 * small for one. */
int64_t wf_dataset_mixture_quota(const wf_dataset_mixture *mixture, int64_t source);

/** wf_dataset_mixture_at - returns the source of a sample; *before is the number of its
 * source's samples before it. */
int64_t wf_dataset_mixture_at(const wf_dataset_mixture *mixture, int64_t sample,
                              int64_t *before);

#endif
