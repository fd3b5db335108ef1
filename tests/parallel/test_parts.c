/*
 * tests/parallel/test_parts.c - which rank of a saved mesh holds what: against the layouts of a
 * mesh that runs, and against element by element.
 */
#include "mesh/array/array_internal.h"
#include "parallel/checkpoint/parts_internal.h"
#include "parallel/recovery/snapshot_internal.h"
#include "kernels/devices.h"
#include "tests/mesh/ranks.h"
#include <time.h>

enum { MOST = 4096 };

/* Counts of how often each element of the whole was copied, and from which part. */
typedef struct copied {
    const wf_part *mine, *part;
    int64_t shape[WF_MAX_DIMS];
    int times[MOST]; /* by the place in `mine` */
    int64_t visits, last_a;
    bool right;
} copied;

/* Index in the whole of an element of a part. */
static int64_t index_of(const wf_part *part, const int64_t *shape, int64_t at)
{
    int64_t index = 0, stride = 1;

    for (int d = part->ndim - 1; d >= 0; d--) {
        index += (part->start[d] + at % part->local[d]) * stride;
        at /= part->local[d];
        stride *= shape[d];
    }
    return index;
}

static wf_status copy_run(void *arg, int64_t at_a, int64_t at_b, int64_t n)
{
    copied *c = arg;

    c->right = c->right && n > 0 && at_a > c->last_a;
    for (int64_t i = 0; i < n; i++) {
        c->times[at_a + i]++;
        c->right = c->right && index_of(c->mine, c->shape, at_a + i) ==
                                   index_of(c->part, c->shape, at_b + i);
    }
    c->last_a = at_a + n - 1;
    return WF_OK;
}

static wf_status copy_part(void *arg, const int *coordinate, const wf_part *part)
{
    copied *c = arg;

    (void)coordinate;
    c->part = part;
    c->last_a = -1;
    c->visits++;
    return wf_part_runs(c->mine, part, copy_run, c);
}

/* Each element of `mine` is found once, in parts that overlap it. */
static bool found_once(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int ndim,
                       const wf_dim *dims, const wf_part *mine, int64_t *visits)
{
    copied *c = calloc(1, sizeof *c);
    bool good = c != NULL;

    if (c) {
        c->mine = mine;
        c->right = true;
        for (int d = 0; d < ndim; d++)
            c->shape[d] = dims[d].size;
        good = wf_saved_parts_visit(mesh, layout, ndim, dims, mine, copy_part, c) == WF_OK &&
               c->right;
        for (int64_t i = 0; i < wf_part_count(mine); i++)
            good = good && c->times[i] == 1;
        *visits += c->visits;
    }
    free(c);
    return good;
}

static const wf_saved_mesh mesh_a = {3, {"replicate", "shard", "tp"}, {2, 4, 3}, {0, 1, 0}, 0};
static const wf_saved_mesh nested_a = {
    3, {"replicate", "shard", "tp"}, {2, 4, 3}, {0, 1, 0}, 1};
static const wf_saved_mesh mesh_b = {2, {"shard", "tp"}, {5, 2}, {1, 0}, 0};
#define LAID(...)                                                                              \
    {                                                                                          \
        .n_axes = __VA_ARGS__, .pp = -1                                                        \
    }
static const wf_saved_layout layouts_a[] = {
    LAID({0}),
    LAID({1, 0}, .axis = {{2}}),
    LAID({0, 1}, .axis = {{0}, {2}}),
    LAID({2, 0}, .axis = {{2, 1}}),
    LAID({1, 1}, .axis = {{1}, {2}}),
    LAID({3, 0}, .axis = {{2, 0, 1}}),
    LAID({1, 2}, .axis = {{0}, {2, 1}}),
};
static const wf_saved_layout layouts_b[] = {
    LAID({0}),
    LAID({1, 0}, .axis = {{1}}),
    LAID({2, 0}, .axis = {{1, 0}}),
    LAID({1, 1}, .axis = {{0}, {1}}),
    LAID({0, 2}, .axis = {{0}, {1, 0}}),
};

/* Every part of one mesh is made up of the parts of another, whatever the layouts and sizes. */
static void any_layout_from_any(void)
{
    static const wf_dim shapes[][2] = {{{12, 4, 8}, {30, 1, 8}},
                                       {{1, 1, 1}, {7, 1, 1}},
                                       {{2, 1, 1}, {0, 1, 1}},
                                       {{40, 8, 8}, {3, 1, 1}},
                                       {{9, 3, 8}, {64, 16, 8}}};
    int64_t visits = 0, cases = 0;

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t a = 0; a < sizeof layouts_a / sizeof *layouts_a; a++)
            for (size_t b = 0; b < sizeof layouts_b / sizeof *layouts_b; b++)
                for (int64_t r = 0; r < wf_saved_mesh_ranks(&mesh_b); r++) {
                    int at[WF_MAX_AXES];
                    wf_part mine;

                    wf_saved_mesh_coordinates(&mesh_b, r, at);
                    CU_ASSERT_EQUAL(wf_saved_mesh_rank(&mesh_b, at), r);
                    mine = wf_saved_part(&mesh_b, &layouts_b[b], 2, shapes[s], at);
                    CU_ASSERT(found_once(&mesh_a, &layouts_a[a], 2, shapes[s], &mine, &visits));
                    CU_ASSERT(
                        found_once(&nested_a, &layouts_a[a], 2, shapes[s], &mine, &visits));
                    cases++;
                }
    CU_ASSERT_EQUAL(cases, 5 * 7 * 5 * 10);
}

/* By hand: 13 rows on 2 x 4 ranks, of now and of a checkpoint of format 1. */
static void cuts_of_format_1(void)
{
    static const int64_t now[] = {0, 1, 3, 4, 6, 8, 9, 11, 13},
                         once[] = {0, 1, 3, 4, 6, 7, 9, 11, 13};
    wf_saved_mesh mesh = {2, {"shard", "tp"}, {4, 2}, {1, 0}, false}, old = mesh;
    const wf_saved_layout both = LAID({2}, .axis = {{1, 0}}), one = LAID({1}, .axis = {{0}});
    const wf_dim odd = wf_dim_chunked(13), even = wf_dim_chunked(16);

    old.nested = true;
    for (int i = 0; i < 8; i++) {
        const int at[] = {i % 4, i / 4};
        wf_part a = wf_saved_part(&mesh, &both, 1, &odd, at);
        wf_part b = wf_saved_part(&old, &both, 1, &odd, at);

        CU_ASSERT(a.start[0] == now[i] && a.start[0] + a.local[0] == now[i + 1]);
        CU_ASSERT(b.start[0] == once[i] && b.start[0] + b.local[0] == once[i + 1]);
    }
    CU_ASSERT(!wf_saved_same_parts(&mesh, &old, &both, 1, &odd));
    CU_ASSERT(wf_saved_same_parts(&mesh, &old, &both, 1, &even));
    CU_ASSERT(wf_saved_same_parts(&mesh, &old, &one, 1, &odd));
}

static void a_scalar_is_one_part(void)
{
    const wf_part mine = {.ndim = 0};
    const wf_saved_layout whole = LAID({0});
    int64_t visits = 0;

    CU_ASSERT(found_once(&mesh_a, &whole, 0, NULL, &mine, &visits));
    CU_ASSERT_EQUAL(visits, 1);
}

/* Every different part has one writer, who holds it, and the turns are spread. */
static void writers_take_turns(void)
{
    const wf_dim dims[] = {{24, 4, 8}, {8, 1, 8}};
    int64_t written[24] = {0};

    for (int64_t number = 0; number < 8; number++)
        for (int64_t r = 0; r < wf_saved_mesh_ranks(&mesh_a); r++) {
            int at[WF_MAX_AXES], mine[WF_MAX_AXES];
            int64_t writer;
            wf_part a, b;

            wf_saved_mesh_coordinates(&mesh_a, r, mine);
            memcpy(at, mine, sizeof at);
            writer = wf_saved_writer(&mesh_a, &layouts_a[1], 2, number, at);
            a = wf_saved_part(&mesh_a, &layouts_a[1], 2, dims, mine);
            b = wf_saved_part(&mesh_a, &layouts_a[1], 2, dims, at);
            CU_ASSERT(memcmp(&a, &b, sizeof a) == 0);
            written[writer] += writer == r;
        }
    for (int r = 0; r < 24; r++) /* 8 tensors, 8 copies of each third */
        CU_ASSERT_EQUAL(written[r], 1);
}

/* Pipeline ranks do not take turns: those that have a tensor write it. */
static void the_own_stage_writes(void)
{
    const wf_saved_mesh mesh = {3, {"pp", "shard", "tp"}, {4, 2, 3}, {0, 1, 0}, 0};
    wf_saved_layout layout = LAID({1, 0}, .axis = {{2}});

    for (layout.pp = 0; layout.pp < 4; layout.pp++)
        for (int64_t number = 0; number < 4; number++)
            for (int64_t r = 0; r < wf_saved_mesh_ranks(&mesh); r++) {
                int at[WF_MAX_AXES], mine[WF_MAX_AXES];

                wf_saved_mesh_coordinates(&mesh, r, mine);
                memcpy(at, mine, sizeof at);
                wf_saved_writer(&mesh, &layout, 2, number, at);
                CU_ASSERT(at[0] == layout.pp && at[1] == number % 2 && at[2] == mine[2]);
            }
}

/* 2^20 ranks: a part that overlaps few others is found without asking the rest. */
static void work_does_not_grow_with_ranks(void)
{
    const wf_saved_mesh mesh = {1, {"shard"}, {1 << 20}, {true}, false};
    const wf_saved_layout layout = LAID({1}, .axis = {{0}});
    const wf_dim dim = {(int64_t)1 << 40, 1, 1};
    int64_t visits = 0;
    double start = (double)clock();

    for (int i = 0; i < 100000; i++) {
        const wf_part mine = {1, {(int64_t)i * 7919 * 1024}, {1}};

        CU_ASSERT(found_once(&mesh, &layout, 1, &dim, &mine, &visits));
    }
    CU_ASSERT_EQUAL(visits, 100000);
    CU_ASSERT(UNDER_SANITIZER || ((double)clock() - start) / CLOCKS_PER_SEC < 5);
}

/* The parts of a saved mesh are those of the mesh itself, on every rank. */
static wf_status same_as_running(wf_rank *rank, void *arg)
{
    static const wf_axis axes[] = {{"replicate", 2}, {"shard", 2}, {"tp", 3}};
    const wf_dim dims[] = {wf_dim_heads(7, 4), wf_dim_chunked(10)};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &rank->error), NULL, &rank->error);
    wf_mesh *mesh = wf_mesh_open(ctx, rank->world, 3, axes, &rank->error);
    const wf_layout *layout;
    wf_saved_mesh saved;
    wf_saved_layout laid;
    int at[WF_MAX_AXES];

    (void)arg;
    NEED(mesh);
    wf_mesh_cut_finely(mesh, 1);
    saved = wf_saved_mesh_of(mesh);
    for (int k = 0; k < 6; k++) {
        layout = k ? wf_layout_split(mesh, NULL, k % 2, 2) : NULL;
        layout = k > 2 ? wf_layout_split(mesh, layout, 0, 1) : layout;
        layout = k > 4 ? wf_layout_split(mesh, layout, 1, 0) : layout;
        laid = wf_saved_layout_of(layout, -1);
        wf_saved_mesh_coordinates(&saved, rank->index, at);
        for (int d = 0; d < 2; d++) {
            wf_part part = wf_saved_part(&saved, &laid, 2, dims, at);
            int64_t start, local;

            wf_layout_part(mesh, layout, d, &dims[d], rank->index, &start, &local);
            NEED(part.start[d] == start && part.local[d] == local);
        }
    }
    NEED(wf_context_status(ctx) == WF_OK);
    wf_mesh_close(mesh);
    wf_context_close(ctx);
    return WF_OK;
}

static void the_same_as_a_mesh_that_runs(void)
{
    run_ranks(12, same_as_running, NULL);
}

static bool is_in(const wf_part *part, const int64_t *at)
{
    bool in = true;

    for (int d = 0; d < part->ndim; d++)
        in = in && at[d] >= part->start[d] && at[d] < part->start[d] + part->local[d];
    return in;
}

/* The parts that are missing after random boxes were found have each remaining element once:
   compared element by element. */
static void missing_is_what_was_not_found(void)
{
    enum { N = 6, ALL = N * N * N, FOUND = 5 };
    uint32_t random = 1;

    for (int turn = 0; turn < 200; turn++) {
        wf_part part = {.ndim = 3, .local = {N, N, N}};
        wf_missing m = {0};
        bool there[ALL] = {false}, right = wf_missing_add(&m, &part);

        for (int k = 0; k < FOUND && right; k++) {
            bool news = false, wanted;

            for (int d = 0; d < 3; d++) {
                random = random * 1664525 + 1013904223;
                part.start[d] = random >> 16 & 3;
                part.local[d] = 1 + (random >> 24) % (uint32_t)(N - part.start[d]);
            }
            right = wf_missing_found(&m, &part, &wanted);
            for (int i = 0; i < ALL; i++)
                if (is_in(&part, (int64_t[]){i / N / N, i / N % N, i % N})) {
                    news = news || !there[i];
                    there[i] = true;
                }
            right = right && wanted == news;
            for (int i = 0; i < ALL && right; i++) {
                int times = 0;

                for (int64_t j = 0; j < m.n; j++)
                    times += is_in(&m.part[j], (int64_t[]){i / N / N, i / N % N, i % N});
                right = times == !there[i];
            }
        }
        free(m.part);
        CU_ASSERT_FATAL(right);
    }
}

static const wf_test tests[] = {
    {"any layout from any", any_layout_from_any},
    {"the cuts of format 1", cuts_of_format_1},
    {"a scalar is one part", a_scalar_is_one_part},
    {"writers take turns", writers_take_turns},
    {"the own stage writes", the_own_stage_writes},
    {"work does not grow with ranks", work_does_not_grow_with_ranks},
    {"what was not found is missing", missing_is_what_was_not_found},
    {"the same as a mesh that runs", the_same_as_a_mesh_that_runs},
    {NULL, NULL}};

int main(void)
{
    return wf_test_main("parts", tests);
}
