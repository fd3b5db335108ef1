/* tests/differential/compare.c - one rank's part of a tensor against the whole of another
   run. */
#include "tests/differential/program.h"
#include <math.h>

double element_of(wf_dtype dtype, const void *data, int64_t i)
{
    if (dtype == WF_BF16)
        return (double)wf_bf16_value(((const uint16_t *)data)[i]);
    if (dtype == WF_I32)
        return ((const int32_t *)data)[i];
    return (double)((const float *)data)[i];
}

/* Sums in another order are measured against the largest element, and where terms may cancel,
   against them. */
double tolerance(wf_dtype dtype, const void *whole, int64_t count, double terms,
                 bool stored_half)
{
    double largest = 0;

    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(element_of(dtype, whole, i)));
    return stored_half ? 0.1 * largest + 0.01 * terms + 0.05
                       : 1e-3 * largest + 1e-5 * terms + 1e-4;
}

const char *differs(const wf_tensor *t, wf_dtype dtype, const void *whole, double most,
                    char text[256])
{
    size_t size = wf_dtype_size(dtype);

    if (t->dtype != dtype) {
        snprintf(text, 256, "is %s, but %s on one rank", wf_dtype_name(t->dtype),
                 wf_dtype_name(dtype));
        return text;
    }
    for (int64_t e = 0; e < wf_tensor_local_count(t); e++) {
        int64_t index = whole_index(t, e);
        double a = element_of(dtype, t->data, e), b = element_of(dtype, whole, index);
        bool same = memcmp((const char *)t->data + (size_t)e * size,
                           (const char *)whole + (size_t)index * size, size) == 0;

        if (same || (isnan(a) && isnan(b)) || (most > 0 && fabs(a - b) <= most))
            continue;
        snprintf(text, 256, "element %" PRId64 " is %.9g, but %.9g on one rank%s", index, a, b,
                 most > 0 ? " (not within tolerance)" : "");
        return text;
    }
    return NULL;
}
