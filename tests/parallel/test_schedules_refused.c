/*
 * tests/parallel/test_schedules_refused.c - what the proof of a pipeline table says against it,
 * each sentence by a table with that one mistake.
 */
#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/text.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

/* Two ranks, two stages, two micro-batches, as a word for each action of a row. */
static void row(wf_pipe_table *table, int rank, const char *kinds, const char *micro)
{
    for (int i = 0; kinds[i]; i++)
        wf_pipe_table_add(table, rank,
                          kinds[i] == 'F'   ? WF_PIPE_F
                          : kinds[i] == 'I' ? WF_PIPE_I
                          : kinds[i] == 'W' ? WF_PIPE_W
                          : kinds[i] == 'R' ? WF_PIPE_R
                                            : WF_PIPE_B,
                          rank, micro[i] - '0');
}

static void says(const char *first, const char *first_micro, const char *second,
                 const char *second_micro, const char *words)
{
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;

    wf_pipe_table_new(&(wf_pipe_shape){2, 2, 2, 0}, &table, &error);
    wf_pipe_table_set_rank(table, 0, 0);
    wf_pipe_table_set_rank(table, 1, 1);
    row(table, 0, first, first_micro);
    row(table, 1, second, second_micro);
    CU_ASSERT_EQUAL(wf_pipe_prove(table, NULL, &error), *words ? WF_EINVAL : WF_OK);
    CU_ASSERT(strstr(error.text, words) != NULL);
    if (!strstr(error.text, words))
        printf("\n    %s\n", error.text);
    wf_pipe_table_free(table);
}

static void compute_actions(void)
{
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;

    says("FFBB", "0101", "FBFB", "0011", "");
    says("FFBB", "0101", "FBF", "001", "rank 1, at the end of its row: I1.1 is not in it");
    says("FFBB", "0101", "FBFBW", "00110",
         "rank 1, action 4 of 5, W1.0: stage 1 and micro-batch 0 have had that already");
    says("FFBB", "0101", "FWIFB", "00011",
         "rank 1, action 1 of 5, W1.0: it needs I1.0 before it");
    says("FFBB", "0101", "BFFB", "0011",
         "rank 1, action 0 of 4, B1.0: it needs F1.0 before it");
    says("FFBRB", "01001", "FBFB", "0011", "R0.0: the forward is recomputed for I or B");
    says("FBFB", "0011", "FFBB", "0110",
         "deadlock: rank 0 waits in B0.0 for B1.0 of rank 1, which waits after F1.1; rank 1 "
         "waits in F1.1 for F0.1 of rank 0, which waits after B0.0");
    wf_pipe_table_new(&(wf_pipe_shape){2, 2, 2, 0}, &table, &error);
    CU_ASSERT_EQUAL(wf_pipe_prove(table, NULL, &error), WF_EINVAL);
    CU_ASSERT_STRING_EQUAL(error.text, "stage 0 is on no rank: place it");
    wf_pipe_table_free(table);
}

typedef struct mistake {
    const char *right, *wrong; /* a text of the table, and its replacement */
    const char *words;         /* the proof's words about that; "": none */
} mistake;

static void expect(const char *text, const mistake *m)
{
    const char *at = strstr(text, m->right);
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table = NULL;
    char changed[2048];

    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    snprintf(changed, sizeof changed, "weft-schedule 1\n%.*s%s%s", (int)(at - text), text,
             m->wrong, at + strlen(m->right));
    CU_ASSERT_EQUAL(wf_pipe_table_parse("table", changed, &table, &error), WF_OK);
    if (table)
        CU_ASSERT_EQUAL(wf_pipe_prove(table, NULL, &error), *m->words ? WF_EINVAL : WF_OK);
    CU_ASSERT(strstr(error.text, m->words) != NULL);
    if (!strstr(error.text, m->words))
        printf("\n    %s for %s: %s\n", m->wrong, m->right, error.text);
    wf_pipe_table_free(table);
}

static void two_ranks(void)
{
    static const char text[] =
        "stages 2 micro 2 place 0 1 lowered group 2 resident 1 tied\n"
        "0: UNSHARD0 F0.0 SEND_F0.0 F0.1 SENT_F0.0 SEND_F0.1 RECV_B0.0 RECVD_B0.0 I0.0 W0.0 "
        "\\\n"
        "   RECV_B0.1 RECVD_B0.1 R0.1 B0.1 REDUCE0.0-1 RESHARD0 REDUCED0.0-1 SENT_F0.1 \\\n"
        "   TIE NORM OPT0\n"
        "1: UNSHARD1 RECV_F1.0 RECVD_F1.0 F1.0 B1.0 SEND_B1.0 RECV_F1.1 RECVD_F1.1 F1.1 \\\n"
        "   B1.1 SENT_B1.0 SEND_B1.1 REDUCE1.0-1 RESHARD1 REDUCED1.0-1 SENT_B1.1 TIE NORM "
        "OPT1\n";
    static const mistake mistakes[] = {
        {"F0.0", "F0.0", ""},
        {" RECVD_B0.0 I0.0", " I0.0 RECVD_B0.0", "I0.0: it needs RECVD_B0.0 before it"},
        {"UNSHARD0 F0.0", "F0.0 UNSHARD0", "UNSHARD0 is not before it"},
        {"UNSHARD0", "UNSHARD0 UNSHARD0", "stage 0 is gathered already"},
        {"RESHARD0", "RESHARD0 RESHARD0", "RESHARD0: stage 0 is not gathered"},
        {" RESHARD0", "", "at the end of its row: stage 0 is still gathered"},
        {" F0.0", " (F0.0 + F1.0)", "rank 0, action 2 of 22, F1.0: stage 1 is on rank 1"},
        {"I0.0 W0.0", "(I0.0 + W0.0)", "W0.0: it needs I0.0 before it"},
        {"R0.1 B0.1", "(R0.1 + B0.1)", "R0.1: the forward is recomputed for I or B"},
        {"R0.1 B0.1", "(B0.1 + R0.1)", "R0.1: the forward is recomputed for I or B"},
        {" RECV_B0.0", " RECV_F0.0 RECV_B0.0", "there is no stage -1 to receive from"},
        {"SEND_B1.0", "SEND_F1.0 SEND_B1.0", "there is no stage 2 to send to"},
        {" SENT_B1.0", "", "at the end of its row: SENT_B1.0 is not in it"},
        {"RECV_F1.0 RECVD_F1.0 F1.0 B1.0 SEND_B1.0 RECV_F1.1 RECVD_F1.1",
         "RECV_F1.0 RECV_F1.1 RECVD_F1.1 RECVD_F1.0 F1.0 B1.0 SEND_B1.0",
         "message 0 from rank 0 to rank 1 is SEND_F0.0 where it is sent, and RECVD_F1.1"},
        {"REDUCE0.0-1", "REDUCE0.0", "it cuts a group"},
        {"B0.1 REDUCE0.0-1", "REDUCE0.0-1 B0.1", "it needs W0.1 before it"},
        {" REDUCED0.0-1", "", "a REDUCE of stage 0 has not ended"},
        {"REDUCED0.0-1", "REDUCED0.0", "no such REDUCE is open"},
        {" REDUCE0.0-1 RESHARD0 REDUCED0.0-1", " RESHARD0", "has reduced 0 of 2"},
        {"TIE NORM", "NORM", "NORM: it needs TIE before it"},
        {"TIE", "TIE TIE", "a second TIE"},
        {"W0.0", "TIE W0.0", "TIE: stage 0 has gradients of 0 of 2 micro-batches"},
        {"NORM", "NORM NORM", "a second NORM"},
        {"NORM OPT0", "OPT0 NORM", "OPT0: it needs NORM before it"},
        {"OPT0", "OPT0 OPT0", "a second OPT0"},
        {" OPT0", "", "at the end of its row: OPT0 is not in it"},
        {"group 2", "group 3", "in groups of a power of two micro-batches, not 3"}};

    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        expect(text, &mistakes[i]);
}

static void one_rank_of_two(void)
{
    static const char text[] = "stages 2 micro 1 ranks 2 place 0 0 lowered\n"
                               "0: F0.0 F1.0 B1.0 B0.0 NORM OPT0 OPT1\n"
                               "1: NORM\n";
    static const mistake mistakes[] = {
        {"F0.0", "F0.0", ""},
        {"F0.0", "F0.0 SEND_F0.0", "stage 1 is on the same rank, which needs no message"},
        {"F0.0 F1.0", "F1.0 F0.0", "F1.0: it needs F0.0 of its own rank before it"},
        {"B1.0 B0.0", "B0.0 B1.0", "B0.0: it needs I1.0 of its own rank before it"},
        {"F0.0", "UNSHARD0 F0.0", "the table gathers nothing: it has no resident"},
        {"B0.0", "B0.0 REDUCE0.0", "the table reduces nothing: it has no group"},
        {"NORM", "TIE NORM", "this rank has no tied gradients to exchange"},
        {"1: NORM", "1:", "rank 1, at the end of its row: NORM is not in it"}};

    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        expect(text, &mistakes[i]);
}

static void nothing_to_train(void)
{
    static const char text[] =
        "stages 3 micro 1 place 0 1 2 lowered frozen 1\n"
        "0: F0.0 SEND_F0.0 SENT_F0.0 B0.0 NORM OPT0\n"
        "1: RECV_F1.0 RECVD_F1.0 F1.0 SEND_F1.0 SENT_F1.0 RECV_B1.0 \\\n"
        "   RECVD_B1.0 B1.0 NORM OPT1\n"
        "2: RECV_F2.0 RECVD_F2.0 F2.0 B2.0 SEND_B2.0 SENT_B2.0 NORM OPT2\n";
    static const mistake mistakes[] = {
        {"F0.0", "F0.0", ""},
        {"B1.0 NORM", "B1.0 SEND_B1.0 NORM", "no gradient goes to the first 1 stages"},
        {"B0.0", "RECV_B0.0 B0.0", "RECV_B0.0: no gradient goes to the first 1 stages"},
        {"frozen 1", "frozen 2", "no gradient goes to the first 2 stages"},
        {"frozen 1", "frozen 0", "B0.0: it needs RECVD_B0.0 before it"},
        {" B0.0", "", "stage 0 has gradients of 0 of 1 micro-batches"}};

    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        expect(text, &mistakes[i]);
}

/* Text cannot say it: the first of two, and no second one. */
static void half_a_pair(void)
{
    const wf_pipe_action half = {.kind = WF_PIPE_F, .with_next = true};
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;

    CU_ASSERT_EQUAL_FATAL(wf_pipe_table_new(&(wf_pipe_shape){1, 1, 1, 0}, &table, &error),
                          WF_OK);
    wf_pipe_table_set_rank(table, 0, 0);
    wf_pipe_table_append(table, 0, &half);
    CU_ASSERT_EQUAL(wf_pipe_prove(table, NULL, &error), WF_EINVAL);
    CU_ASSERT(strstr(error.text, "two compute actions may overlap, no more and no less") !=
              NULL);
    wf_pipe_table_free(table);
}

int main(void)
{
    static const wf_test tests[] = {{"compute actions", compute_actions},
                                    {"two ranks", two_ranks},
                                    {"one rank of two", one_rank_of_two},
                                    {"stages with nothing to train", nothing_to_train},
                                    {"half a pair", half_a_pair},
                                    {NULL, NULL}};

    return wf_test_main("schedules refused", tests);
}
