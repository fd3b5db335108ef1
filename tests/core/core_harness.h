/* tests/core/core_harness.h - a context on the reference device, and tensors of doubles on it.
 */
#ifndef WF_TESTS_CORE_HARNESS_H
#define WF_TESTS_CORE_HARNESS_H

#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

/* In f64; asserts that it opens. limit: bytes of tensors, 0 for none. */
static inline wf_context *open_reference(size_t limit)
{
    wf_context_options options = {.rank = 3, .memory_limit = limit};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_reference_device(&error), &options, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

/* [rows, columns], or [columns] where rows is 0, of the innermost scope. */
static inline wf_tensor *make(wf_context *ctx, int64_t rows, int64_t columns,
                              const double *value)
{
    wf_dim dims[] = {wf_dim_batch(rows), wf_dim_width(columns)};
    int64_t count = (rows ? rows : 1) * columns;
    wf_tensor *t = wf_tensor_new(ctx, WF_F64, rows ? 2 : 1, rows ? dims : dims + 1, NULL,
                                 WF_MEMORY_ACTIVATION);

    if (t)
        memcpy(t->data, value, (size_t)count * sizeof *value);
    return t;
}

static inline bool equals(const wf_tensor *t, int64_t count, const double *value)
{
    const double *x = t ? t->data : NULL;

    if (!x || wf_tensor_local_count(t) != count)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (x[i] != value[i])
            return false;
    return true;
}

/* The context failed with this code and these words; forgets it. */
static inline bool refused(wf_context *ctx, wf_status code, const char *words)
{
    bool as_said = wf_context_status(ctx) == code && strstr(wf_context_error(ctx)->text, words);

    if (!as_said)
        printf("\n    got %s: %s\n", wf_status_name(wf_context_status(ctx)),
               wf_context_error(ctx)->text);
    wf_context_clear(ctx);
    return as_said;
}

static inline size_t in_use(wf_context *ctx)
{
    wf_memory_report report;

    wf_pool_report(wf_context_pool(ctx), &report);
    return report.in_use;
}

#endif
