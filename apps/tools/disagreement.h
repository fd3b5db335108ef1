/*
 * apps/tools/disagreement.h - finds where ranks first diverged.
 *
 * Members of a group make the same collectives in the same order. So for each group, from the
 * oldest that all recordings still hold on, the n-th collectives of its members are compared:
 * one that differs from the others, or that a member has not begun, is a disagreement. The n-th
 * message that a rank sends another one in a group is the n-th that this one receives from it:
 * they are compared where a rank waits for one, and where both have begun one. Of all
 * disagreements the one that was begun first is reported. Where the rank hangs in something
 * else it has a cause there: such a disagreement is reported only if there is none of another
 * kind.
 */
#ifndef WF_APPS_DISAGREEMENT_H
#define WF_APPS_DISAGREEMENT_H

#include "apps/tools/recording.h"

/* The disagreement to report: one collective, or one message, of a group. */
typedef struct disagreement {
    const wf_recorded_group *group;
    uint64_t sequence, time;
    int from, to;   /* a message's ranks of the world; -1 where it is a collective */
    int odd;        /* the rank of the world that differs */
    bool not_begun; /* by it; else it has begun another one */
    bool follows;   /* it could not: it hangs in something else */
} disagreement;

/* False: there is none. */
bool disagreement_find(const recordings *w, disagreement *first);

#endif
