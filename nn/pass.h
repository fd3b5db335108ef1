/*
 * nn/pass.h - forward passes in flight: several tapes over one model, each with leaves of its
 * own.
 *
 * A pass that has ended its forward waits for backward while another one begins: micro-batches
 * of a pipeline do so. Each opens a wf_nn_pass and switches to it for its forward; where none
 * is switched to, leaves are those of the unnamed pass, NULL, of which there is one at a time.
 * Recomputed uses in backward belong to the pass that they ran in.
 */
#ifndef WF_NN_PASS_H
#define WF_NN_PASS_H

#include "core/tape.h"

WF_BEGIN_DECLS

typedef struct wf_nn_parameter wf_nn_parameter;
typedef struct wf_nn_pass wf_nn_pass;

/** wf_nn_leaves - the leaves of one parameter in one pass, each with its gradient after
 * backward. */
typedef struct wf_nn_leaves {
    /* in order of use in forward, and the numbers of these uses (wf_nn_next_use); a leaf is
       NULL where it is made when backward recomputes its module */
    int uses, room;
    wf_tensor **use;
    int64_t *number;
    wf_nn_parameter *parameter;
    wf_nn_pass *pass;
    struct wf_nn_leaves *next,
        *next_of_pass; /* the parameter's in another pass; another's in this one */
} wf_nn_leaves;

/** wf_nn_pass_open - opens a pass without leaves, which is not switched to. It may serve one
 * pass after the other. Owner: caller. Errors: WF_ENOMEM in the context; result is then
 * NULL. */
WF_API wf_nn_pass *wf_nn_pass_open(wf_context *ctx);

/** wf_nn_pass_close - frees a pass and its leaves; its tape has to be closed, or walked. NULL
 * is allowed. */
WF_API void wf_nn_pass_close(wf_nn_pass *pass);

/** wf_nn_pass_switch - makes uses of parameters from now on those of another pass, or of the
 * unnamed one (NULL); returns the last. */
WF_API wf_nn_pass *wf_nn_pass_switch(wf_context *ctx, wf_nn_pass *pass);

/** wf_nn_next_use - returns the number of the next use of a parameter that is trained; numbers
 * ascend, over all passes. */
WF_API int64_t wf_nn_next_use(wf_context *ctx);

/** wf_nn_leaves_of - returns a parameter's leaves in a pass (NULL: the unnamed one), an empty
 * list where it was not used. Owner: the parameter, until the pass is closed. */
WF_API const wf_nn_leaves *wf_nn_leaves_of(const wf_nn_parameter *parameter,
                                           const wf_nn_pass *pass);

/** wf_nn_leaves_forget - releases a parameter's leaves in a pass, with their gradients. */
WF_API void wf_nn_leaves_forget(wf_nn_parameter *parameter, const wf_nn_pass *pass);

WF_END_DECLS

#endif
