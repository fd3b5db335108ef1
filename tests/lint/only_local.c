/*
 * tests/lint/only_local.c - core, kernels and nn are a whole without mesh and parallel: this
 * links those three folders' objects and nothing else of Weft, so that a reach upwards is an
 * undefined symbol. Built a second time with REACH_UP it makes such a reach, and must not link.
 */
#include "core/status.h"

#ifdef REACH_UP
int wf_of_a_folder_above(void);
#endif

int main(void)
{
#ifdef REACH_UP
    return wf_of_a_folder_above();
#else
    return wf_status_name(WF_OK) ? 0 : 1;
#endif
}
