/*
 * tests/parallel/test_held_parts.c - what ranks hold, part by part (parallel/train/parts.h):
 * repeated on another layout it is the same, copies included; a bit that is flipped on one rank
 * is found there and nowhere else.
 *
 * ctest: builds address thread
 */
#include "parallel/train/parts.h"
#include "tests/parallel/parallel_harness.h"
#include <stdlib.h>

enum { STEPS = 2, RANKS = 8 };

/* A run: its parts by rank, and what is done to one of them. */
typedef struct held {
    training t;
    const char *flipped; /* NULL: no bit is turned */
    int kind, rank;
    wf_par_held_part *list[RANKS];
    int64_t n[RANKS];
} held;

static wf_status steps(part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = count_up};
    wf_par_step result;

    for (int step = 1; step <= STEPS; step++)
        GOOD(wf_par_train_step(trainer, step, &data, &result));
    return wf_context_status(p->ctx);
}

static wf_status hold(part *p, wf_par_trainer *trainer)
{
    held *h = p->arg;
    int r = p->rank->index;

    GOOD(steps(p, trainer));
    if (h->flipped && r == h->rank)
        GOOD(wf_par_trainer_flip_bit(trainer, h->flipped, h->kind, 3, 20));
    GOOD(wf_par_trainer_parts(trainer, &h->list[r], &h->n[r]));
    for (int64_t i = 0; i < h->n[r]; i++) /* the model goes before they do */
        h->list[r][i].path = strdup(h->list[r][i].path);
    return WF_OK;
}

static wf_status held_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, &((held *)arg)->t, hold, arg);
}

static wf_status again(part *p, wf_par_trainer *trainer)
{
    const held *h = p->arg;

    GOOD(steps(p, trainer));
    for (int r = 0; r < RANKS && h->list[r]; r++) {
        wf_par_held_part *list = calloc((size_t)h->n[r] + 1, sizeof *list);
        wf_status status;

        memcpy(list, h->list[r], (size_t)h->n[r] * sizeof *list);
        status = wf_par_trainer_digest_parts(trainer, list, h->n[r]);
        for (int64_t i = 0; i < h->n[r] && p->rank->index == 0; i++) {
            bool turned = h->flipped && r == h->rank && list[i].kind == h->kind &&
                          strcmp(list[i].path, h->flipped) == 0;

            CU_ASSERT((list[i].digest != h->list[r][i].digest) == turned);
        }
        free(list);
        GOOD(status);
    }
    return WF_OK;
}

static wf_status again_rank(wf_rank *rank, void *arg)
{
    return on_trainer(rank, &((held *)arg)->t, again, arg);
}

static void launch(held *h, const wf_par_options *layout, wf_status (*work)(wf_rank *, void *))
{
    wf_error error = {WF_OK, ""};

    h->t.layout = *layout;
    h->t.layout.seed = 7;
    wf_launch(&(wf_launch_options){.ranks = (int)wf_par_ranks(layout)}, work, h, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
}

/* A run on one layout, made again on another. */
static void compare(const wf_par_options *first, const wf_par_options *second,
                    const char *flipped, int kind, int rank)
{
    held h = {
        .t = new_training(GPT2, HEADS, 8), .flipped = flipped, .kind = kind, .rank = rank};

    launch(&h, first, held_rank);
    launch(&h, second, again_rank);
    for (int r = 0; r < RANKS; r++) {
        for (int64_t i = 0; i < h.n[r]; i++)
            free((char *)(uintptr_t)h.list[r][i].path);
        free(h.list[r]);
    }
}

static const wf_par_options one = {.tp = 1, .dp = 1},
                            shards = {.tp = 2, .dp = 2, .strategy = "full_shard"},
                            copies = {.tp = 2, .dp = 4, .strategy = "no_shard"};

static void parts_are_the_same(void)
{
    compare(&shards, &one, NULL, 0, 0);
    compare(&copies, &shards, NULL, 0, 0);
    compare(&one, &copies, NULL, 0, 0);
}

static void a_bit_is_found(void)
{
    compare(&shards, &one, "block.1.mlp.down.weight", 0, 3);
    compare(&shards, &copies, "block.0.norm1.gain", 2, 1);
    compare(&copies, &shards, "embed.table", 1, 6);
}

static wf_status wrong(part *p, wf_par_trainer *trainer)
{
    wf_par_held_part unknown = {.path = "nowhere.weight", .ndim = 1, .size = {4}, .local = {4}};
    wf_par_held_part *list;
    int64_t n;

    CU_ASSERT_EQUAL(wf_par_trainer_parts(NULL, &list, &n), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_par_trainer_digest_parts(NULL, &unknown, 1), WF_EINVAL);
    CU_ASSERT_EQUAL(wf_par_trainer_flip_bit(NULL, "embed.table", 0, 0, 0), WF_EINVAL);
    switch (*(const int *)p->arg) {
    case 0:
        return wf_par_trainer_flip_bit(trainer, "nowhere.weight", 0, 0, 0);
    case 1:
        return wf_par_trainer_flip_bit(trainer, "embed.table", 3, 0, 0);
    case 2:
        return wf_par_trainer_flip_bit(trainer, "embed.table", 0, 1 << 30, 0);
    case 3:
        return wf_par_trainer_flip_bit(trainer, "embed.table", 0, 0, 32);
    default:
        return wf_par_trainer_digest_parts(trainer, &unknown, 1);
    }
}

typedef struct mistake {
    training t;
    int which;
} mistake;

static wf_status wrong_rank(wf_rank *rank, void *arg)
{
    mistake *m = arg;

    return on_trainer(rank, &m->t, wrong, &m->which);
}

static void mistakes(void)
{
    for (int i = 0; i < 5; i++) {
        mistake m = {.t = new_training(GPT2, HEADS, 8), .which = i};
        wf_error error = {WF_OK, ""};

        wf_launch(&(wf_launch_options){.ranks = 1}, wrong_rank, &m, &error);
        CU_ASSERT_EQUAL(error.code, WF_EINVAL);
        CU_ASSERT(strstr(error.text, i == 0 || i == 4 ? "nowhere.weight" : "embed.table") !=
                  NULL);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"parts are the same on other layouts", parts_are_the_same},
                                    {"a bit is found", a_bit_is_found},
                                    {"mistakes", mistakes},
                                    {NULL, NULL}};

    return wf_test_main("held_parts", tests);
}
