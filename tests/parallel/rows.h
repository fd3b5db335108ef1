/*
 * tests/parallel/rows.h - tables of layouts, and the promise that they are tried for: a run has
 * the bits of one rank on every one of them.
 *
 * A row says who holds what, and in which order it is done. What else makes a run (model,
 * optimizer, data types, device) is that of the run which is put on it.
 */
#ifndef WF_TESTS_PARALLEL_ROWS_H
#define WF_TESTS_PARALLEL_ROWS_H

#include "tests/parallel/parallel_harness.h"

typedef struct row {
    const char *strategy; /* NULL: the default one */
    int tp, dp, group;    /* ranks of a group, 0 where the strategy has none */
    int ep;               /* ranks that split experts; 0: tp */
    int etp;              /* ranks that split their features; 0: 1 */
    wf_par_dispatch dispatch;
    bool waits; /* for exchanges, before a shared expert computes */
    int micro;  /* sequences of a micro-batch; 0: as many as there are */
    int threads;
    bool sequence_parallel;
    wf_par_accumulate accumulate;
    int accumulate_group;
    wf_par_reshard reshard;
    int prefetch;
    const char *wrap_type;
    int64_t wrap_min_params;
    const char *recompute;
    double buffer; /* room for rows of experts; 0: for all */
} row;

/* The run on a row, with no results yet. */
static inline training on_row(training t, const row *r)
{
    t.layout.strategy = r->strategy;
    t.layout.tp = r->tp;
    t.layout.dp = r->dp;
    t.layout.ep = r->ep;
    t.layout.etp = r->etp;
    t.layout.dispatch = r->dispatch;
    t.layout.moe_overlap_off = r->waits;
    t.layout.shard_group_size = r->group;
    t.layout.threads = r->threads;
    t.layout.sequence_parallel = r->sequence_parallel;
    t.layout.accumulate = r->accumulate;
    t.layout.accumulate_group = r->accumulate_group;
    t.layout.reshard = r->reshard;
    t.layout.prefetch = r->prefetch;
    t.layout.wrap_type = r->wrap_type;
    t.layout.wrap_min_params = r->wrap_min_params;
    t.options.micro_batch = r->micro;
    t.recompute = r->recompute;
    t.buffer = r->buffer;
    memset(t.loss, 0, sizeof t.loss);
    memset(t.grad_norm, 0, sizeof t.grad_norm);
    memset(t.inexact, 0, sizeof t.inexact);
    t.digest = 0;
    return t;
}

/* The first step whose loss bits differ, or 0. */
static inline int first_difference(const training *a, const training *b)
{
    for (int i = 0; i < a->steps; i++)
        if (!same_bits(a->loss[i], b->loss[i]))
            return i + 1;
    return 0;
}

static inline void print_layout(const training *t)
{
    const wf_par_options *o = &t->layout;

    printf("\n    %s, %s tp %d dp %d", t->model.norm == WF_NN_LAYERNORM ? "gpt2" : "llama",
           o->strategy ? o->strategy : "", o->tp, o->dp);
    if (o->ep)
        printf(" ep %d, etp %d, dispatch %d", o->ep, o->etp, o->dispatch);
    printf(" groups of %d, micro-batches of %" PRId64 ", %d threads%s", o->shard_group_size,
           t->options.micro_batch, o->threads,
           o->sequence_parallel ? ", sequence-parallel" : "");
    printf(", prefetch %d, wrap %s %" PRId64 ", recompute %s: ", o->prefetch,
           o->wrap_type ? o->wrap_type : "", o->wrap_min_params,
           t->recompute ? t->recompute : "nothing");
}

/* The run has the loss bits of `one` at every step, added ones too, and its digest, and
   promises to. */
static inline void check_same(const training *t, const training *one)
{
    int step = first_difference(t, one);

    CU_ASSERT_EQUAL(step, 0);
    CU_ASSERT_EQUAL(t->digest, one->digest);
    CU_ASSERT_STRING_EQUAL(t->inexact, "");
    CU_ASSERT_EQUAL(t->added_by, one->added_by);
    for (int i = 0; i < t->steps && one->added_by; i++)
        CU_ASSERT(same_bits(t->added[i], one->added[i]));
    if (step == 0 && t->digest == one->digest && !*t->inexact)
        return;
    print_layout(t);
    printf("step %d differs, digest %016" PRIx64 " instead of %016" PRIx64 " %s\n", step,
           t->digest, one->digest, t->inexact);
}

/* Checks that one of `every` rows has the bits of the run `one`, which has been. Of these CI
   takes every third one: what one call leaves out the next ones take. A sanitizer's build
   begins with the first. */
static inline void check_rows(const training *one, const row *rows, int n, int every)
{
    static int turn;
    int apart = every * (UNDER_SANITIZER ? 2 : wf_test_one_in(3));
    int first = UNDER_SANITIZER ? 0 : every * (turn++ % (apart / every));

    for (int i = first < n ? first : 0; i < n; i += apart) {
        training t = on_row(*one, &rows[i]);

        if (train(&t))
            check_same(&t, one);
    }
}

/* No other one of these runs has the digest of the first. */
static inline void check_differ(training *run, int n)
{
    if (!train(&run[0]))
        return;
    for (int i = 1; i < n; i++)
        if (train(&run[i]))
            CU_ASSERT_NOT_EQUAL(run[i].digest, run[0].digest);
}

#endif
