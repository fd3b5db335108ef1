/*
 * tests/parallel/test_plan_moe.c - a plan knows no choices of tokens, and is the run of a
 * mixture to the byte all the same: with room for all rows, for those of equal loads, and for a
 * sequence at a time, where tokens choose as they like and where one rank gets each of them;
 * with a capacity, which bounds the room, and with one of each document, which does not.
 *
 * ctest: builds plain, cost 20
 */
#include "tests/parallel/plan_harness.h"

enum { EXPERTS = 8, BATCH = 16 };

typedef struct row {
    const char *name;
    wf_par_options layout;
    const char *recompute;
    int micro; /* sequences of a micro-batch; 0: all that a rank has */
    int64_t shared;
} row;

static const row rows[] = {
    {"one rank", {.tp = 1, .dp = 1}, .micro = 8},
    {"tp 4", {.tp = 4, .dp = 1, .ep = 4, .sequence_parallel = true}, .micro = 8},
    {"dp 4, ep 2",
     {.tp = 1, .dp = 4, .ep = 2, .dispatch = WF_PAR_DISPATCH_EXCHANGE},
     .shared = 24},
    {"2 x 2, ep 4, blocks again",
     {.tp = 2, .dp = 2, .ep = 4, .dispatch = WF_PAR_DISPATCH_EXCHANGE},
     .recompute = "block",
     .micro = 2},
    {"2 x 2, ep 4, bf16",
     {.tp = 2,
      .dp = 2,
      .ep = 4,
      .dispatch = WF_PAR_DISPATCH_GATHER,
      .dtype = WF_BF16,
      .param_dtype = WF_BF16},
     .shared = 24},
    {"2 x 2, features", {.tp = 2, .dp = 2, .ep = 2, .etp = 2}, .micro = 4},
    {"cp 2, tp 2", {.tp = 2, .dp = 1, .cp = 2, .ep = 2}, .micro = 4},
};

static const double buffers[] = {0, 2, 1.25, 1, 0.5, 1e-3};
static const int64_t capacities[] = {0, 3}; /* 4 tokens are an expert's where loads are equal */

enum {
    ROWS = sizeof rows / sizeof *rows,
    BUFFERS = sizeof buffers / sizeof *buffers,
    CAPACITIES = sizeof capacities / sizeof *capacities,
    DOCUMENT = 4 /* tokens */
};

/* Logits of routers are 0 for good, so that all tokens choose the first experts. */
static void choose_first(wf_nn_gpt *model)
{
    for (int64_t i = 0; i < model->config.layers; i++)
        wf_nn_init_fill(((wf_nn_block *)model->block[i])->moe->router, 0);
}

/* Reads documents of a few tokens, one after the other. */
static wf_status read_short(void *self, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    int32_t *begins = field[2], *positions = field[3];

    (void)self;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        positions[i] = (int32_t)(i % TOKENS % DOCUMENT);
        begins[i] = (int32_t)(i % TOKENS) - positions[i];
    }
    return count_up(NULL, step, first, count, field, error);
}

static training mixture(const row *r, double buffer)
{
    training t = new_training(LLAMA, HEADS, BATCH);

    t.layout = r->layout;
    t.layout.seed = 7;
    t.recompute = r->recompute;
    t.options.micro_batch = r->micro;
    t.buffer = buffer;
    t.model.experts = EXPERTS;
    t.model.top_k = 2; /* one rank's, of 4 that have 2 each */
    t.model.expert_ffn = 20;
    t.model.shared_ffn = r->shared;
    return t;
}

static void all_choose_first(training *t)
{
    t->change = choose_first;
    t->frozen = "block.*.moe.router";
}

/* CI takes every sixth one of them. */
static void plan_is_run(void)
{
    for (int i = 0; i < ROWS * BUFFERS * 2 * CAPACITIES; i += wf_test_one_in(6)) {
        const row *r = &rows[i % ROWS];
        const bool all_alike = i / ROWS % 2;
        training t = mixture(r, buffers[i / ROWS / 2 % BUFFERS]);
        char name[128];

        t.model.expert_capacity = capacities[i / ROWS / 2 / BUFFERS];
        if (all_alike)
            all_choose_first(&t);
        snprintf(name, sizeof name, "%s, buffer %g, capacity %d%s", r->name, t.buffer,
                 (int)t.model.expert_capacity, all_alike ? ", all tokens to one rank" : "");
        compare_with(name, t, all_alike);
    }
}

static void documents(void)
{
    static const wf_par_field fields[WF_PAR_FIELDS] = WF_PAR_GPT_DOCUMENT_FIELDS(TOKENS);
    static const wf_par_data data = {.read = read_short};

    for (int r = 2; r < ROWS; r += 3) { /* exchanged, and of features */
        for (int b = 0; b < 2; b++) {
            training t = mixture(&rows[r], b ? 0.5 : 0);

            memcpy(t.options.field, fields, sizeof fields);
            t.data = &data;
            t.model.expert_capacity = 3;
            all_choose_first(&t);
            compare_with(rows[r].name, t, true);
        }
    }
}

/* A capacity makes a rank reserve less. */
static void capacity_saves(void)
{
    size_t peak[CAPACITIES];

    for (int c = 0; c < CAPACITIES; c++) {
        static reports planned;
        training t = mixture(&rows[2], 0);

        t.model.expert_capacity = capacities[c];
        t.steps = 2;
        t.watch = report_step;
        t.arg = &planned;
        if (!plan(&t))
            return;
        peak[c] = planned.of[0].memory.peak;
    }
    CU_ASSERT(peak[1] < peak[0]);
}

/* Rows that one rank has at most, and no more room than a buffer has, do for all tokens. */
static void bound_is_enough(void)
{
    for (int b = 0; b < BUFFERS; b++) {
        training t = mixture(&rows[3], buffers[b]);

        t.model.expert_capacity = capacities[b % CAPACITIES];
        all_choose_first(&t);
        peak_is_enough(t);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"the plan is the run, whatever tokens choose", plan_is_run},
        {"documents, each with a capacity of its own", documents},
        {"a capacity saves memory", capacity_saves},
        {"the bound is enough, and a byte less is not", bound_is_enough},
        {NULL, NULL},
    };

    return wf_test_main("plans of mixtures", tests);
}
