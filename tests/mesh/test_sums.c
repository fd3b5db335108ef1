/*
 * tests/mesh/test_sums.c - sums over dims that axes split, by hand: those that have the bits of
 * one rank, and those that have not and are reported, once, with op, tensor, dim and axis.
 *
 * ctest: builds plain address thread
 */
#include "kernels/ops.h"
#include "tests/mesh/mesh_harness.h"

enum { DIMS = 4, TABLE = 5 };

typedef enum sum_kind {
    BATCH_SUM,
    TOKEN_SUM,
    BIAS_GRAD,
    RMSNORM_DW,
    LINEAR,
    LINEAR_DW
} sum_kind;

/* A sum over x of these dims, of which `dim` is split by axes in this order. */
typedef struct sum_case {
    sum_kind kind;
    int ndim;
    wf_dim dims[DIMS];
    int dim;
    const char *axes;  /* letters of the mesh's axes */
    const char *words; /* words of the report; NULL: the bits are those of one rank */
} sum_case;

#define BATCH(n)                                                                               \
    {                                                                                          \
        n, 1, WF_CHUNKS_EACH                                                                   \
    }
#define EIGHT(n)                                                                               \
    {                                                                                          \
        n, 1, WF_CHUNKS_8                                                                      \
    }
#define ONE(n)                                                                                 \
    {                                                                                          \
        n, 1, WF_CHUNKS_1                                                                      \
    }

typedef struct sum_table {
    sum_case row[TABLE]; /* up to one of no dims */
} sum_table;

static wf_tensor *run_case(wf_mesh *mesh, const sum_case *c, const wf_layout *layout)
{
    wf_context *ctx = mesh->ctx;
    wf_tensor *x = make_tensor(ctx, WF_F32, 0, c->ndim, c->dims, layout);
    const wf_layout *rows = layout;
    wf_tensor *w;

    if (c->kind == BATCH_SUM)
        return wf_batch_sum(x);
    if (c->kind == TOKEN_SUM)
        return wf_token_sum(x);
    if (c->kind == BIAS_GRAD)
        return wf_bias_grad(x);
    if (c->kind == LINEAR_DW)
        return wf_linear_dw(x, make_tensor(ctx, WF_F32, 1, c->ndim, c->dims, layout));
    if (c->kind == RMSNORM_DW)
        return wf_rmsnorm_dw(x, make_tensor(ctx, WF_F32, 1, c->ndim - 1, c->dims, rows),
                             make_tensor(ctx, WF_F32, 2, c->ndim, c->dims, layout));
    rows = NULL; /* a weight, split along its dim 1 as x along its last */
    for (const char *a = c->axes; layout && *a; a++)
        rows = wf_layout_split(mesh, rows, 1, *a - 'a');
    w = make_tensor(ctx, WF_F32, 1, 2, (wf_dim[]){wf_dim_width(5), c->dims[c->ndim - 1]}, rows);
    return wf_linear(x, w);
}

static wf_status check_case(wf_rank *rank, wf_mesh *mesh, const sum_case *c)
{
    const wf_layout *layout = NULL;
    wf_tensor *one, *many;
    const char *reported;

    for (const char *a = c->axes; *a; a++)
        layout = wf_layout_split(mesh, layout, c->dim, *a - 'a');
    wf_context_inexact_clear(mesh->ctx);
    one = run_case(mesh, c, NULL);
    NEED(one && !wf_context_inexact(mesh->ctx));
    many = wf_whole(run_case(mesh, c, layout));
    reported = wf_context_inexact(mesh->ctx);
    if (!many)
        return give_up(rank, mesh->ctx);
    if (!c->words != !reported || (reported && !strstr(reported, c->words)))
        return wf_error_set(&rank->error, WF_EINTERNAL, "split by %s: \"%s\" instead of \"%s\"",
                            c->axes, reported ? reported : "", c->words ? c->words : "");
    if (!reported &&
        memcmp(one->data, many->data, (size_t)wf_tensor_local_count(one) * sizeof(float)) != 0)
        return wf_error_set(&rank->error, WF_EINTERNAL, "split by %s: not the bits of one rank",
                            c->axes);
    return WF_OK;
}

static wf_status all_cases(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const sum_table *table = arg;

    for (int i = 0; i < TABLE && table->row[i].ndim; i++) {
        wf_status status;

        wf_scope_open(mesh->ctx);
        status = check_case(rank, mesh, &table->row[i]);
        wf_scope_close(mesh->ctx);
        if (status != WF_OK)
            return status;
    }
    return WF_OK;
}

static void try_table(mesh_test mesh, sum_table table)
{
    mesh.body = all_cases;
    mesh.arg = &table;
    on_mesh(mesh);
}

/* 13 and 19 on 2 x 4 ranks are cut as on 8. */
static void two_axes(void)
{
    try_table((mesh_test){.n_axes = 2, .size = {2, 4}},
              (sum_table){{{LINEAR, 2, {BATCH(3), EIGHT(13)}, 1, "ab", NULL},
                           {LINEAR, 2, {BATCH(3), EIGHT(19)}, 1, "ab", NULL},
                           {BIAS_GRAD, 3, {BATCH(3), EIGHT(19), ONE(5)}, 1, "ab", NULL},
                           {BATCH_SUM, 2, {BATCH(16), ONE(5)}, 0, "ab", NULL},
                           {LINEAR,
                            2,
                            {BATCH(3), EIGHT(19)},
                            1,
                            "ba",
                            "linear1 sums dim 1 of f32 [3,19] [*, b/a], which b/a splits: they "
                            "are added in the order of the mesh"}}});
}

static void three_axes(void)
{
    try_table((mesh_test){.n_axes = 3, .size = {2, 2, 2}},
              (sum_table){{{LINEAR, 2, {BATCH(3), EIGHT(13)}, 1, "abc", NULL},
                           {LINEAR, 2, {BATCH(3), EIGHT(13)}, 1, "cab", "which c/a/b splits"},
                           {LINEAR, 2, {BATCH(3), EIGHT(13)}, 1, "acb", "which a/c/b splits"},
                           {TOKEN_SUM, 2, {BATCH(3), EIGHT(13)}, 1, "ac", NULL}}});
}

/* The halves of 11 are 5 and 6, theirs 2, 3, 3, 3; but 8 ranks cut 0 1 2 4 5 6 8 9 11. */
static void batches(void)
{
    try_table((mesh_test){.n_axes = 1, .size = {8}},
              (sum_table){{{BATCH_SUM,
                            2,
                            {BATCH(11), ONE(5)},
                            0,
                            "a",
                            "batch_sum sums dim 0 of f32 [11,5] [a], which a splits: its cuts "
                            "are not at the halves of the batch, and their halves"},
                           {LINEAR_DW, 3, {BATCH(11), EIGHT(3), ONE(5)}, 0, "a", "halves"},
                           {BATCH_SUM, 2, {BATCH(5), ONE(5)}, 0, "a", NULL},
                           {BATCH_SUM, 2, {BATCH(24), ONE(5)}, 0, "a", NULL},
                           {LINEAR_DW, 3, {BATCH(24), EIGHT(3), ONE(5)}, 0, "a", NULL}}});
    try_table((mesh_test){.n_axes = 1, .size = {4}},
              (sum_table){{{BATCH_SUM, 2, {BATCH(11), ONE(5)}, 0, "a", NULL}}});
    try_table((mesh_test){.n_axes = 1, .size = {3}},
              (sum_table){{{BATCH_SUM, 2, {BATCH(12), ONE(5)}, 0, "a", "halves"},
                           {BATCH_SUM, 2, {BATCH(3), ONE(5)}, 0, "a", NULL}}});
}

/* As many ranks as make chunks, and others. */
static void chunks(void)
{
    try_table((mesh_test){.n_axes = 1, .size = {3}},
              (sum_table){{{LINEAR, 2, {BATCH(3), EIGHT(24)}, 1, "a", "the dim's 8 chunks"},
                           {LINEAR, 2, {BATCH(3), {24, 8, WF_CHUNKS_8}}, 1, "a", NULL},
                           {LINEAR, 2, {BATCH(3), ONE(24)}, 1, "a", "the dim has one chunk"},
                           {LINEAR, 2, {BATCH(3), ONE(1)}, 1, "a", NULL}}});
    try_table((mesh_test){.n_axes = 1, .size = {16}},
              (sum_table){{{LINEAR, 2, {BATCH(3), EIGHT(8)}, 1, "a", NULL},
                           {LINEAR, 2, {BATCH(3), EIGHT(16)}, 1, "a", "8 chunks"}}});
}

/* As many ranks as exact_tp says, and more. */
static void fewer_chunks(void)
{
    for (int most = 1; most <= 4; most *= 2)
        for (int ranks = 1; ranks <= 8; ranks *= 2) {
            bool nests = ranks <= most;
            const char *words = nests       ? NULL
                                : most == 1 ? "which a splits: exact_tp is 1"
                                            : "dim's chunks, as many as exact_tp says";

            try_table(
                (mesh_test){.n_axes = 1, .size = {ranks}, .exact_tp = most},
                (sum_table){
                    {{LINEAR, 2, {BATCH(3), EIGHT(53)}, 1, "a", words},
                     {BIAS_GRAD, 3, {BATCH(3), EIGHT(53), ONE(5)}, 1, "a", words},
                     {RMSNORM_DW, 4, {BATCH(3), EIGHT(9), EIGHT(53), ONE(5)}, 2, "a", words},
                     {BATCH_SUM, 2, {BATCH(16), ONE(5)}, 0, "a", NULL},
                     {LINEAR,
                      2,
                      {BATCH(3), ONE(24)},
                      1,
                      "a",
                      ranks == 1 ? NULL : "the dim has one chunk"}}});
        }
}

/* Heads have the chunks, where there are some; tokens then are a chain. */
static void two_dims(void)
{
    try_table(
        (mesh_test){.n_axes = 1, .size = {8}},
        (sum_table){{{BIAS_GRAD, 4, {BATCH(3), EIGHT(9), EIGHT(13), ONE(5)}, 2, "a", NULL},
                     {RMSNORM_DW, 4, {BATCH(3), EIGHT(9), EIGHT(13), ONE(5)}, 2, "a", NULL},
                     {RMSNORM_DW, 4, {BATCH(3), EIGHT(9), ONE(13), ONE(5)}, 1, "a", NULL},
                     {RMSNORM_DW,
                      4,
                      {BATCH(3), EIGHT(9), EIGHT(13), ONE(5)},
                      1,
                      "a",
                      "rmsnorm_dw sums dim 1 of f32 [3,9,13,5] [*, a], which a splits: the "
                      "dim is one chain inside the chunks of another one"},
                     {LINEAR_DW,
                      3,
                      {BATCH(3), EIGHT(9), ONE(5)},
                      1,
                      "a",
                      "linear_dw sums dim 1 of f32 [3,9,5] [*, a], which a splits: the dim "
                      "is one chain inside the chunks of another one"}}});
}

/* A long sequence has chunks of tokens: ranks that split them are nodes of its tree, where each
   has one sequence. */
static void long_sequences(void)
{
    static const char several[] = "linear_dw sums dim 1 of f32 [2,4097,5] [*, a], which a "
                                  "splits: a rank adds several sequences before";

    for (int ranks = 2; ranks <= 8; ranks *= 2)
        try_table((mesh_test){.n_axes = 1, .size = {ranks}},
                  (sum_table){
                      {{LINEAR_DW, 3, {BATCH(1), EIGHT(8201), ONE(5)}, 1, "a", NULL},
                       {RMSNORM_DW, 3, {BATCH(3), EIGHT(16387), ONE(5)}, 1, "a", NULL},
                       {BIAS_GRAD, 3, {BATCH(2), EIGHT(4097), ONE(5)}, 1, "a", NULL},
                       {LINEAR_DW,
                        3,
                        {BATCH(2), EIGHT(4097), ONE(5)},
                        1,
                        "a",
                        ranks > 4 ? "cuts are not those of a long sequence's chunks" : several},
                       {LINEAR_DW,
                        3,
                        {BATCH(1), EIGHT(2047), ONE(5)},
                        1,
                        "a",
                        "is one chain inside the chunks of another one"}}});
    try_table((mesh_test){.n_axes = 1, .size = {16}},
              (sum_table){{{BIAS_GRAD, 3, {BATCH(1), EIGHT(16387), ONE(2)}, 1, "a", NULL}}});
}

/* Ranks add their tokens first, and the gradients of sequences one by one. */
static wf_status sequences(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const char *const words[] = {NULL, "sequences are added over ranks before tokens",
                                        "a rank adds several", "a rank adds several"};
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(4097), wf_dim_width(3)};
    wf_tensor *one = NULL;

    (void)arg;
    for (int k = -1; k < 4; k++) { /* -1: on one rank */
        const wf_layout *to = k < 0 ? NULL : wf_layout_split(mesh, NULL, 0, k == 1);
        wf_tensor *x[2], *dw;

        to = k < 0 ? NULL : wf_layout_split(mesh, to, 1, k != 1);
        for (int i = 0; i < 2; i++)
            x[i] = make_tensor(mesh->ctx, WF_F32, i, 3, dims, to);
        wf_context_inexact_clear(mesh->ctx);
        dw = k == 2   ? wf_linear_dw_joined(2, (wf_tensor *[]){x[0], x[0]},
                                            (wf_tensor *[]){x[1], x[1]})
             : k == 3 ? wf_linear_dw_add(x[0], x[1], wf_linear_dw(x[0], x[1]))
                      : wf_linear_dw(x[0], x[1]);
        NEED(dw);
        if (k < 0 || !words[k])
            NEED(!wf_context_inexact(mesh->ctx));
        else
            NEED(wf_context_inexact(mesh->ctx) &&
                 strstr(wf_context_inexact(mesh->ctx), words[k]));
        one = k < 0 ? dw : one;
        dw = k == 0 ? wf_whole(dw) : dw;
        NEED(dw && (k || memcmp(one->data, dw->data, 9 * sizeof(float)) == 0));
    }
    return WF_OK;
}

static void sequences_of_ranks(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = sequences});
}

/* The input gradient of two members that are split alike: only where each has chunks of its own
   for every rank is it that of one rank. A member of one element has it on the last rank. */
static wf_status members(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_dim second[] = {wf_dim_chunked(1), wf_dim_width(1)}, k = wf_dim_width(5);

    (void)arg;
    for (int i = 0; i < 2; i++) {
        const wf_dim n[] = {wf_dim_chunked(12), second[i]};
        wf_tensor *whole[2] = {NULL}, *dx[2];

        wf_context_inexact_clear(mesh->ctx);
        for (int split = 0; split < 2; split++) {
            wf_tensor *dy[2], *w[2];

            for (int m = 0; m < 2; m++) {
                dy[m] = make_tensor(mesh->ctx, WF_F32, m, 2, (wf_dim[]){wf_dim_batch(3), n[m]},
                                    split ? wf_layout_split(mesh, NULL, 1, 0) : NULL);
                w[m] = make_tensor(mesh->ctx, WF_F32, 2 + m, 2, (wf_dim[]){n[m], k},
                                   split ? wf_layout_split(mesh, NULL, 0, 0) : NULL);
            }
            dx[split] = wf_linear_dx(2, dy, w);
            whole[split] = wf_whole(dx[split]);
            NEED(whole[split] && !wf_context_inexact(mesh->ctx) == !(split && i));
        }
        NEED(i || memcmp(whole[0]->data, whole[1]->data, 15 * sizeof(float)) == 0);
        NEED(!i || strstr(wf_context_inexact(mesh->ctx), "members of a group"));
    }
    return WF_OK;
}

static void groups(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = members});
    on_mesh((mesh_test){.n_axes = 1, .size = {8}, .body = members});
}

/* The first reason stays, and says in which module it was; with exactness off there is none. */
static wf_status reported_once(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const sum_case cases[] = {{LINEAR, 2, {BATCH(3), ONE(24)}, 1, "a", NULL},
                                     {BATCH_SUM, 2, {BATCH(11), ONE(5)}, 0, "a", NULL}};
    const char *outside = wf_context_enter(mesh->ctx, "block.3.mlp");

    (void)arg;
    for (int i = 0; i < 2; i++)
        NEED(run_case(mesh, &cases[i], wf_layout_split(mesh, NULL, cases[i].dim, 0)));
    wf_context_enter(mesh->ctx, outside);
    if (!wf_context_exact(mesh->ctx))
        NEED(!wf_context_inexact(mesh->ctx));
    else
        NEED(strncmp(wf_context_inexact(mesh->ctx),
                     "not layout-exact: linear1 in block.3.mlp sums dim 1 of f32 [3,24]",
                     65) == 0);
    wf_context_report_inexact(mesh->ctx, "not layout-exact: %d", 7);
    NEED(!strstr(wf_context_inexact(mesh->ctx), "7") == wf_context_exact(mesh->ctx));
    return WF_OK;
}

static void once(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {8}, .body = reported_once});
    on_mesh((mesh_test){.n_axes = 1, .size = {8}, .exact_off = true, .body = reported_once});
}

int main(void)
{
    static const wf_test tests[] = {{"two axes on one dim", two_axes},
                                    {"three axes on one dim", three_axes},
                                    {"batches", batches},
                                    {"chunks", chunks},
                                    {"chunks as exact_tp says", fewer_chunks},
                                    {"two summed dims", two_dims},
                                    {"long sequences", long_sequences},
                                    {"sequences and their tokens", sequences_of_ranks},
                                    {"members of a group", groups},
                                    {"what is reported is reported once", once},
                                    {NULL, NULL}};

    return wf_test_main("sums", tests);
}
