/* tests/hosts/vanish.h - a rank that is lost at some moment, wherever it is then. */
#ifndef WF_TESTS_HOSTS_VANISH_H
#define WF_TESTS_HOSTS_VANISH_H

#include "mesh/cluster/launch.h"

/* Within WEFT_FAULT_MS milliseconds from now this rank's device is gone: its peers hear of it,
   and it leaves nothing. To be called by the rank. */
void vanish_soon(wf_rank *rank, int step);

/* Returns true where WEFT_FAULT_EVERY steps have passed since the step in which a rank has
   vanished. */
bool vanish_again(int step);

/* Until that has come, where it is to come: before the rank returns. */
void vanish_wait(void);

/* A rank begins: it is lost as well where WEFT_FAULT_WITH names it. */
void vanish_with_another(const wf_rank *rank);

/* Calls itself until the stack is at its end; `above` is NULL. */
int overflow_stack(volatile char *above);

#endif
