/* tests/core/test_tree.c - cuts cover and nest; the walk over chunks builds the midpoint tree.
 */
#include "core/numerics/bits.h"
#include "tests/core/core_harness.h"
#include <string.h>

static const struct {
    int64_t size, grain;
} sizes[] = {{0, 1},    {1, 1},     {7, 1},    {8, 1},   {64, 8},
             {768, 64}, {50257, 1}, {320, 64}, {128, 64}};

enum { SIZES = sizeof sizes / sizeof *sizes };

static void cuts_cover(void)
{
    for (int s = 0; s < SIZES; s++)
        for (int64_t parts = 1; parts <= 16; parts++) {
            int64_t size = sizes[s].size, grain = sizes[s].grain, least = size, most = 0;

            CU_ASSERT_EQUAL(wf_cut(size, grain, parts, 0), 0);
            CU_ASSERT_EQUAL(wf_cut(size, grain, parts, parts), size);
            for (int64_t i = 0; i < parts; i++) {
                int64_t at = wf_cut(size, grain, parts, i);
                int64_t n = wf_cut(size, grain, parts, i + 1) - at;

                CU_ASSERT_EQUAL(at % grain, 0);
                least = n < least ? n : least;
                most = n > most ? n : most;
            }
            CU_ASSERT_TRUE(least >= 0 && most - least <= grain);
        }
}

/* The cuts of 2 are among those of 4, these among those of 8, whatever the size. */
static void cuts_nest(void)
{
    for (int64_t size = 0; size < 200; size++)
        for (int64_t parts = 1; parts < WF_MAX_CHUNKS; parts *= 2)
            for (int64_t i = 0; i <= parts; i++)
                for (int64_t grain = 1; grain <= 64; grain *= 4)
                    CU_ASSERT_EQUAL(
                        wf_cut(size * grain, grain, parts, i),
                        wf_cut(size * grain, grain, WF_MAX_CHUNKS, i * WF_MAX_CHUNKS / parts));
    for (int64_t i = 0; i <= WF_MAX_CHUNKS; i++) /* 3 does not */
        CU_ASSERT_NOT_EQUAL(wf_cut(24, 1, 3, 1), wf_cut(24, 1, WF_MAX_CHUNKS, i));
}

/* A sum that sees order and shape. */
static uint64_t pair(uint64_t left, uint64_t right)
{
    return wf_mix64(wf_mix64(left) + 3 * right);
}

static uint64_t by_definition(int64_t first, int64_t n)
{
    return n == 1 ? (uint64_t)first
                  : pair(by_definition(first, n / 2), by_definition(first + n / 2, n - n / 2));
}

static uint64_t by_walk(int64_t first, int64_t n)
{
    uint64_t open[WF_TREE_DEPTH];
    int depth = 0;

    for (int64_t i = 0; i < n; i++) {
        open[depth++] = (uint64_t)(first + i);
        for (int merges = wf_tree_merges(n, i); merges > 0; merges--) {
            CU_ASSERT_FATAL(depth > 1 && depth < WF_TREE_DEPTH);
            depth--;
            open[depth - 1] = pair(open[depth - 1], open[depth]);
        }
    }
    CU_ASSERT_EQUAL(depth, 1);
    return open[0];
}

/* The tree over sequences of trees over `each` chunks of them. */
static uint64_t of_sequences(int64_t first, int64_t sequences, int64_t each)
{
    int64_t half = sequences / 2;

    return sequences == 1 ? by_definition(first, each)
                          : pair(of_sequences(first, half, each),
                                 of_sequences(first + half * each, sequences - half, each));
}

static void walk_over_sequences(void)
{
    for (int64_t each = 1; each <= WF_MAX_TOKEN_CHUNKS; each *= 2)
        for (int64_t sequences = 1; sequences <= 40; sequences++) {
            uint64_t open[WF_TREE_DEPTH];
            int64_t n = sequences * each;
            int depth = 0;

            for (int64_t i = 0; i < n; i++) {
                open[depth++] = (uint64_t)i;
                for (int m = wf_tree_merges_each(n, each, i); m > 0; m--, depth--)
                    open[depth - 2] = pair(open[depth - 2], open[depth - 1]);
            }
            CU_ASSERT_EQUAL(depth, 1);
            CU_ASSERT_EQUAL(open[0], of_sequences(0, sequences, each));
        }
}

static void chunks_of_tokens(void)
{
    static const int64_t cases[][2] = {{0, 1},      {2047, 1},   {2048, 2},   {4095, 2},
                                       {4096, 4},   {8191, 4},   {8192, 8},   {16383, 8},
                                       {16384, 16}, {32767, 16}, {32768, 32}, {1 << 30, 32}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CU_ASSERT_EQUAL(wf_token_chunks(cases[i][0]), cases[i][1]);
}

static void walk_is_the_tree(void)
{
    for (int64_t n = 1; n <= 300; n++)
        CU_ASSERT_EQUAL(by_walk(0, n), by_definition(0, n));
    for (int64_t i = 0; i < 64; i++) /* a power of two: merges are the trailing ones of i */
        CU_ASSERT_EQUAL(wf_tree_merges(64, i), __builtin_ctzll(~(unsigned long long)i));
    CU_ASSERT_EQUAL(wf_tree_merges(INT64_C(1) << 40, (INT64_C(1) << 40) - 1), 40);
}

/* Ranks that hold equal parts of the chunks add up to the same tree: theirs are its nodes. */
static void ranks_are_nodes(void)
{
    for (int64_t ranks = 1; ranks <= 8; ranks *= 2)
        for (int64_t each = 1; each <= 9; each++) {
            uint64_t node[8];

            for (int64_t r = 0; r < ranks; r++)
                node[r] = by_walk(r * each, each);
            for (int64_t n = ranks; n > 1; n /= 2)
                for (int64_t r = 0; r < n / 2; r++)
                    node[r] = pair(node[2 * r], node[2 * r + 1]);
            CU_ASSERT_EQUAL(node[0], by_definition(0, ranks * each));
        }
}

/* The chunks of the parts, laid side by side, are the chunks of the whole. */
static void chunks_of_parts(void)
{
    wf_context *ctx = open_reference(0);

    for (int s = 0; s < SIZES; s++)
        for (int64_t parts = 1; parts <= 9; parts++) {
            wf_dim dim = {sizes[s].size, sizes[s].grain, WF_CHUNKS_8};
            wf_tensor part = *wf_tensor_fake(ctx, WF_F64, 1, &dim, NULL);
            int64_t length[WF_MAX_CHUNKS] = {0};

            for (int64_t p = 0; p < parts; p++) {
                int64_t at[WF_MAX_CHUNKS + 1], end = wf_cut(dim.size, dim.grain, parts, p + 1);

                part.start[0] = wf_cut(dim.size, dim.grain, parts, p);
                part.local[0] = end - part.start[0];
                CU_ASSERT_EQUAL(wf_chunk_cuts(&part, 0, at), WF_MAX_CHUNKS);
                CU_ASSERT_EQUAL(at[0], 0);
                CU_ASSERT_EQUAL(at[WF_MAX_CHUNKS], part.local[0]);
                for (int i = 0; i < WF_MAX_CHUNKS; i++) {
                    CU_ASSERT_TRUE(at[i] <= at[i + 1]);
                    if (at[i] < at[i + 1])
                        CU_ASSERT_TRUE(part.start[0] + at[i] >=
                                       wf_cut(dim.size, dim.grain, WF_MAX_CHUNKS, i));
                    length[i] += at[i + 1] - at[i];
                }
            }
            for (int i = 0; i < WF_MAX_CHUNKS; i++)
                CU_ASSERT_EQUAL(length[i], wf_cut(dim.size, dim.grain, WF_MAX_CHUNKS, i + 1) -
                                               wf_cut(dim.size, dim.grain, WF_MAX_CHUNKS, i));
        }
    wf_context_close(ctx);
}

/* The chunks under exact_tp are nodes of the tree over eight, and cuts of as many ranks. */
static void fewer_chunks(void)
{
    for (int most = 1; most <= WF_MAX_CHUNKS; most *= 2) {
        wf_context_options options = {.exact_tp = most};
        wf_context *ctx = wf_context_open(wf_reference_device(NULL), &options, NULL);

        CU_ASSERT_EQUAL(wf_context_chunks(ctx), most);
        for (int s = 0; s < SIZES; s++) {
            wf_dim dim = {sizes[s].size, sizes[s].grain, WF_CHUNKS_8};
            wf_tensor *t = wf_tensor_fake(ctx, WF_F64, 1, &dim, NULL);
            int64_t at[WF_MAX_CHUNKS + 1];

            CU_ASSERT_EQUAL(wf_chunk_cuts(t, 0, at), most);
            for (int i = 0; i <= most; i++) {
                CU_ASSERT_EQUAL(at[i], wf_cut(dim.size, dim.grain, most, i));
                CU_ASSERT_EQUAL(at[i], wf_cut(dim.size, dim.grain, WF_MAX_CHUNKS,
                                              i * (WF_MAX_CHUNKS / most)));
            }
        }
        wf_context_close(ctx);
    }
}

static void no_other_chunks(void)
{
    static const struct {
        wf_context_options options;
        const char *text;
    } refused[] = {{{.exact_tp = 3}, ".exact_tp 3 is none of 1, 2, 4 and 8"},
                   {{.exact_tp = 16}, ".exact_tp 16 is none of"},
                   {{.exact_tp = -1}, ".exact_tp -1 is none of"},
                   {{.exact_tp = 4, .exact_off = true}, "use one of the two"}};

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        wf_error error = {WF_OK, ""};

        CU_ASSERT_PTR_NULL(
            wf_context_open(wf_reference_device(NULL), &refused[i].options, &error));
        CU_ASSERT_EQUAL(error.code, WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, refused[i].text));
    }
}

static void one_chunk(void)
{
    wf_context_options off = {.exact_off = true};
    wf_context *ctx[] = {open_reference(0),
                         wf_context_open(wf_reference_device(NULL), &off, NULL)};
    wf_dim dims[] = {wf_dim_width(10), wf_dim_chunked(10)};
    int64_t at[WF_MAX_CHUNKS + 1];

    for (int i = 0; i < 2; i++) {
        wf_tensor *t = wf_tensor_fake(ctx[i], WF_F64, 2, dims, NULL);

        CU_ASSERT_EQUAL(wf_chunk_cuts(t, 0, at), 1);
        CU_ASSERT_TRUE(at[0] == 0 && at[1] == 10);
        CU_ASSERT_EQUAL(wf_chunk_cuts(t, 1, at), i == 0 ? WF_MAX_CHUNKS : 1);
        CU_ASSERT_EQUAL(at[i == 0 ? WF_MAX_CHUNKS : 1], 10);
        CU_ASSERT_EQUAL(wf_context_exact(ctx[i]), i == 0);
        wf_context_close(ctx[i]);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"cuts cover", cuts_cover},
        {"cuts nest", cuts_nest},
        {"the walk over chunks is the midpoint tree", walk_is_the_tree},
        {"a walk over sequences", walk_over_sequences},
        {"chunks of tokens", chunks_of_tokens},
        {"what ranks hold are its nodes", ranks_are_nodes},
        {"chunks of parts", chunks_of_parts},
        {"fewer chunks", fewer_chunks},
        {"numbers of chunks that there are not", no_other_chunks},
        {"one chunk", one_chunk},
        {NULL, NULL}};

    return wf_test_main("tree", tests);
}
