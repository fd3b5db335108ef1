/*
 * tests/parallel/hostile.h - what the tests of parsers share: a text is refused with WF_EDATA,
 * a message that names the problem, within a second of work; the peak of memory stays bounded.
 */
#ifndef WF_TESTS_PARALLEL_HOSTILE_H
#define WF_TESTS_PARALLEL_HOSTILE_H

#include "core/status.h"
#include "tests/mesh/ranks.h"
#include "tests/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Bytes of memory that this process has had at most. */
static inline double peak_bytes(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024;
}

/* `status` and `error` of something that had to be refused, since `start`, for the reason
   `why`. */
static inline void refused(const char *what, wf_status status, const wf_error *error,
                           const char *why, double start)
{
    int good = status == WF_EDATA && error->code == WF_EDATA && strstr(error->text, why) &&
               (UNDER_SANITIZER || wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - start < 1);

    CU_ASSERT(good);
    if (!good)
        printf("\n    %.200s: status %d in %.2f s, \"%s\", which should say \"%s\"\n", what,
               (int)status, wf_test_clock(CLOCK_PROCESS_CPUTIME_ID) - start, error->text, why);
}

/* Returns `times` copies of `text`, a comma between two, after `before` and followed by
   `behind`. */
static inline char *repeated(const char *before, const char *text, size_t times,
                             const char *after)
{
    size_t n = strlen(text), a = strlen(before), b = strlen(after);
    char *all = malloc(a + times * (n + 1) + b + 1), *at = all;

    if (!all)
        abort();
    at = (char *)memcpy(at, before, a) + a;
    for (size_t i = 0; i < times; i++) {
        if (i)
            *at++ = ',';
        at = (char *)memcpy(at, text, n) + n;
    }
    memcpy(at, after, b + 1);
    return all;
}

/* A text as large as may be, and why it is refused. */
typedef struct large_text {
    const char *before, *text, *after, *why;
    size_t times;
} large_text;

/* All are refused; how much the peak of memory grew, in sizes of the largest that may be. */
static inline double refuse_large(const large_text *large, size_t n, size_t largest,
                                  wf_status (*parse)(const char *text, wf_error *error))
{
    double before = peak_bytes();

    for (size_t i = 0; i < n; i++) {
        char *text = repeated(large[i].before, large[i].text, large[i].times, large[i].after);
        double start = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);
        wf_error error = {WF_OK, ""};
        wf_status status = parse(text, &error);

        refused(text, status, &error, large[i].why, start);
        free(text);
    }
    return (peak_bytes() - before) / (double)largest;
}

#endif
