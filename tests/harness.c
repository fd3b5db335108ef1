/* tests/harness.c - runs a table of tests as one CUnit suite. */
#define _XOPEN_SOURCE 700
#include "tests/harness.h"
#include <CUnit/Basic.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static bool skipped;

void wf_test_skip_all(const char *why)
{
    printf("skipped: %s\n", why);
    skipped = true;
}

int wf_test_one_in(int n)
{
    return getenv("WEFT_EVERY_ROW") ? 1 : n;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at)
{
    (void)s, (void)type, (void)at;
    return remove(path);
}

void wf_test_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int wf_test_main(const char *suite, const wf_test *tests)
{
    CU_pSuite pointer;
    unsigned failed;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    pointer = CU_add_suite(suite, NULL, NULL);
    for (const wf_test *t = tests; pointer && t->name; t++)
        if (!CU_add_test(pointer, t->name, t->run))
            return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failed = CU_get_number_of_failures() + CU_get_number_of_tests_failed();
    CU_cleanup_registry();
    return failed ? 1 : skipped ? 77 : 0;
}
