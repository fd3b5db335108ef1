/*
 * tests/hosts/layouts.c - layouts STEPS [ORDER]: a small GPT is trained on one layout after the
 * other, by whatever started this: the loss bits of every step and the digest of the last,
 * which have to be the same everywhere, and on which host each rank was.
 *
 *     bits tp 4 dp 2 full_shard: 40b18f2a 40b06c11 .. 5d1c2f4a9be07733
 *     seats tp 4 dp 2 full_shard: node0 node0 node0 node0 node1 node1 node1 node1
 *
 * Started without a launcher it has one rank; `layouts STEPS` under mpirun has 8 ranks in any
 * number of processes that divides 8.
 */
#include "mesh/transport/launcher.h"
#include "tests/parallel/rows.h"
#include <unistd.h>

enum { BATCH = 16, HOST_NAME = 32 };

static const row rows[] = {
    {"full_shard", .tp = 4, .dp = 2, .micro = 8},
    {"full_shard", .tp = 2, .dp = 4, .micro = 4},
    {"hybrid_shard", .tp = 2, .dp = 4, .group = 2, .micro = 4},
    {"shard_grad_op", .tp = 1, .dp = 8, .micro = 2},
    {"no_shard", .tp = 4, .dp = 2, .accumulate = WF_PAR_LOCAL, .micro = 2},
    {"full_shard", .tp = 8, .dp = 1, .sequence_parallel = true, .micro = 16},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* The results of one run of a row, in the process of rank 0. */
typedef struct run {
    training t;
    char host[8][HOST_NAME]; /* each rank's */
    char warning[512];
} run;

static wf_status run_rank(wf_rank *rank, void *arg)
{
    run *r = arg;
    char mine[HOST_NAME] = "", all[8][HOST_NAME];
    int64_t cuts[9];

    gethostname(mine, sizeof mine - 1);
    for (int i = 0; i <= rank->size; i++)
        cuts[i] = i * (int64_t)HOST_NAME;
    GOOD(wf_all_gather(rank->world, 1, mine, all, cuts, &rank->error));
    if (rank->index == 0) {
        memcpy(r->host, all, sizeof r->host);
        snprintf(r->warning, sizeof r->warning, "%s", rank->warning ? rank->warning : "");
    }
    return training_rank(rank, &r->t);
}

static void print(const run *r, const row *where, int ranks)
{
    char name[64];

    snprintf(name, sizeof name, "tp %d dp %d %s", where->tp, where->dp, where->strategy);
    printf("bits %s:", name);
    for (int i = 0; i < r->t.steps; i++) {
        uint32_t bits;

        memcpy(&bits, &r->t.loss[i], sizeof bits);
        printf(" %08" PRIx32, bits);
    }
    printf(" %016" PRIx64 "\nseats %s:", r->t.digest, name);
    for (int i = 0; i < ranks; i++)
        printf(" %s", r->host[i]);
    printf("\n");
    if (*r->warning)
        printf("warning %s: %s\n", name, r->warning);
    fflush(stdout);
}

static wf_status run_row(const row *where, int steps, wf_rank_order order, wf_error *error)
{
    run *r = calloc(1, sizeof *r);
    const int ranks = where->tp * where->dp;
    const wf_placement_axis axes[] = {{"dp", where->dp, 1e6}, {"tp", where->tp, 1e7}};
    const wf_launch_options launch = {
        .ranks = ranks, .n_axes = 2, .axis = axes, .order = order};
    wf_status status;

    if (!r)
        return WF_ENOMEM;
    r->t = on_row(new_training(GPT2, HEADS, BATCH), where);
    r->t.steps = steps;
    status = wf_launch(&launch, run_rank, r, error);
    if (status == WF_OK && wf_launcher_detected().process == 0)
        print(r, where, ranks);
    free(r);
    return status;
}

int main(int argc, char **argv)
{
    static const row alone = {"no_shard", .tp = 1, .dp = 1, .micro = BATCH};
    static const char *const orders[] = {"near", "started", "transposed"};
    int steps = argc > 1 ? atoi(argv[1]) : 0, order = 0;
    wf_error error = {WF_OK, ""};

    while (argc == 3 && order < 3 && strcmp(argv[2], orders[order]) != 0)
        order++;
    if (argc < 2 || argc > 3 || steps < 1 || steps > MAX_STEPS || order == 3) {
        fprintf(stderr, "usage: %s STEPS [near|started|transposed]\n", argv[0]);
        return 2;
    }
    if (wf_launcher_detected().processes == 1)
        run_row(&alone, steps, WF_ORDER_NEAR, &error);
    for (int i = 0; i < ROWS && error.code == WF_OK; i++)
        run_row(&rows[i], steps, (wf_rank_order)order, &error);
    if (error.code != WF_OK)
        fprintf(stderr, "layouts: %s\n", error.text);
    return (int)error.code;
}
