/* parallel/checkpoint/index_find.c - looking things up in an index; see index_internal.h. */
#include "parallel/checkpoint/index_internal.h"
#include <string.h>

const wf_index_tensor *wf_index_find_kinds(const wf_index *index, const char *path,
                                           unsigned kinds)
{
    int64_t low = 0, high = index->count;

    while (low < high) { /* the first entry of the path */
        int64_t middle = low + (high - low) / 2;

        if (strcmp(index->tensor[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < index->count && strcmp(index->tensor[low].path, path) == 0; low++)
        if (index->tensor[low].kinds & kinds & -kinds)
            return &index->tensor[low];
    return NULL;
}

const wf_index_tensor *wf_index_find(const wf_index *index, const char *path)
{
    return wf_index_find_kinds(index, path, WF_INDEX_VALUE);
}

int64_t wf_index_parameters(const wf_index *index)
{
    int64_t n = 0;

    for (int64_t i = 0; i < index->count; i++)
        n += index->tensor[i].kinds & WF_INDEX_VALUE;
    return n;
}

const char *wf_index_option(const wf_index *index, const char *key)
{
    for (int64_t i = 0; i < index->option_count; i++)
        if (strcmp(index->option[2 * i], key) == 0)
            return index->option[2 * i + 1];
    return NULL;
}
