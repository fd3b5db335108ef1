/* tests/allocations.c - see the header. */
#include "tests/allocations.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

enum { MOST = 10000 };

/* The linker puts these between what is tested and the system's (tests/CMakeLists.txt). */
static int64_t left = INT64_MAX;
static bool matter = true;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
char *__wrap_strndup(const char *text, size_t size);

static bool fails(void)
{
    return matter && left != INT64_MAX && left-- <= 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails() ? NULL : __real_strndup(text, size);
}

void allocations_matter(bool so)
{
    matter = so;
}

void allocations_left(int64_t n)
{
    left = n;
}

void each_allocation_fails(wf_status (*work)(wf_error *error), int64_t least)
{
    int64_t n = 0;

    for (; n < MOST; n++) {
        wf_error error = {WF_OK, ""};
        wf_status status;
        bool failed;

        left = n;
        status = work(&error);
        failed = left < 0;
        left = INT64_MAX;
        if (status == WF_OK && !failed)
            break;
        if (status != WF_ENOMEM || !strstr(error.text, "memory"))
            printf("\n    allocation %lld gave %d: %s\n", (long long)n, status, error.text);
        CU_ASSERT_TRUE_FATAL(status == WF_ENOMEM && strstr(error.text, "memory"));
    }
    CU_ASSERT_TRUE(n >= least && n < MOST);
}
