/*
 * nn/module.h - modules: structs with a table of their fields, built on the fake
 * device, a meta device: tensors have shapes and no data.
 *
 * A module's struct begins with a wf_nn_module. Its type names the struct's size, its forward
 * function and its fields (parameters and children), from which follow paths, iteration,
 * initialisation and release. Model code knows no mesh: it names points ("in", "sum") and uses
 * of parameters, which hooks may change; without one they are the identity.
 */
#ifndef WF_NN_MODULE_H
#define WF_NN_MODULE_H

#include "core/tape.h"
#include "nn/hooks.h"
#include "nn/parameter.h"

WF_BEGIN_DECLS

typedef enum wf_nn_kind {
    WF_NN_PARAMETER = 1,
    WF_NN_CHILD,
    WF_NN_CHILDREN,
    WF_NN_MEMBERS /* children that are not called: the module uses their parameters itself */
} wf_nn_kind;

/** wf_nn_field - a row of a module's field table, ended by a row without name. */
typedef struct wf_nn_field {
    const char *name;
    wf_nn_kind kind;
    size_t offset;       /* offset of a wf_nn_parameter *, a module *, or a module ** */
    size_t count_offset; /* WF_NN_CHILDREN, WF_NN_MEMBERS: of the int64_t with their number */
} wf_nn_field;

struct wf_nn_chain;

typedef struct wf_nn_type {
    const char *name;
    size_t size;
    const wf_nn_field *fields; /* NULL: none */
    wf_tensor *(*forward)(wf_nn_module *self,
                          wf_tensor *x); /* NULL: it has a call of its own */
    /* NULL, or frees members that are no fields, before those */
    void (*release)(wf_nn_module *self);
    /* names of its points (wf_nn_at), blanks between them; NULL: none. A sharding plan refuses
       borders at others */
    const char *points;
} wf_nn_type;

struct wf_nn_module {
    const wf_nn_type *type;
    wf_context *ctx;
    char path[WF_NN_PATH];
    const char *name;                /* in a list of children; NULL: its number */
    bool member;                     /* it belongs to a module that never calls it */
    bool recompute;                  /* activation checkpointing: see nn/checkpointing.h */
    bool offload;                    /* its input rests in host memory then, until backward */
    const struct wf_nn_chain *chain; /* its steps, see nn/chain.h; or NULL */
    const wf_nn_hooks **hooks;       /* a list, see nn/hooks.h */
    int n_hooks;
    struct {
        uint64_t walk; /* number of the last walk that has reached it (nn/tree.c) */
        const wf_nn_module *from;
        const char *field;
    } reached;
};

/**
 * wf_nn_new - makes a zeroed module struct of a type; the caller fills in the fields.
 *
 * Owner:   its parent, or the caller (wf_nn_free)
 * Errors:  WF_ENOMEM in the context; result is then NULL
 */
WF_API void *wf_nn_new(wf_context *ctx, const wf_nn_type *type);

/** wf_nn_free - frees a module with its children and parameters; NULL is allowed. */
WF_API void wf_nn_free(wf_nn_module *module);

/**
 * wf_nn_name_tree - gives every module and parameter below root its path, root being ""
 *
 * Called once more where a tree has become part of a larger one, whose paths then apply: two
 * models in one tree have different paths. wf_par_plan does so too.
 *
 * Errors: WF_EINVAL in the context (a path that is too long, one path for two parameters, a
 *         module or a parameter in two fields)
 */
WF_API wf_status wf_nn_name_tree(wf_nn_module *root);

/** wf_nn_path_matches - matches a pattern such as "block.*.attn" with a path such as
 * "block.3.attn": a "*" is one name. */
WF_API bool wf_nn_path_matches(const char *pattern, const char *path);

/** wf_nn_path_covers - returns true where a pattern matches a path or that of a module above
 * it: "block.*" all of block.0.attn */
WF_API bool wf_nn_path_covers(const char *pattern, const char *path);

/**
 * wf_nn_freeze - freezes every parameter that is at a path, or below it: "block.0",
 * "block.*.norm1"
 *
 * A frozen parameter has no gradient and no state of the optimizer; called before there is one.
 * Counts (wf_nn_is_counts) are never frozen.
 * A tied one is frozen in all its fields, by its first path.
 *
 * @param root  named (wf_nn_name_tree)
 * Errors:      WF_EINVAL: no parameter is there
 */
WF_API wf_status wf_nn_freeze(wf_nn_module *root, const char *pattern);

/** wf_nn_call - runs a module on one tensor, in a scope of its own. NULL in gives NULL out. */
WF_API wf_tensor *wf_nn_call(void *module, wf_tensor *x);

/** wf_nn_enter, wf_nn_leave - begin and end a module's own kind of call, like wf_nn_call's:
 * results (entries may be NULL) are kept for the scope outside. */
WF_API const char *wf_nn_enter(void *module);
WF_API void wf_nn_leave(void *module, const char *outside, int n, wf_tensor **results);

/**
 * wf_nn_at - passes x through a named point; wf_nn_at_many - up to 4 tensors together
 *
 * Errors: WF_EINVAL in the context, a point that the module does not list (wf_nn_points,
 *         wf_nn_type.points); what passed is then NULL
 */
WF_API wf_tensor *wf_nn_at(void *module, const char *point, wf_tensor *x);
WF_API void wf_nn_at_many(void *module, const char *point, int n, wf_tensor **x);

/** wf_nn_has_point - returns whether a module lists a point. */
WF_API bool wf_nn_has_point(const wf_nn_module *module, const char *point);

/** wf_nn_acts - returns true where hooks act at a point: where none does, the ops on both of
 * its sides may be fused. */
WF_API bool wf_nn_acts(const void *module, const char *point);

/** wf_nn_use - uses a parameter at this point of the forward pass; every use is a leaf of its
 * own, whose gradients are added in the order of use in forward, whatever backward recomputes.
 * Owner: scope. */
WF_API wf_tensor *wf_nn_use(void *module, wf_nn_parameter *parameter);

/** wf_nn_visit - calls `module` and `parameter` (either may be NULL) for all of a tree, in
 * field order, parents first; a tied parameter comes once per field. */
WF_API void wf_nn_visit(wf_nn_module *root, void (*module)(void *arg, wf_nn_module *m),
                        void (*parameter)(void *arg, wf_nn_module *m, const char *name,
                                          wf_nn_parameter *p),
                        void *arg);

/** wf_nn_parameters - lists all parameters of a tree, ties once, in field order. Owner: caller,
 * free(). */
WF_API wf_nn_parameter **wf_nn_parameters(wf_nn_module *root, int64_t *count);

/** wf_nn_model_hash - returns a hash of all paths, shapes, ties and recipes below a named root:
 * two models of one hash start from the same numbers under the same seed */
WF_API uint64_t wf_nn_model_hash(wf_nn_module *root);

WF_END_DECLS

#endif
