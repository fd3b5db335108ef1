/* core/signature_internal.h - a signature parsed for the operands of one call. Private to the library. */
#ifndef WF_CORE_SIGNATURE_INTERNAL_H
#define WF_CORE_SIGNATURE_INTERNAL_H

#include "core/op.h"

enum { WF_LETTERS = 32 }; /* 'a'..'z' are 0..25; the dims of "..." follow */

typedef struct wf_signature {
    int n_in, n_out;
    int ndim[WF_MAX_INPUTS + WF_MAX_OUTPUTS]; /* outputs follow at n_in */
    int8_t letter[WF_MAX_INPUTS + WF_MAX_OUTPUTS][WF_MAX_DIMS];
    uint32_t whole;      /* letters marked "!" anywhere */
    uint32_t contracted; /* letters of inputs that no output has */
    bool known[WF_LETTERS];
    wf_dim dim[WF_LETTERS];
} wf_signature;

/* Match the operands of a call against call->signature; WF_ESHAPE and a text where it fails. */
wf_status wf_signature_match(const wf_call *call, wf_signature *sig);

#endif
