/* tests/parallel/test_replay_rows.c - files of --log-digests as --replay reads them. */
#include "parallel/recovery/replay_rows_internal.h"
#include "tests/harness.h"
#include <string.h>

#define HEAD(size, start, local)                                                               \
    "{\"rank\": 1, \"ranks\": 2, \"numerics\": \"n\", \"parts\": "                             \
    "[[\"w\", 0, [" size "], [" start "], [" local "]]]}\n"
#define STEP(n, digest) "{\"step\": " n ", \"digests\": [\"" digest "\"]}\n"
#define MOST            "9223372036854775807"

static wf_status read_text(const char *text, wf_replay_rows *rows, wf_error *error)
{
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    wf_status status;

    *error = (wf_error){WF_OK, ""};
    *rows = (wf_replay_rows){.count = 0};
    CU_ASSERT_FATAL(file != NULL);
    status = wf_replay_rows_read(rows, file, "rank.jsonl", "n", error);
    fclose(file);
    wf_replay_rows_sort(rows);
    return status;
}

/* A step that was made again counts once, as it was last; a cut last row does not. */
static void rows_of_a_run(void)
{
    wf_replay_rows rows;
    wf_par_held_part part;
    wf_error error;

    CU_ASSERT_EQUAL(read_text(HEAD("8", "4", "4") STEP("1", "a1")
                                  STEP("2", "a2") "{\"step\": 3, \"dig\n" HEAD("8", "0", "4")
                                      STEP("2", "b2") "{\"step\": 3, \"di",
                              &rows, &error),
                    WF_OK);
    CU_ASSERT_EQUAL_FATAL(rows.count, 2);
    CU_ASSERT_EQUAL(rows.ranks, 2);
    wf_replay_part(&rows.row[0], 0, &part);
    CU_ASSERT(part.digest == 0xa1 && part.start[0] == 4 && part.local[0] == 4);
    wf_replay_part(&rows.row[1], 0, &part);
    CU_ASSERT(rows.row[1].step == 2 && part.digest == 0xb2 && part.start[0] == 0);
    wf_replay_rows_free(&rows);
}

static void what_is_refused(void)
{
    static const char *const bad[] = {
        HEAD(MOST, MOST, "2") STEP("1", "a"), /* the end of the part is beyond 2^63 */
        HEAD("8", "-1", "4") STEP("1", "a"),
        HEAD("8", "4", "-1") STEP("1", "a"),
        HEAD("8", "5", "4") STEP("1", "a"),
        STEP("1", "a"),
        HEAD("8", "4", "4") STEP("-1", "a"),
        HEAD("8", "4", "4") STEP("99999999999999999999", "a"),
        HEAD("8", "4", "4") "damaged\n" STEP("1", "a"),
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_replay_rows rows;
        wf_error error;

        CU_ASSERT_EQUAL(read_text(bad[i], &rows, &error), WF_EDATA);
        CU_ASSERT(strstr(error.text, "rank.jsonl") != NULL);
        wf_replay_rows_free(&rows);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"rows of a run", rows_of_a_run},
                                    {"rows that are refused", what_is_refused},
                                    {NULL, NULL}};

    return wf_test_main("replay_rows", tests);
}
