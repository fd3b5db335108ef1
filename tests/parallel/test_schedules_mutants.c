/*
 * tests/parallel/test_schedules_mutants.c - the proof of pipeline tables against their
 * execution: 10,000 small tables with mistakes in them. What the proof accepts ends right, and
 * what it refuses does not.
 *
 *     test_schedules_mutants [MUTANTS [SEED [ONE_IN]]]
 *
 * Each is executed by a model of ranks; those that have their messages by threads too, of
 * deadlocks one in ONE_IN, 1 for all of them.
 *
 * ctest: builds plain, cost 50
 */
#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/text.h"
#include "tests/harness.h"
#include "tests/parallel/table_executor.h"
#include "tests/parallel/table_mutants.h"
#include "tests/parallel/table_threads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 32, EXECUTIONS = 3, WORDS = sizeof((wf_error){0}).text };

static int mutants = 10000, one_in = 500, on_threads[3];
static unsigned seed = 1;

/* The results of mutants of a kind. */
typedef struct tally {
    int accepted, wrong, still; /* wrong and still: those that are refused */
    int mistakes;               /* differences between proof and execution */
} tally;

/* The results of the proof and of queues for a table. */
typedef struct comparison {
    bool accepted;
    ending run;
} comparison;

/* Executes a table in several orders: none of them may tell. */
static execution execute(const wf_pipe_table *table)
{
    execution first = execute_table(table, (unsigned)table_chance(1 << 20) << 8), other;

    for (int i = 1; i < EXECUTIONS; i++) {
        other = execute_table(table, (unsigned)table_chance(1 << 20) << 8);
        CU_ASSERT_EQUAL(first.ending, other.ending);
    }
    return first;
}

/* Runs a table that has its messages on threads, with a transport's buffers in place of queues.
   They take half a second to find a deadlock, so some of the tables that stand still are left
   out. */
static void compare_threads(const wf_pipe_table *table, const char *kind, comparison of)
{
    static const char *const endings[] = {"ends right", "goes wrong", "stands still"};
    static int still;
    char text[WORDS];
    ending run;

    if (!wf_pipe_table_facts(table).lowered || (of.run == STANDS_STILL && still++ % one_in))
        return;
    run = execute_on_threads(table, text, sizeof text);
    on_threads[run]++;
    /* A rank may have come to a wrong end before the model stands still. */
    if (of.accepted == (run == ENDS_RIGHT) && (run != STANDS_STILL || of.run == STANDS_STILL))
        return;
    CU_FAIL("the proof and the execution of a table by threads differ");
    printf("\n    %s: the proof %s it, by threads it %s: %s\n", kind,
           of.accepted ? "accepts" : "refuses", endings[run], text);
    wf_pipe_table_print(table, stdout);
}

/* The proof and the execution of a table; reported: the words of the proof. */
static comparison compare(const wf_pipe_table *table, const char *kind, tally *count,
                          char *reported)
{
    static const char *const endings[] = {"ends right", "goes wrong", "stands still"};
    wf_error error = {WF_OK, ""};
    wf_pipe_proof proof = {0};
    bool accepted = wf_pipe_prove(table, &proof, &error) == WF_OK;
    execution run = execute(table);
    bool right = run.ending == ENDS_RIGHT;

    count->accepted += accepted;
    count->wrong += !accepted && run.ending == GOES_WRONG;
    count->still += !accepted && run.ending == STANDS_STILL;
    memcpy(reported, error.text, WORDS);
    /* The proof finds what goes wrong before it looks for deadlocks. */
    if (accepted == right &&
        (run.ending == STANDS_STILL || strncmp(reported, "deadlock: ", 10) != 0) &&
        (!right || (proof.messages == run.messages && proof.in_flight == run.in_flight &&
                    proof.peak == run.peak)))
        return (comparison){accepted, run.ending};
    count->mistakes++;
    CU_FAIL("the proof and the execution of a table differ");
    printf("\n    %s: the proof says \"%s\", the execution %s\n", kind,
           accepted ? "it ends" : error.text, endings[run.ending]);
    wf_pipe_table_print(table, stdout);
    return (comparison){accepted, run.ending};
}

/* A table with a mistake of a kind in it; one in four has another one, which may undo the
   first. */
static wf_pipe_table *mutant(const mutation *kind, int kinds, bool *two)
{
    for (;;) {
        wf_pipe_table *table = table_by_chance(), *before = table_copy(table);
        bool changed;

        kind->change(table);
        changed = !table_same(table, before);
        *two = table_chance(4) == 0;
        if (*two)
            table_mutations[table_chance(kinds)].change(table);
        wf_pipe_table_free(before);
        if (changed)
            return table;
        wf_pipe_table_free(table);
    }
}

/* A circle of all ranks is reported with each of them, as far as there is room. */
static void circle_is_reported(const wf_pipe_table *table, const char *reported)
{
    int ranks = wf_pipe_table_shape(table).ranks, links = 0;

    CU_ASSERT(strncmp(reported, "deadlock: rank ", 15) == 0);
    for (const char *at = reported; (at = strstr(at, " waits in ")) != NULL; at++)
        links++;
    CU_ASSERT_EQUAL(links, ranks);
}

static void compare_mutants(void)
{
    tally count[MOST_KINDS] = {{0}};
    char reported[WORDS];
    int kinds = 0;

    while (table_mutations[kinds].name)
        kinds++;
    CU_ASSERT_FATAL(kinds >= 14 && kinds <= MOST_KINDS);
    table_chance_seed(seed);
    for (int i = 0; i < mutants; i++) {
        const mutation *kind = &table_mutations[i % kinds];
        bool two;
        wf_pipe_table *table = mutant(kind, kinds, &two);

        compare_threads(table, kind->name,
                        compare(table, kind->name, &count[i % kinds], reported));
        if (!two && strcmp(kind->name, "circle of all ranks") == 0)
            circle_is_reported(table, reported);
        wf_pipe_table_free(table);
    }
    printf("\n    %-20s %8s %8s %8s\n", "", "accepted", "wrong", "deadlock");
    for (int k = 0; k < kinds; k++) {
        printf("    %-20s %8d %8d %8d\n", table_mutations[k].name, count[k].accepted,
               count[k].wrong, count[k].still);
        CU_ASSERT(count[k].wrong + count[k].still > 0);
        CU_ASSERT_EQUAL(count[k].mistakes, 0);
    }
    printf("    by threads: %d end right, %d go wrong, %d stand still ", on_threads[ENDS_RIGHT],
           on_threads[GOES_WRONG], on_threads[STANDS_STILL]);
    for (int e = 0; e < 3; e++)
        CU_ASSERT(on_threads[e] > 0);
}

/* Without a mistake tables end right, or stand still where they have too few messages. */
static void without_mistakes(void)
{
    tally count = {0};
    char reported[WORDS];

    table_chance_seed(seed);
    for (int i = 0; i < mutants / 10; i++) {
        wf_pipe_table *table = table_by_chance();

        compare_threads(table, "no mistake", compare(table, "no mistake", &count, reported));
        wf_pipe_table_free(table);
    }
    printf(" %d accepted, %d deadlocks", count.accepted, count.still);
    CU_ASSERT_EQUAL(count.wrong, 0);
    CU_ASSERT(count.accepted > 8 * count.still && count.still > 0);
}

/* Transports keep 32 messages: more than small tables have. */
static void room(void)
{
    const wf_pipe_shape shape = {2, 2, EXECUTOR_MICRO, 0};
    const wf_pipe_lowering how[] = {
        {.depth = 32, .ahead = 32}, {.depth = 33, .ahead = 1}, {.depth = 1, .ahead = 33}};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table, *lowered;
    char reported[WORDS];

    CU_ASSERT_EQUAL_FATAL(wf_pipe_generate("gpipe", &shape, &table, &error), WF_OK);
    for (int i = 0; i < 3; i++) {
        tally count = {0};

        CU_ASSERT_EQUAL_FATAL(wf_pipe_lower(table, &how[i], &lowered, &error), WF_OK);
        compare(lowered, "many messages", &count, reported);
        CU_ASSERT_EQUAL(count.accepted, i == 0);
        CU_ASSERT_EQUAL(strstr(reported, "more than 32 messages from rank ") != NULL, i > 0);
        wf_pipe_table_free(lowered);
    }
    wf_pipe_table_free(table);
}

int main(int argc, char **argv)
{
    static const wf_test tests[] = {{"without mistakes", without_mistakes},
                                    {"mutants", compare_mutants},
                                    {"32 messages on the way", room},
                                    {NULL, NULL}};

    if (argc > 1)
        mutants = atoi(argv[1]);
    if (argc > 2)
        seed = (unsigned)atoi(argv[2]);
    if (argc > 3)
        one_in = atoi(argv[3]);
    return wf_test_main("schedules with mistakes", tests);
}
