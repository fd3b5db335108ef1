/* tests/mesh/test_grid.c - coordinates and strides of grids, against counting. */
#include "mesh/array/grid.h"
#include "tests/harness.h"
#include <string.h>

static const struct {
    int n, size[4];
} grids[] = {{1, {1}}, {1, {5}}, {2, {2, 4}}, {3, {3, 1, 4}}, {4, {2, 3, 2, 5}}};

enum { GRIDS = sizeof grids / sizeof grids[0] };

/* The next rank's coordinates: the innermost axis counts fastest. */
static void count_on(int n, const int *size, int *at)
{
    for (int i = n - 1; i >= 0 && ++at[i] == size[i]; i--)
        at[i] = 0;
}

static void ranks_count_innermost_first(void)
{
    for (int g = 0; g < GRIDS; g++) {
        int n = grids[g].n, at[4] = {0}, found[4];
        const int *size = grids[g].size;

        for (int r = 0; r < wf_grid_ranks(n, size); r++) {
            wf_grid_coordinates(n, size, r, found);
            CU_ASSERT(memcmp(found, at, (size_t)n * sizeof *at) == 0);
            CU_ASSERT_EQUAL(wf_grid_rank(n, size, at), r);
            for (int i = 0; i < n; i++)
                CU_ASSERT_EQUAL(wf_grid_coordinate(n, size, r, i), at[i]);
            count_on(n, size, at);
        }
        for (int i = 0; i < n; i++) /* it has come round */
            CU_ASSERT_EQUAL(at[i], 0);
    }
}

static void groups_have_a_stride(void)
{
    for (int g = 0; g < GRIDS; g++)
        for (int r = 0; r < wf_grid_ranks(grids[g].n, grids[g].size); r++)
            for (int i = 0; i < grids[g].n; i++) {
                int n = grids[g].n, at[4];
                const int *size = grids[g].size;
                int first = wf_grid_first(n, size, r, i), step = wf_grid_stride(n, size, i);

                wf_grid_coordinates(n, size, r, at);
                for (at[i] = 0; at[i] < size[i]; at[i]++)
                    CU_ASSERT_EQUAL(wf_grid_rank(n, size, at), first + at[i] * step);
            }
}

/* The largest part is the largest of all parts, with grains and without. */
static void largest_of_all_parts(void)
{
    for (int64_t size = 0; size < 40; size += 4)
        for (int fine = 0; fine < 4; fine++) {
            const wf_dim dim = {size, 4, WF_CHUNKS_8};
            wf_cutter axis[] = {{2, 0, fine & 1}, {3, 0, fine >> 1}};
            int64_t most = 0, last = 0;

            for (int p = 0; p < 6; p++) {
                int64_t end = size;

                axis[0].index = (p + 1) / 3;
                axis[1].index = (p + 1) % 3;
                if (p < 5)
                    end = wf_cut_together(&dim, 2, axis);
                CU_ASSERT(end >= last);
                most = end - last > most ? end - last : most;
                last = end;
            }
            CU_ASSERT_EQUAL(wf_cut_largest(&dim, 2, axis), most);
        }
}

/* All cuts along the last axis at once are those of one index after the other. */
static void cuts_along_an_axis(void)
{
    for (int64_t size = 0; size < 60; size += 4)
        for (int k = 0; k < 16; k++) {
            const wf_dim dim = {size, k & 1 ? 4 : 1, WF_CHUNKS_8};
            wf_cutter axis[] = {{3, k % 3, k >> 1 & 1}, {5, k % 5, k >> 2 & 1}};
            int n = 1 + (k >> 3);
            int64_t cuts[6], parts = axis[n - 1].parts;

            wf_cut_along(&dim, n, axis, cuts);
            for (int64_t i = 0; i <= parts; i++) {
                axis[n - 1].index = i;
                CU_ASSERT_EQUAL(cuts[i], wf_cut_together(&dim, n, axis));
            }
        }
}

static const wf_test tests[] = {
    {"ranks count the innermost axis first", ranks_count_innermost_first},
    {"groups along an axis have a stride", groups_have_a_stride},
    {"the largest part", largest_of_all_parts},
    {"cuts along an axis", cuts_along_an_axis},
    {NULL, NULL},
};

int main(void)
{
    return wf_test_main("grid", tests);
}
