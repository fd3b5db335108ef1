/*
 * nn/init_recipe.h - recipes: the initialisation of a parameter, recorded while it is on the
 * meta device and replayed when it is materialised, by every rank for its own part.
 *
 *     m->weight = wf_nn_parameter_new(ctx, 2, shape, true);    zeros
 *     wf_nn_init_normal(m->weight, 0, 0.02f);                  normal(0, 0.02)
 *     wf_nn_init_scale(m->weight, 0.125f);                     normal(0, 0.02) * 0.125
 *
 * The functions read like initialisers that run at once. One that sets all elements replaces
 * the recipe; one that modifies them adds a step, of at most WF_NN_STEPS. Element i of a
 * parameter is a function of (seed, path, i), so a shard is the slice of the whole, in every
 * layout.
 */
#ifndef WF_NN_INIT_RECIPE_H
#define WF_NN_INIT_RECIPE_H

#include "kernels/parameters.h"

WF_BEGIN_DECLS

enum { WF_NN_STEPS = 4 };

typedef struct wf_nn_module wf_nn_module;
typedef struct wf_nn_parameter wf_nn_parameter;

/** wf_nn_init_op - an initialisation; defined by one of the last three fields. */
typedef struct wf_nn_init_op {
    const char *name; /* printed and hashed, so there is one op of a name in a process */
    int args;         /* number of its arguments, at most WF_INIT_ARGS */
    bool modifies;    /* it changes what the steps before it left, else it sets everything */
    wf_init_run *elements; /* a run of elements at a time, each alone */
    wf_init_all *whole;    /* the whole tensor at once; sets everything */
    /* by ops in place (kernels/parameters.h) on the part that a rank holds */
    wf_status (*apply)(wf_tensor *t, const float *arg, uint64_t stream);
} wf_nn_init_op;

typedef struct wf_nn_recipe {
    int count;
    struct wf_nn_step {
        const wf_nn_init_op *op;
        float arg[WF_INIT_ARGS];
        wf_nn_parameter *of; /* the numbers drawn are this one's; NULL: the parameter's own */
    } step[WF_NN_STEPS];
} wf_nn_recipe;

/**
 * wf_nn_init_fill - sets every element to `value`; a new parameter has fill(0)
 * wf_nn_init_normal, wf_nn_init_uniform - set random numbers, see core/numerics/random.h
 * wf_nn_init_truncated_normal - normal within [low, high], by the inverse distribution
 *
 * @param parameter  fake; NULL is allowed, as where it could not be made
 * Errors:  WF_EINVAL in the context: it is real already
 */
WF_API void wf_nn_init_fill(wf_nn_parameter *parameter, float value);
WF_API void wf_nn_init_normal(wf_nn_parameter *parameter, float mean, float deviation);
WF_API void wf_nn_init_uniform(wf_nn_parameter *parameter, float low, float high);
WF_API void wf_nn_init_truncated_normal(wf_nn_parameter *parameter, float mean, float deviation,
                                        float low, float high);

/**
 * wf_nn_init_orthogonal - sets orthonormal rows, times gain (Saxe, McClelland & Ganguli 2014);
 * columns where those are fewer. A matrix is dim 0 times all the others
 *
 * Made whole on every rank, in time rows x columns x the lesser of them: 1.2 s for 768 x 3072.
 */
WF_API void wf_nn_init_orthogonal(wf_nn_parameter *parameter, float gain);

/** wf_nn_init_scale - multiplies by a factor, after the steps recorded so far. */
WF_API void wf_nn_init_scale(wf_nn_parameter *parameter, float factor);

/**
 * wf_nn_init_copy - sets the values of another parameter, by its steps recorded so far, in
 * storage of its own (wf_nn_tie shares storage)
 *
 * @param from  of the same dims, fake or real; kept alive. Its path must be known when the copy
 *              is made real
 * Errors:  WF_ESHAPE, WF_EINVAL (a circle of copies) in the context
 */
WF_API void wf_nn_init_copy(wf_nn_parameter *parameter, wf_nn_parameter *from);

/**
 * wf_nn_init_apply - applies a custom initialisation; nn/optim/orthogonal.c is an example
 *
 * @param op   static: known by its name from its first use on, in all threads
 * @param arg  op->args numbers; NULL where it takes none
 * Errors:  WF_EINVAL in the context: another op has the name, the op is not defined in exactly
 *          one way, or one that makes the whole tensor is declared to modify; too many steps
 */
WF_API void wf_nn_init_apply(wf_nn_parameter *parameter, const wf_nn_init_op *op,
                             const float *arg);

/**
 * wf_nn_replay - fills a real tensor by a parameter's recipe
 *
 * @param t  of the parameter's dims and any layout
 * Collective:  no
 * Errors:  WF_EINVAL: the parameter, or one that it copies, has no path yet; the ops' own
 */
WF_API wf_status wf_nn_replay(const wf_nn_parameter *parameter, wf_tensor *t);

/** wf_nn_recipe_clear - clears all steps, and releases the parameters that they copy. */
WF_API void wf_nn_recipe_clear(wf_nn_parameter *parameter);

/** wf_nn_recipe_print - writes "normal(0, 0.02) * 0.125 of embed.table" for instance into text;
 * returns text. */
WF_API char *wf_nn_recipe_print(const wf_nn_parameter *parameter, char *text, size_t size);

/** wf_nn_recipe_hash - returns a hash of its ops, numbers and copied paths: equal for equal
 * recipes. */
WF_API uint64_t wf_nn_recipe_hash(const wf_nn_parameter *parameter);

WF_END_DECLS

#endif
