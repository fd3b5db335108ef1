/*
 * tests/mesh/test_rounded.c - sums over ranks whose results are stored as bf16: rounded once,
 * when the sum is complete, and gathered as they are stored.
 *
 * ctest: builds plain address
 */
#include "kernels/ops.h"
#include "tests/mesh/mesh_harness.h"

enum { ROWS = 8, COLUMNS = 16, TERMS = 24 };

static wf_tensor *matrix(wf_mesh *mesh, int id, int64_t rows, const wf_layout *layout)
{
    const wf_dim dims[] = {wf_dim_width(rows), wf_dim_chunked(TERMS)};
    wf_tensor *t = wf_tensor_new(mesh->ctx, WF_F32, 2, dims, layout, WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((float *)t->data)[e] = number(0, id, whole_index(t, e));
    return t;
}

static wf_tensor *product(wf_mesh *mesh, const wf_layout *layout)
{
    return wf_linear(matrix(mesh, 1, ROWS, layout), matrix(mesh, 2, COLUMNS, layout));
}

/* The collectives over the axis since its counters were reset: calls, and bytes received. */
static wf_status paid(wf_rank *rank, wf_mesh *mesh, wf_collective_kind kind, int64_t bytes)
{
    const wf_comm_counters *counters = wf_comm_counters_of(wf_mesh_comm(mesh, 0));
    bool right = counters->of[kind].calls == (bytes > 0) && counters->of[kind].bytes == bytes;

    if (right)
        return WF_OK;
    return wf_error_set(
        &rank->error, WF_EINTERNAL, "%" PRId64 " %s of %" PRId64 " bytes, not of %" PRId64,
        counters->of[kind].calls, wf_collective_name(kind), counters->of[kind].bytes, bytes);
}

static wf_status rounded(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *terms = wf_layout_split(mesh, NULL, 1, 0);
    const wf_layout *columns = wf_layout_split(mesh, NULL, 1, 0);
    const int64_t others = ROWS * COLUMNS / mesh->ranks * (mesh->ranks - 1);
    bool exact = wf_context_exact(mesh->ctx);
    wf_tensor *whole, *partial, *y;

    (void)arg;
    wf_context_storage(mesh->ctx, WF_BF16);
    whole = product(mesh, NULL);
    partial = product(mesh, terms);
    NEED(whole && partial && whole->dtype == WF_BF16 && partial->dtype == WF_F32);
    wf_comm_counters_reset(wf_mesh_comm(mesh, 0));
    y = wf_redistribute(partial, NULL);
    NEED(y && y->dtype == WF_BF16 && y->layout == NULL);
    GOOD(paid(rank, mesh, WF_REDUCE_SCATTER, exact ? others * 4 : 0));
    GOOD(paid(rank, mesh, WF_ALL_GATHER, exact ? others * 2 : 0));
    GOOD(paid(rank, mesh, WF_ALL_REDUCE, exact ? 0 : 2 * others * 4));
    NEED(!exact || memcmp(y->data, whole->data, ROWS * COLUMNS * sizeof(uint16_t)) == 0);
    wf_comm_counters_reset(wf_mesh_comm(mesh, 0));
    y = wf_redistribute(partial, columns);
    NEED(y && y->dtype == WF_BF16 && y->layout == columns);
    GOOD(paid(rank, mesh, WF_REDUCE_SCATTER, others * 4));
    GOOD(paid(rank, mesh, WF_ALL_GATHER, 0));
    y = wf_whole(y);
    NEED(!exact || memcmp(y->data, whole->data, ROWS * COLUMNS * sizeof(uint16_t)) == 0);
    wf_context_storage(mesh->ctx, WF_F32); /* nothing is rounded, nothing taken apart */
    partial = product(mesh, terms);
    wf_comm_counters_reset(wf_mesh_comm(mesh, 0));
    y = wf_redistribute(partial, NULL);
    NEED(y && y->dtype == WF_F32);
    GOOD(paid(rank, mesh, WF_ALL_REDUCE, 2 * others * 4));
    return paid(rank, mesh, WF_REDUCE_SCATTER, 0);
}

/* Rows that are never rounded are no part of a sum that will be: one rank takes them of rounded
   numbers. */
static wf_status kept(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    wf_tensor *partial;

    (void)arg;
    wf_context_storage(mesh->ctx, WF_BF16);
    partial = product(mesh, wf_layout_split(mesh, NULL, 1, 0));
    NEED(partial && !wf_rows(partial, 2));
    NEED(strstr(wf_context_error(mesh->ctx)->text,
                "is a partial sum that is rounded to bf16 when it is complete"));
    wf_context_clear(mesh->ctx);
    NEED(wf_rows(wf_whole(partial), 2));
    wf_context_storage(mesh->ctx, WF_F32);
    NEED(wf_rows(product(mesh, wf_layout_split(mesh, NULL, 1, 0)), 2));
    return WF_OK;
}

static void rows_of_sums(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = kept});
}

static void sums(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        on_mesh((mesh_test){.n_axes = 1, .size = {ranks}, .body = rounded});
    on_mesh((mesh_test){.n_axes = 1, .size = {4}, .exact_off = true, .body = rounded});
}

int main(void)
{
    static const wf_test tests[] = {{"sums that are rounded", sums},
                                    {"rows of sums that will be rounded", rows_of_sums},
                                    {NULL, NULL}};

    return wf_test_main("rounded", tests);
}
