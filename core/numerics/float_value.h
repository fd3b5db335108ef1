/* core/numerics/float_value.h - numbers that are read as doubles and used as floats. */
#ifndef WF_CORE_NUMERICS_FLOAT_VALUE_H
#define WF_CORE_NUMERICS_FLOAT_VALUE_H

#include <math.h>
#include <stdbool.h>

/* Returns true where a 32-bit float holds a number: it is finite there, and 0 only where the
   number is. */
static inline bool wf_float_holds(double value)
{
    float rounded = (float)value;

    return isfinite(rounded) && (rounded != 0 || value == 0);
}

#endif
