/* core/failed_rank.h - the rank with which the text of an error begins. */
#ifndef WF_CORE_FAILED_RANK_H
#define WF_CORE_FAILED_RANK_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/** wf_names_rank - returns true where the text of an error begins with the rank that failed; a
 * text names one rank, once. */
static inline bool wf_names_rank(const char *text)
{
    int rank, n = 0;

    return sscanf(text, "rank %d%n", &rank, &n) == 1 &&
           (strncmp(text + n, ": ", 2) == 0 || strncmp(text + n, ", in ", 5) == 0);
}

#endif
