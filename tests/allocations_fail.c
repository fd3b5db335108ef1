/* tests/allocations_fail.c - work of which each allocation fails once: see allocations.h. */
#include "tests/allocations.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

enum { MOST = 10000 };

void each_allocation_fails(wf_status (*work)(wf_error *error), int64_t least)
{
    int64_t n = 0;

    for (; n < MOST; n++) {
        wf_error error = {WF_OK, ""};
        wf_status status;
        bool failed;

        allocations_left(n);
        status = work(&error);
        failed = allocations_left(INT64_MAX) < 0;
        if (status == WF_OK && !failed)
            break;
        if (status != WF_ENOMEM || !strstr(error.text, "memory"))
            printf("\n    allocation %lld gave %d: %s\n", (long long)n, status, error.text);
        CU_ASSERT_TRUE_FATAL(status == WF_ENOMEM && strstr(error.text, "memory"));
    }
    CU_ASSERT_TRUE(n >= least && n < MOST);
}
