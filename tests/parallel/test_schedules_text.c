/* tests/parallel/test_schedules_text.c - pipeline schedules as text: read, printed and read
   back; tables of PyTorch; what is said of mistakes, and where. */
#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/text.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same(const wf_pipe_table *a, const wf_pipe_table *b)
{
    wf_pipe_shape x = wf_pipe_table_shape(a), y = wf_pipe_table_shape(b);
    wf_pipe_facts f = wf_pipe_table_facts(a), g = wf_pipe_table_facts(b);
    bool equal = x.ranks == y.ranks && x.stages == y.stages && x.micro == y.micro &&
                 f.lowered == g.lowered && f.group == g.group && f.resident == g.resident &&
                 f.tied == g.tied;

    for (int s = 0; equal && s < x.stages; s++)
        equal = wf_pipe_table_rank(a, s) == wf_pipe_table_rank(b, s);
    for (int r = 0; equal && r < x.ranks; r++) {
        int64_t n, m;
        const wf_pipe_action *p = wf_pipe_table_row(a, r, &n);
        const wf_pipe_action *q = wf_pipe_table_row(b, r, &m);

        equal = n == m;
        for (int64_t i = 0; equal && i < n; i++)
            equal = p[i].kind == q[i].kind && p[i].with_next == q[i].with_next &&
                    p[i].stage == q[i].stage && p[i].micro == q[i].micro &&
                    p[i].last == q[i].last;
    }
    return equal;
}

static wf_pipe_table *parse(const char *name, const char *text)
{
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;

    if (wf_pipe_table_parse(name, text, &table, &error) != WF_OK)
        printf("\n    %s\n", error.text);
    return table;
}

static bool comes_back(const wf_pipe_table *table)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    wf_pipe_table *back;
    bool equal = wf_pipe_table_print(table, out) == WF_OK;

    fclose(out);
    back = parse("printed", text);
    equal = equal && back && same(table, back);
    wf_pipe_table_free(back);
    free(text);
    return equal;
}

static void every_schedule_comes_back(void)
{
    const wf_pipe_lowering how = {
        .depth = 4, .ahead = 1, .group = 4, .resident = 2, .tied = true};

    for (int i = 0; wf_pipe_schedule_at(i).name; i++)
        for (int v = 1; v <= 2; v++) {
            const wf_pipe_shape shape = {4, 4 * v, 9, 0};
            wf_error error = {WF_OK, ""};
            wf_pipe_table *table, *lowered;

            if (wf_pipe_generate(wf_pipe_schedule_at(i).name, &shape, &table, &error))
                continue;
            CU_ASSERT(comes_back(table));
            CU_ASSERT_EQUAL_FATAL(wf_pipe_lower(table, &how, &lowered, &error), WF_OK);
            CU_ASSERT(comes_back(lowered));
            wf_pipe_table_free(lowered);
            wf_pipe_table_free(table);
        }
}

/* Comments, blanks, lines that go on, actions that overlap, ranges, a rank without a stage. */
static void by_hand(void)
{
    static const char text[] = "# mine\n\nweft-schedule 1 # a V\n"
                               "stages 4 micro 2 place 0 1\t1 0 ranks 3\n"
                               "0: F0.0 F0.1 F3.0 I3.0 \\ \n   (F3.1 + I0.0) I3.1 I0.1\\\n"
                               "W0.0-1 W3.0-1\n\n"
                               "2:\n1:F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 B1.1";
    wf_pipe_table *table = parse("mine.sched", text);
    wf_error error = {WF_OK, ""};
    const wf_pipe_action *row;
    int64_t n;

    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    CU_ASSERT_EQUAL(wf_pipe_prove(table, NULL, &error), WF_OK);
    row = wf_pipe_table_row(table, 0, &n);
    CU_ASSERT_EQUAL(n, 10);
    CU_ASSERT(row[4].with_next && row[5].kind == WF_PIPE_I && row[8].last == 1);
    CU_ASSERT_EQUAL(wf_pipe_table_shape(table).ranks, 3);
    CU_ASSERT(comes_back(table));
    wf_pipe_table_free(table);
}

static void tables_of_pytorch(void)
{
    static const char split[] = "0F0,0F1,,,0I0,0I1,0W0,0W1\r\n,1F0,1I0,1F1,1I1,1W0,1W1,\r\n";
    static const char overlap[] = "0UNSHARD,0F0,0F1,3F0,3B0,\"(3F1;0B0)OVERLAP_F_B\",3B1,0B1\n"
                                  "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1,1REDUCE_GRAD,1RESHARD\n";
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table = parse("zb.csv", split);

    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    CU_ASSERT_EQUAL(wf_pipe_prove(table, NULL, &error), WF_OK);
    CU_ASSERT(comes_back(table));
    wf_pipe_table_free(table);
    table = parse("dualpipe.csv", overlap);
    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    CU_ASSERT_EQUAL(wf_pipe_prove(table, NULL, &error), WF_OK);
    CU_ASSERT(wf_pipe_table_rank(table, 3) == 0 && wf_pipe_table_shape(table).micro == 2);
    CU_ASSERT(comes_back(table));
    wf_pipe_table_free(table);
}

/* Cells of the compute_comms format: they are made again by lowering, and are of stages of
   their row. */
static void cells_of_torch(void)
{
    static const char waits[] =
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,"
        "0RESHARD\r\n"
        "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD\r\n";
    wf_pipe_table *table = parse("torch.csv", waits),
                  *bare = parse("bare.CSV", "\xEF\xBB\xBF\n0F0,0B0\n,,\n1F0,1B0\n\r\n,\n");
    const wf_pipe_action *row, *other;
    int64_t n, m;

    CU_ASSERT_PTR_NOT_NULL_FATAL(table);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bare);
    for (int r = 0; r < 2; r++) {
        row = wf_pipe_table_row(table, r, &n);
        other = wf_pipe_table_row(bare, r, &m);
        CU_ASSERT_FATAL(n == 2 && m == 2);
        CU_ASSERT(memcmp(row, other, 2 * sizeof *row) == 0);
    }
    wf_pipe_table_free(table);
    wf_pipe_table_free(bare);
}

/* Reads a file, and none with a byte 0, behind which all was lost without a word. */
static void files(void)
{
    char folder[WF_TEST_FOLDER], path[WF_TEST_FOLDER + 8];
    wf_error error = {WF_OK, ""};
    wf_pipe_table *table;
    FILE *file;

    wf_test_new_folder(folder);
    snprintf(path, sizeof path, "%s/a.csv", folder);
    for (int zero = 0; zero < 2; zero++) {
        file = fopen(path, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        fwrite("0F0,0B0\n\0", 1, (size_t)(8 + zero), file);
        fclose(file);
        CU_ASSERT_EQUAL(wf_pipe_table_read(path, &table, &error), zero ? WF_EDATA : WF_OK);
        CU_ASSERT_EQUAL(table == NULL, zero);
        wf_pipe_table_free(table);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "has a byte 0 after 8 characters of 9"));
    remove(path);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_pipe_table_read(path, &table, &error), WF_EIO);
    CU_ASSERT_PTR_NULL(table);
}

static void mistakes(void)
{
#define HEAD "weft-schedule 1\nstages 2 micro 2 place 0 1\n"
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"a", "", "a:1:1: the text ends, where weft-schedule 1 is expected"},
        {"a", "weft-schedule 2\n", "a:1:15: 2, where version 1 is expected"},
        {"a", "weft-schedule 1\nstages x", "a:2:8: x, where a whole number is expected"},
        {"a", "weft-schedule 1\nwings 2", "a:2:1: wings, where stages, micro, place,"},
        {"a", "weft-schedule 1\nstages 2 micro 2 place 0\n0: F0.0",
         "a:3:1: 2 stages have 1 ranks: give each its own"},
        {"a",
         "weft-schedule 1\nstages 1 micro 0 place 0\n0:", "a schedule has 1 to 1048576 micro"},
        {"a", "weft-schedule 1\nstages 2 micro 2 place 0 1 ranks 1\n0:",
         "a:3:1: stage 1 is placed on rank 1 of 1 ranks"},
        {"a", "weft-schedule 1\nstages 2 micro 2 place 0 1 group 2\n0:",
         "a:3:1: group, resident, frozen and tied are for a table that says lowered"},
        {"a", HEAD "0: F0.0 F5.0\n1:", "a:3:9: rank 0: F5, but stages go from 0 to 1"},
        {"a", HEAD "0: F0.0 F0.9\n1:", "a:3:9: rank 0: F0.9, but micro-batches go from 0 to 1"},
        {"a",
         HEAD "0: F0.0 \\\n  X0.1\n1:", "a:4:3: X0.1, where an action like F2.5 is expected"},
        {"a", HEAD "0: F0\n1:", "a:3:4: F0, where an action like F2.5 is expected"},
        {"a",
         HEAD "0: UNSHARD0.1\n1:", "UNSHARD0.1, where an action like UNSHARD2 is expected"},
        {"a", HEAD "0: F0.0-1\n1:", "a:3:4: F0.0-1, where an action like F2.5 is expected"},
        {"a", HEAD "0: (F0.0 + B0.1\n1:", "a:3:16: the line ends, where ) is expected"},
        {"a", HEAD "0: (F0.0 B0.1)\n1:", "a:3:10: B0.1, where + is expected"},
        {"a", HEAD "0:\n0:\n", "a:4:1: a second row 0"},
        {"a", HEAD "0:\n", "rank 1 has no row: give it one, 1:"},
        {"a", HEAD "0:\n1:\n2:\n", "a:5:1: row 2, but ranks go from 0 to 1"},
        {"a", HEAD "0: F0.9999999999\n1:", "F0.9999999999, where an action"},
        {"a", HEAD "0 F0.0\n1:", "a:3:3: F0.0, where : is expected"},
        {"a.csv", "0F0,0Q0\n", "a.csv:1:5: 0Q0, where a cell like 0F0"},
        {"a.csv", "0F0\n1F0,(1F0;0B0)OVERLAP\n", "a.csv:2:5: (1F0;0B0)OVERLAP, where a cell"},
        {"a.csv", "0F0\n0B0\n", "a.csv: stage 0 has actions in rows 0 and 1"},
        {"a.csv", "0F0\n2F0\n", "a.csv: stage 1 has no action in any row, and there are 3"},
        {"a.csv", "0F0,1WAIT_SEND_F0\n1F0\n",
         "a.csv: row 0 has a message, gather or reduction of stage 1, and"},
        {"a.csv", "0F0,7UNSHARD\n1F0\n",
         "a.csv: row 0 has a message, gather or reduction of stage 7, and"},
        {"a.csv", "0F0,0WAIT_SEND\n", "a.csv:1:5: 0WAIT_SEND, where a cell"},
        {"a.csv", "0F0,0SEND_F3\n1F0\n", "row 0 has a message of micro-batch 3, and the last"},
        {"a.csv", "\n,,\n", "a.csv has no action in any row"},
        {"a.csv", "F0\n", "a.csv:1:1: F0, where a cell"},
    };
#undef HEAD

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_error error = {WF_OK, ""};
        wf_pipe_table *table;

        CU_ASSERT_EQUAL(wf_pipe_table_parse(cases[i].name, cases[i].text, &table, &error),
                        WF_EDATA);
        CU_ASSERT(table == NULL && strstr(error.text, cases[i].says) != NULL);
        if (!strstr(error.text, cases[i].says))
            printf("\n    %zu: %s\n", i, error.text);
    }
}

/* Texts cut off, and with other characters in them, are read or refused; nothing else
   happens. */
static void damaged(void)
{
    static const char text[] = "weft-schedule 1\nstages 2 micro 2 place 0 1 lowered group 2\n"
                               "0: F0.0 (F0.1 + B0.0) \\\n W0.0-1 # x\n1: SEND_B1.0 NORM\n";
    static const char csv[] = "0F0,(0F1;1B0)OVERLAP_F_B,\"1W0\"\n1F0,1UNSHARD\n";
    static const char other[] = "\\\n(:-.9Fx#\"; ,";
    unsigned random = 1;
    int read = 0;

    for (int i = 0; i < 20000; i++) {
        const char *name = i % 2 ? "a.csv" : "a", *from = i % 2 ? csv : text;
        char copy[sizeof text];
        wf_error error = {WF_OK, ""};
        wf_pipe_table *table;
        size_t n = strlen(from);

        memcpy(copy, from, n + 1);
        for (int k = 0; k < 1 + i % 3; k++) {
            random = random * 1664525 + 1013904223;
            copy[random / 65536 % n] = other[random / 256 % (sizeof other - 1)];
        }
        if (i % 5 == 0)
            copy[random / 4096 % n] = '\0';
        read += wf_pipe_table_parse(name, copy, &table, &error) == WF_OK;
        if ((table == NULL) == (error.code == WF_OK))
            CU_FAIL("neither a table nor an error");
        wf_pipe_table_free(table);
    }
    CU_ASSERT(read > 0 && read < 20000);
}

int main(void)
{
    static const wf_test tests[] = {
        {"every schedule comes back", every_schedule_comes_back},
        {"by hand", by_hand},
        {"tables of PyTorch", tables_of_pytorch},
        {"cells of torch", cells_of_torch},
        {"files", files},
        {"mistakes", mistakes},
        {"damaged texts", damaged},
        {NULL, NULL},
    };

    return wf_test_main("schedules as text", tests);
}
