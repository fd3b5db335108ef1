/* core/signature.h - the signature of an op (core/op.h), matched with the operands of one
   call. */
#ifndef WF_CORE_SIGNATURE_H
#define WF_CORE_SIGNATURE_H

#include "core/op.h"

WF_BEGIN_DECLS

enum { WF_LETTERS = 32 }; /* 'a'..'z' are 0..25; the dims of "..." follow */

/** wf_signature - the letter of each dim of each operand, and the shape of each letter. */
typedef struct wf_signature {
    int n_in, n_out;
    int ndim[WF_MAX_INPUTS + WF_MAX_OUTPUTS]; /* outputs follow at n_in */
    int8_t letter[WF_MAX_INPUTS + WF_MAX_OUTPUTS][WF_MAX_DIMS];
    uint32_t whole;      /* letters marked "!" anywhere */
    uint32_t contracted; /* letters of inputs that no output has */
    bool known[WF_LETTERS];
    wf_dim dim[WF_LETTERS];
} wf_signature;

/**
 * wf_signature_match - matches the operands of a call with call->signature
 *
 * @param sig  filled in, the letters of outputs too
 * Errors:     WF_ESHAPE, which names the operand and the dim, in the context and returned
 */
WF_API wf_status wf_signature_match(const wf_call *call, wf_signature *sig);

WF_END_DECLS

#endif
