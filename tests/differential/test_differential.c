/*
 * tests/differential/test_differential.c - random programs over tensors, on a mesh and on one
 * rank.
 *
 *     test_differential                       what CI runs
 *     test_differential --cases N --seed S    as many as there is time for
 *     test_differential --seed S --case K     one of them, and the program that it is
 *
 * A failing case is made smaller and printed with the command that repeats it.
 *
 * ctest: builds address thread
 */
#include "tests/differential/trial.h"

enum { CI_CASES = UNDER_THREAD_SANITIZER ? 48 : UNDER_SANITIZER ? 80 : 3000 };

/* Counts rows of ops.def that should have run on a mesh and did not, by name. */
static int rows_that_never_ran(const board *b)
{
    int never = 0;

    for (int id = 1; id <= wf_op_count(); id++) {
        if (!is_drawn(wf_op_at(id)) || b->of[id])
            continue;
        printf("%s%s", never++ ? ", " : "never ran on a mesh: ", wf_op_at(id)->name);
    }
    if (never)
        printf("\n");
    return never;
}

/* As many as bring every row of ops.def onto a mesh; a new row changes what each draws. */
static void some_cases(void)
{
    campaign c = {.what = {.seed = 7, .first = 1696, .count = CI_CASES},
                  .shrink = !UNDER_SANITIZER};

    CU_ASSERT_FATAL(run_campaign(&c));
    CU_ASSERT_EQUAL(c.failures, 0);
    CU_ASSERT(atomic_load(&c.b->bits) > 2 * CI_CASES);
    CU_ASSERT(atomic_load(&c.b->refused) > 0);
    CU_ASSERT(UNDER_SANITIZER || rows_that_never_ran(c.b) == 0);
}

static void print_counts(const campaign *c)
{
    const board *b = c->b;

    printf("%" PRId64 " cases, %" PRId64 " ops, %" PRId64 " refused; %" PRId64
           " tensors bit for bit, %" PRId64 " close; backward %" PRId64 " times, %" PRId64
           " refused; %" PRId64 " failures\n",
           c->what.count, (int64_t)b->applied, (int64_t)b->refused, (int64_t)b->bits,
           (int64_t)b->close, (int64_t)b->backwards, (int64_t)b->backwards_refused,
           c->failures);
    rows_that_never_ran(b);
}

/* Returns false where the line cannot be understood. */
static bool read_line(int argc, char **argv, campaign *c)
{
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *given = i + 1 < argc ? argv[i + 1] : "";
        char *end;
        uint64_t number = strtoull(given, &end, strcmp(name, "--drop") == 0 ? 16 : 10);

        if (end == given || *end)
            return false;
        if (strcmp(name, "--cases") == 0)
            c->what.count = (int64_t)number;
        else if (strcmp(name, "--seed") == 0)
            c->what.seed = number;
        else if (strcmp(name, "--case") == 0)
            c->what.first = (int64_t)number, c->what.count = 1, c->show = true,
            c->shrink = false;
        else if (strcmp(name, "--shrink") == 0)
            c->shrink = number != 0;
        else if (strcmp(name, "--drop") == 0)
            c->what.drop = number;
        else if (strcmp(name, "--largest") == 0)
            c->what.largest = (int)number;
        else if (strcmp(name, "--largest-axis") == 0)
            c->what.largest_axis = (int)number;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static const wf_test tests[] = {{"random programs, on a mesh and on one rank", some_cases},
                                    {NULL, NULL}};
    campaign c = {.what = {.seed = 1, .count = 1000}, .shrink = true};

    if (argc == 1)
        return wf_test_main("differential", tests);
    if (!read_line(argc, argv, &c)) {
        printf(
            "usage: test_differential [--cases N] [--seed S] [--shrink 0] [--case K [--drop X] "
            "[--largest N] [--largest-axis N]]\n");
        return 2;
    }
    if (!run_campaign(&c))
        return 1;
    print_counts(&c);
    return c.failures ? 1 : 0;
}
