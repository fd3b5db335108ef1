/* nn/numbers.c - numbers among the options of a module; see the header. */
#include "nn/numbers_internal.h"
#include <math.h>

wf_status wf_nn_numbers_check(wf_context *ctx, const char *what, const wf_nn_number *number)
{
    for (; number->name; number++) {
        float used = (float)number->value;

        if (!(number->value >= 0) || !isfinite(used) || (number->value == 0) != (used == 0))
            return wf_fail(
                ctx, WF_EINVAL,
                "%s with %s %g: it is positive and finite, in float too, or 0 for the "
                "default",
                what, number->name, number->value);
    }
    return WF_OK;
}
