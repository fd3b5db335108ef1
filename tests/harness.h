/*
 * tests/harness.h - a test program is a table of named functions over CUnit assertions:
 *
 *     static const wf_test tests[] = {{"cuts nest", cuts_nest}, {NULL, NULL}};
 *     int main(void) { return wf_test_main("tree", tests); }
 *
 * Exit status: 0 passed, 1 failed, 77 skipped (wf_test_skip_all was called: CTest shows it).
 */
#ifndef WF_TESTS_HARNESS_H
#define WF_TESTS_HARNESS_H

#include <CUnit/CUnit.h>

typedef struct wf_test {
    const char *name;
    void (*run)(void);
} wf_test;

int wf_test_main(const char *suite, const wf_test *tests);

/* Say why this program cannot test anything on this machine; CTest then reports it as
   skipped. */
void wf_test_skip_all(const char *why);

/* Returns n where a test takes one of n rows of a table, as CI does, or 1 with
   WEFT_EVERY_ROW in the environment. */
int wf_test_one_in(int n);

enum { WF_TEST_FOLDER = 64 };

/* Makes an empty folder, in memory where it can, and writes its absolute path. wf_test_main
   removes it in the end, with all that is below it. Ends the process where it can't be made. */
void wf_test_new_folder(char path[WF_TEST_FOLDER]);

/* Remove a file, or a directory with all that is below it; links are not followed. */
void wf_test_remove(const char *path);

#endif
