/*
 * nn/children.h - modules of named children, without a struct and a table of fields, like
 * torch.nn.Module and its attributes.
 *
 *     static wf_tensor *block_forward(wf_nn_module *self, wf_tensor *x)
 *     {
 *         x = wf_add(x, wf_nn_run(self, "mix", wf_nn_run(self, "norm1", x)));
 *         return wf_add(x, wf_nn_run(self, "mlp", wf_nn_run(self, "norm2", x)));
 *     }
 *
 *     block = wf_nn_module_new(ctx, "block", block_forward,
 *                              WF_CHILD("norm1", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
 *                              WF_CHILD("mix", mixer_new(ctx)),
 *                              WF_CHILD("norm2", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
 *                              WF_CHILD("mlp", mlp_new(ctx)));
 */
#ifndef WF_NN_CHILDREN_H
#define WF_NN_CHILDREN_H

#include "nn/module.h"

WF_BEGIN_DECLS

/** wf_nn_entry - a child or a parameter by name; a list ends with one that has none. */
typedef struct wf_nn_entry {
    const char *name;
    wf_nn_kind kind;
    void *value; /* a wf_nn_module *, a wf_nn_parameter *, or a wf_nn_module ** of `count` */
    int64_t count;
} wf_nn_entry;

/* Entries of wf_nn_module_new. A list of children is named "block.0", "block.1" and so on, and
   its array is owned by the module from then on (free). */
#define WF_CHILD(name, module)                                                                 \
    {                                                                                          \
        name, WF_NN_CHILD, module, 1                                                           \
    }
#define WF_PARAMETER(name, parameter)                                                          \
    {                                                                                          \
        name, WF_NN_PARAMETER, parameter, 1                                                    \
    }
#define WF_CHILDREN(name, modules, number)                                                     \
    {                                                                                          \
        name, WF_NN_CHILDREN, modules, number                                                  \
    }

typedef wf_tensor *wf_nn_forward(wf_nn_module *self, wf_tensor *x);

/**
 * wf_nn_module_make, wf_nn_module_new - make a module of named children and parameters
 *
 * Paths, initialisation, sharding plans, checkpoints and release follow from the names, as from
 * a table of fields.
 *
 * @param type     its name where types matter: units, errors
 * @param forward  runs it, on one tensor; NULL where it has a call of its own (wf_nn_enter)
 * @param entries  each made before, in the order of the call; owned by the module from now on,
 *                 also where it fails. A NULL entry failed before: the reason is in the context
 * Owner:   its parent, or the caller (wf_nn_free)
 * Errors:  WF_EINVAL (a name that occurs twice, is empty or has a dot), WF_ENOMEM, and those of
 *          the entries, in the context; result is then NULL
 */
WF_API wf_nn_module *wf_nn_module_make(wf_context *ctx, const char *type,
                                       wf_nn_forward *forward, const wf_nn_entry *entries);
#define wf_nn_module_new(ctx, type, forward, ...)                                              \
    wf_nn_module_make(ctx, type, forward,                                                      \
                      (const wf_nn_entry[]){__VA_ARGS__, {NULL, WF_NN_CHILD, NULL, 0}})

/**
 * wf_nn_child, wf_nn_children, wf_nn_parameter_of - find an entry of a module by its name, of
 * any kind of module
 *
 * @param count  filled with the length of the list
 * Owner:   the module
 * Errors:  WF_EINVAL in the context, with the names that there are; NULL then
 */
WF_API wf_nn_module *wf_nn_child(wf_nn_module *self, const char *name);
WF_API wf_nn_module **wf_nn_children(wf_nn_module *self, const char *name, int64_t *count);
WF_API wf_nn_parameter *wf_nn_parameter_of(wf_nn_module *self, const char *name);

/** wf_nn_run - calls a child by its name (wf_nn_call), or all of a list, one after the
 * other. */
WF_API wf_tensor *wf_nn_run(wf_nn_module *self, const char *name, wf_tensor *x);

/** wf_nn_weight - uses a parameter by its name (wf_nn_use). */
WF_API wf_tensor *wf_nn_weight(wf_nn_module *self, const char *name);

/**
 * wf_nn_replace - replaces a module below root, which is freed, by another: torch's
 * model.block[3].mlp = other
 *
 *     wf_nn_replace(model, "block.3.mlp", wf_nn_swiglu_mlp_new(ctx, &options));
 *
 * Comes before the model has a sharding plan (wf_par_plan, wf_par_tensor, wf_par_shard), which
 * gives parameters their owners, units their members and modules their borders; then the new
 * one is planned, materialised and saved by its paths like any other. Parameters that others
 * share (wf_nn_tie) live on in those. Paths are made anew (wf_nn_name_tree).
 *
 * @param root    named or not
 * @param path    that of a child, or of one of a list ("block.3")
 * @param module  takes the same input and gives the same output as the one before; of the same
 *                context; owned by the tree from then on, and freed where it fails. In a module
 *                with a struct of its own it has the type of the one before
 * Errors:        WF_EINVAL in the context: no module at the path, root itself, NULL, another
 *                type, a module that is planned or has hooks
 */
WF_API wf_status wf_nn_replace(wf_nn_module *root, const char *path, wf_nn_module *module);

/**
 * wf_nn_keep - stores numbers of a module's own (sizes, rates) in it: a copy; wf_nn_kept -
 * returns it
 *
 * Errors:  WF_ENOMEM in the context; wf_nn_kept is NULL where nothing was kept
 */
WF_API wf_status wf_nn_keep(wf_nn_module *self, const void *numbers, size_t size);
WF_API const void *wf_nn_kept(const wf_nn_module *self);

/**
 * wf_nn_points - names the points (wf_nn_at) of a module of wf_nn_module_new, at which styles
 * of a sharding plan may have borders
 *
 * @param points  names with blanks between them, "in sum"; they stay the caller's
 * Errors:        WF_EINVAL in the context: a module whose type has points already
 */
WF_API wf_status wf_nn_points(wf_nn_module *self, const char *points);

WF_END_DECLS

#endif
