/* nn/parameter.h - parameters: made on the meta device, tied, and their uses in a forward
   pass. */
#ifndef WF_NN_PARAMETER_H
#define WF_NN_PARAMETER_H

#include "core/tape.h"
#include "nn/init_recipe.h"
#include "nn/pass.h"

WF_BEGIN_DECLS

enum { WF_NN_PATH = 128 };

/** wf_nn_parameter - one parameter; a tied one is in the tree twice, as the same pointer. */
struct wf_nn_parameter {
    char path[WF_NN_PATH]; /* its first path in the tree; the key of its initialisation */
    const wf_nn_module *named_by; /* the module of that path, which may move with its tree */
    wf_tensor *tensor;            /* the stored, sharded value; fake until it is materialised */
    /* the compute copy that modules use, a plan's; NULL: tensor */
    wf_tensor *at_use;
    wf_nn_recipe recipe; /* its initialisation */
    bool matrix; /* a map between features, which Muon orthogonalises: no table, no head */
    bool decay;  /* weight decay applies: matrices yes, biases and norms no */
    bool frozen; /* no gradient is taken */
    /* Counts of tokens are its gradient: whole numbers, of which a step makes its value,
       whatever optimizer, rate and clipping do. Norms leave it out, and it is f32 as it is
       stored, computed with and reduced. */
    bool counted;
    /* above 0: a step adds -sign_step * sign(gradient), as to a bias that balances experts; 0:
       counts are the value until the next step */
    float sign_step;
    bool adapter; /* a factor of an adapter of a linear (nn/layers/lora.h) */
    int refs;
    wf_nn_leaves *leaves; /* in each pass that is in flight, a list */
    void *plan;           /* a sharding plan's record */
    struct {
        /* number of the last walk that has reached it (nn/tree.c); fields: by how many */
        uint64_t walk;
        int fields;
        const wf_nn_module *from;
        const char *field;
    } reached;
};

/** wf_nn_is_counts - returns true for counts of a step, which the next step's loss reads: no
 * part of what a model computes. */
static inline bool wf_nn_is_counts(const wf_nn_parameter *p)
{
    return p->counted && !(p->sign_step > 0);
}

/**
 * wf_nn_parameter_new - makes a parameter on the fake device, of zeros until wf_nn_init_normal
 * or another function of nn/init_recipe.h sets its initialisation.
 *
 * @param decay  weight decay applies to it
 * Owner:   the field it is put into; wf_nn_tie for a second one
 */
WF_API wf_nn_parameter *wf_nn_parameter_new(wf_context *ctx, int ndim, const wf_dim *dims,
                                            bool decay);

/** wf_nn_parameter_free - releases the hold of one of its fields. NULL is allowed. */
WF_API void wf_nn_parameter_free(wf_nn_parameter *parameter);

/** wf_nn_tie - returns the same parameter for another field. */
WF_API wf_nn_parameter *wf_nn_tie(wf_nn_parameter *parameter);

/** wf_nn_forget_uses - releases a parameter's leaves with their gradients, in all passes: a
 * training loop of one's own does so before the next forward pass, a trainer by itself. */
WF_API void wf_nn_forget_uses(wf_nn_parameter *parameter);

/**
 * wf_nn_parameter_use - returns the tensor of the next use of a parameter: while a tape
 * records, a leaf of its own, which later runs of the same ops find. Modules use it through
 * wf_nn_use.
 *
 * Owner:   scope
 * Errors:  WF_EINVAL (it is not gathered), WF_ENOMEM in the context; result is then NULL
 */
WF_API wf_tensor *wf_nn_parameter_use(wf_context *ctx, wf_nn_parameter *parameter);

WF_END_DECLS

#endif
