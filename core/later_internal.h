/* core/later_internal.h - rows that come later, for dispatch. Not installed. */
#ifndef WF_CORE_LATER_INTERNAL_H
#define WF_CORE_LATER_INTERNAL_H

#include "core/later.h"

/* Returns true where a call takes operand 0, whose rows come later, block by block. */
bool wf_takes_blocks(const wf_call *call);

/* Runs such a call, whose outputs are made; then all rows of operand 0 are there. */
wf_status wf_run_by_blocks(const wf_call *call);

/* Returns true where a call's result, if it is a partial sum, is to be computed later. */
bool wf_makes_later(const wf_call *call);

/* Has the kernel of a call run when rows of its result, which is absent, are asked for. */
wf_status wf_compute_later(const wf_call *call);

#endif
