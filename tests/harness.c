/* tests/harness.c - runs a table of tests as one CUnit suite. */
#define _XOPEN_SOURCE 700
#include "tests/harness.h"
#include <CUnit/Basic.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* A folder that wf_test_main removes. */
typedef struct folder {
    char path[WF_TEST_FOLDER];
    struct folder *next;
} folder;

static folder *folders;

void wf_test_new_folder(char path[WF_TEST_FOLDER])
{
    static const char memory[] = "/dev/shm"; /* a sync costs nothing there */
    folder *made = malloc(sizeof *made);

    if (made)
        snprintf(made->path, sizeof made->path, "%s/weft-test-XXXXXX",
                 access(memory, W_OK) == 0 ? memory : "/tmp");
    if (!made || !mkdtemp(made->path)) {
        perror("tests: a temporary folder");
        exit(1);
    }
    made->next = folders;
    folders = made;
    memcpy(path, made->path, sizeof made->path);
}

static void remove_folders(void)
{
    while (folders) {
        folder *next = folders->next;

        wf_test_remove(folders->path);
        free(folders);
        folders = next;
    }
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
    remove_folders();
    return failed ? 1 : skipped ? 77 : 0;
}
