/*
 * tests/nn/test_dataset_order.c - the order of windows: permutations; mixtures; and what three
 * epochs of five datasets read, beside scripts/proofs/data_order.py.
 *
 * ctest: builds address thread, defines WEFT_SCRIPTS=scripts/proofs
 */
#include "nn/dataset/order_internal.h"
#include "core/numerics/random.h"
#include "tests/nn/dataset_files.h"

enum { SEQ = 4, BATCH = 8, MOST_SOURCES = 3, APART = 10000000 };

static void permutations(void)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 1000, 65536};
    static bool seen[65536];
    uint64_t key = wf_random_key(9, WF_RANDOM_ORDER);

    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t n = sizes[k], same = 0, in_place = 0;

        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < n; i++) {
            int64_t p = wf_dataset_order_permuted(key, 3, 1, n, i);

            CU_ASSERT_TRUE_FATAL(p >= 0 && p < n && !seen[p]);
            seen[p] = true;
            in_place += p == i;
            same += p == wf_dataset_order_permuted(key, 3, 2, n, i);
            same += p == wf_dataset_order_permuted(key, 4, 1, n, i);
            same += p == wf_dataset_order_permuted(key + 1, 3, 1, n, i);
        }
        if (n >= 1000) /* by chance 1 of a permutation stays where it is, and 3 are the same */
            CU_ASSERT_TRUE(in_place < 10 && same < 20);
    }
    for (int64_t i = 0; i < 1000; i++) {
        int64_t n = INT64_C(1) << 62,
                p = wf_dataset_order_permuted(key, 0, INT64_MAX, n, n - 1 - i);

        CU_ASSERT_TRUE(p >= 0 && p < n);
    }
}

/* Largest remainders: 65536 x (1/3, 1/3, 1/3) leaves one, which the first source gets. */
static void quotas_are_exact(void)
{
    static const struct {
        double weight[3];
        int64_t quota[3];
    } row[] = {{{1, 1, 1}, {21846, 21845, 21845}},
               {{0.7, 0.3, 1e-9}, {45875, 19661, 0}},
               {{3, 2, 1}, {32768, 21845, 10923}},
               {{1e300, 1e300, 2e300}, {16384, 16384, 32768}}};

    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        wf_dataset_mixture *m;
        int64_t had[3] = {0};

        CU_ASSERT_EQUAL_FATAL(wf_dataset_mixture_new(5, row[k].weight, 3, &m, NULL), WF_OK);
        for (int64_t g = 0; g < WF_DATASET_ORDER_PERIOD; g++) {
            int64_t before, source = wf_dataset_mixture_at(m, g, &before);

            CU_ASSERT_TRUE_FATAL(before == had[source]++);
            wf_dataset_mixture_at(m, g + 3 * WF_DATASET_ORDER_PERIOD, &before);
            CU_ASSERT_TRUE_FATAL(before == had[source] - 1 + 3 * row[k].quota[source]);
        }
        for (int s = 0; s < 3; s++) {
            CU_ASSERT_EQUAL(had[s], row[k].quota[s]);
            CU_ASSERT_EQUAL(wf_dataset_mixture_quota(m, s), row[k].quota[s]);
        }
        wf_dataset_mixture_free(m);
    }
}

typedef struct set {
    const char *windows, *weights; /* as the script takes them */
    int64_t window[MOST_SOURCES];
    double weight[MOST_SOURCES];
    int sources, samples;
} set;

/* Ids tell where they are from: APART ids for each source. */
static wf_dataset *make(const set *s)
{
    static char text[MOST_SOURCES][128];
    char *argument[MOST_SOURCES];
    wf_dataset_options o = {.data = argument,
                            .data_count = s->sources,
                            .seq_len = SEQ,
                            .global_batch = BATCH,
                            .vocabulary = {.size = INT32_MAX, .given = true},
                            .seed = 17};

    for (int i = 0; i < s->sources; i++) {
        char name[16];
        char *path;

        snprintf(name, sizeof name, "s%d", i);
        path = write_pair(name, INT32_MAX, APART * i, s->window[i] * SEQ + 1 + i % SEQ);
        snprintf(text[i], sizeof text[i], "%s=%.17g:%s", name, s->weight[i], path);
        argument[i] = s->sources == 1 ? path : text[i];
    }
    return open_good(&o);
}

/* One sample's source and window, which all of its ids have to be of. */
static void look_up(const wf_dataset *data, int64_t sample, int *source, int64_t *window)
{
    int32_t tokens[SEQ], targets[SEQ];
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL_FATAL(wf_dataset_read(data, WF_DATASET_TRAIN, sample / BATCH + 1,
                                          sample % BATCH, 1, tokens, targets, &error),
                          WF_OK);
    for (int i = 0; i < SEQ; i++)
        CU_ASSERT_TRUE_FATAL(tokens[i] == tokens[0] + i && targets[i] == tokens[i] + 1);
    *source = tokens[0] / APART;
    *window = tokens[0] % APART / SEQ;
    CU_ASSERT_EQUAL(tokens[0] % APART % SEQ, 0);
}

/* Checks that a window comes once in each epoch of its source. */
static void check_epochs(const set *s, int source, int64_t window, int64_t had[MOST_SOURCES],
                         int8_t *seen[MOST_SOURCES])
{
    int64_t epoch = had[source]++ / s->window[source];

    CU_ASSERT_TRUE_FATAL(window < s->window[source] && seen[source][window] == epoch);
    seen[source][window]++;
}

static void compare(const set *s)
{
    wf_dataset *data = make(s);
    int8_t *seen[MOST_SOURCES] = {NULL};
    int64_t had[MOST_SOURCES] = {0};
    char command[512];
    FILE *twin;

    snprintf(command, sizeof command,
             "python3 " WEFT_SCRIPTS "/data_order.py --seed 17 --samples %d --windows %s "
             "--weights %s",
             s->samples, s->windows, s->weights);
    twin = popen(command, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(twin);
    for (int i = 0; i < s->sources; i++)
        seen[i] = calloc((size_t)s->window[i], 1);
    for (int64_t g = 0; g < s->samples; g++) {
        int source, his_source = -1;
        int64_t window;
        long long his_window = -1;

        look_up(data, g, &source, &window);
        if (fscanf(twin, "%d %lld", &his_source, &his_window) != 2 || his_source != source ||
            his_window != window) {
            printf("\n    windows %s, sample %lld: %d %lld, and the script %d %lld\n",
                   s->windows, (long long)g, source, (long long)window, his_source, his_window);
            CU_FAIL_FATAL("the script says something else");
        }
        check_epochs(s, source, window, had, seen);
    }
    CU_ASSERT_EQUAL(fgetc(twin), '\n');
    CU_ASSERT_EQUAL(fgetc(twin), EOF);
    CU_ASSERT_EQUAL(pclose(twin), 0);
    for (int i = 0; i < s->sources; i++)
        free(seen[i]);
    wf_dataset_close(data);
}

/* At least three epochs of each source. */
static void five_datasets(void)
{
    static const set sets[] = {
        {"1", "1", {1}, {1}, 1, 24},
        {"7", "2.5", {7}, {2.5}, 1, 21},
        {"1000", "1", {1000}, {1}, 1, 3000},
        {"64,300", "0.25,0.75", {64, 300}, {0.25, 0.75}, 2, 1300},
        {"11,500,130", "0.1,0.6,0.3", {11, 500, 130}, {0.1, 0.6, 0.3}, 3, 2600},
    };

    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        compare(&sets[i]);
}

/* However many ranks share a batch in whatever pieces, they read what one reads at once. */
static void pieces_of_a_batch(void)
{
    static const set s = {"", "", {64, 300}, {0.25, 0.75}, 2, 0};
    wf_dataset *data = make(&s);
    int32_t whole[2][BATCH * SEQ], pieces[2][BATCH * SEQ];
    wf_error error = {WF_OK, ""};

    for (int64_t step = 1; step <= 40; step++) {
        CU_ASSERT_EQUAL(
            wf_dataset_read(data, WF_DATASET_TRAIN, step, 0, BATCH, whole[0], whole[1], &error),
            WF_OK);
        for (int64_t piece = 1; piece <= BATCH; piece *= 2) {
            for (int64_t i = BATCH - piece; i >= 0; i -= piece)
                CU_ASSERT_EQUAL(wf_dataset_read(data, WF_DATASET_TRAIN, step, i, piece,
                                                pieces[0] + i * SEQ, pieces[1] + i * SEQ,
                                                &error),
                                WF_OK);
            CU_ASSERT_EQUAL(memcmp(whole, pieces, sizeof whole), 0);
        }
    }
    wf_dataset_close(data);
}

static const wf_test tests[] = {
    {"permutations", permutations},
    {"quotas are exact", quotas_are_exact},
    {"five datasets beside the script", five_datasets},
    {"pieces of a batch", pieces_of_a_batch},
    {NULL, NULL},
};

int main(void)
{
    static const wf_test none[] = {{NULL, NULL}};
    bool python = system("python3 -c '' 2>/dev/null") == 0;

    if (!python)
        wf_test_skip_all("there is no python3 to run scripts/proofs/data_order.py with");
    return data_main("data_order", python ? tests : none);
}
