/* tests/differential/draw.h - random numbers of a case: functions of the seed, the case and a
   position in it, so that leaving a part of a case out changes no other part. */
#ifndef WF_TESTS_DIFFERENTIAL_DRAW_H
#define WF_TESTS_DIFFERENTIAL_DRAW_H

#include "core/numerics/bits.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct draw {
    uint64_t key, n;
} draw;

static inline draw draw_at(uint64_t seed, uint64_t thing, uint64_t index)
{
    return (draw){wf_mix64(wf_mix64(wf_mix64(seed) ^ thing) ^ index), 0};
}

static inline uint64_t draw_bits(draw *d)
{
    return wf_mix64(d->key ^ wf_mix64(d->n++));
}

/* In [0, n). */
static inline int draw_below(draw *d, int n)
{
    return (int)(draw_bits(d) % (uint64_t)n);
}

static inline bool draw_one_in(draw *d, int n)
{
    return draw_below(d, n) == 0;
}

#endif
