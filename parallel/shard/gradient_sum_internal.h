/*
 * parallel/shard/gradient_sum_internal.h - a sum over micro-steps whose terms come in any
 * order. Not installed.
 *
 * The terms 0 .. n-1 are the leaves of the midpoint tree (core/numerics/tree.h). A term's
 * number is its leaf: where the other child of its parent is there, the two are added, lower
 * number first, and so on up. So the bits are those of the tree, whatever the order. In
 * ascending order at most log2(n) + 1 nodes are open; in another one up to half of the terms.
 */
#ifndef WF_PARALLEL_SHARD_GRADIENT_SUM_INTERNAL_H
#define WF_PARALLEL_SHARD_GRADIENT_SUM_INTERNAL_H

#include "core/tensor.h"

/* The sum of the terms first .. first + count - 1. */
typedef struct wf_par_sum_node {
    int64_t first, count;
    wf_tensor *sum; /* retained; NULL: of terms that are nothing */
} wf_par_sum_node;

/* {NULL} is the empty one. */
typedef struct wf_par_sum {
    wf_par_sum_node *node; /* [open] by first term; once the sum is complete there is one */
    int open, room;
} wf_par_sum;

/* Add term number i of n. NULL is a term that counts as nothing: a module did not run in a
   micro-step. Under exact off a sum of tensors is one node, to which terms are added as they
   come. WF_EINVAL where the term is there, WF_ENOMEM. */
wf_status wf_par_sum_add(wf_context *ctx, wf_par_sum *s, wf_tensor *term, int64_t i, int64_t n);

/* The same with the sum of the terms i .. i + count - 1, a node of the tree. */
wf_status wf_par_sum_add_node(wf_context *ctx, wf_par_sum *s, wf_tensor *sum, int64_t i,
                              int64_t count, int64_t n);

/* Returns true where term i is there. */
bool wf_par_sum_has(const wf_par_sum *s, int64_t i);

/* Takes the node of `terms` terms that contains term i out: true, and *sum is the caller's. The
   sum continues without it; where the sum has an end, `terms` divides it into 1, 2, 4, ..
   parts. */
bool wf_par_sum_take(wf_par_sum *s, int64_t i, int64_t terms, wf_tensor **sum);

/* A new sum has those terms as nothing that `like`, a sum of nothing, has; under exact off it
   is empty. */
wf_status wf_par_sum_start(wf_context *ctx, wf_par_sum *s, const wf_par_sum *like);

/* The numbers, from 1, of the terms of n that are not there: "2, 5 to 7"; "" where it is
   complete. */
const char *wf_par_sum_missing(const wf_par_sum *s, int64_t n, char *text, size_t size);

/* Forget the terms; the memory for nodes stays until it is freed. */
void wf_par_sum_clear(wf_par_sum *s);
void wf_par_sum_free(wf_par_sum *s);

#endif
