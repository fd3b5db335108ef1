/*
 * mesh/array/mesh.h - a mesh of ranks with named axes, layouts over it, and redistribution
 * between layouts.
 *
 * Axes are listed outermost first (pp, replicate, shard, tp): the ranks along the last one are
 * neighbours. A layout says for every dim of a tensor the ordered list of axes that split it,
 * and over which axes the tensor is partial (a sum or maximum still to be taken); an axis in
 * neither leaves the tensor whole on it. In PyTorch's words: split is Shard(dim), whole is
 * Replicate, partial is Partial. NULL is the layout that is whole everywhere.
 */
#ifndef WF_MESH_ARRAY_MESH_H
#define WF_MESH_ARRAY_MESH_H

#include "core/context.h"
#include "mesh/array/grid.h"
#include "mesh/comm/collective.h"

WF_BEGIN_DECLS

typedef struct wf_mesh wf_mesh;

typedef struct wf_axis {
    const char *name;
    int size;
} wf_axis;

/**
 * wf_mesh_open - lays the ranks of `world` out along axes and gives ctx its coordinates among
 * them.
 *
 * @param ctx    from now on ops of this context check layouts; closed after the mesh, and
 *               without another mesh that is open
 * @param world  of prod(sizes) ranks
 * @param axes   1 to WF_MAX_AXES of them, outermost first; sizes >= 1, names different
 * Collective:  over world
 * Owner:       caller; wf_mesh_close
 * Errors:      WF_EINVAL (sizes do not multiply to the ranks, ctx has a mesh), WF_ENOMEM,
 *              WF_ELOST; NULL then
 */
WF_API wf_mesh *wf_mesh_open(wf_context *ctx, wf_comm *world, int n_axes, const wf_axis *axes,
                             wf_error *error);
WF_API void wf_mesh_close(wf_mesh *mesh);

/*
 * Axes are numbers from 0 on. A function that takes an axis answers for -1 as for an axis of
 * one rank that the mesh does not have; any other number that is no axis is an error, WF_EINVAL
 * in the mesh's context, and answered as -1 is.
 */

/** wf_mesh_of - returns the mesh of a context, NULL for one rank alone. */
WF_API wf_mesh *wf_mesh_of(const wf_context *ctx);

/** wf_mesh_ranks - returns the ranks of the whole mesh; wf_mesh_axes - the number of axes. 1
 * and 0 for NULL. */
WF_API int wf_mesh_ranks(const wf_mesh *mesh);
WF_API int wf_mesh_axes(const wf_mesh *mesh);
/** wf_mesh_axis - returns the number of a named axis, or -1, also for a NULL mesh;
 * wf_mesh_axis_name - the name of an axis. Owner: the mesh. */
WF_API int wf_mesh_axis(const wf_mesh *mesh, const char *name);
WF_API const char *wf_mesh_axis_name(const wf_mesh *mesh, int axis);
/** wf_mesh_size - returns the ranks along an axis; 1 for axis -1. */
WF_API int wf_mesh_size(const wf_mesh *mesh, int axis);
/** wf_mesh_coordinate - returns this rank's coordinate along an axis; wf_mesh_coordinate_of -
 * any rank's. */
WF_API int wf_mesh_coordinate(const wf_mesh *mesh, int axis);
WF_API int wf_mesh_coordinate_of(const wf_mesh *mesh, int rank, int axis);
/** wf_mesh_next - returns the next rank after one with coordinate 0 on these axes (a bit each)
 * that differs from it on them alone, the innermost axis fastest; -1 after the last */
WF_API int wf_mesh_next(const wf_mesh *mesh, int rank, unsigned axes);
/**
 * wf_mesh_comm - returns the group of ranks along an axis through this one, NULL for axis -1;
 * wf_mesh_world - the group of all. Owner: the mesh; of the world, its opener. Owner: the mesh,
 * and the caller that opened the world.
 */
WF_API wf_comm *wf_mesh_comm(const wf_mesh *mesh, int axis);
WF_API wf_comm *wf_mesh_world(const wf_mesh *mesh);

/**
 * wf_mesh_gather - gathers `bytes` bytes of every rank, in the order of ranks
 *
 * Collective:  over the world
 * Owner:       the mesh, until its next wf_mesh_gather
 * Errors:      recorded in the mesh's context; result is then NULL
 */
WF_API const void *wf_mesh_gather(wf_mesh *mesh, const void *mine, size_t bytes);

/** wf_mesh_shares_model - declares that ranks along this axis share a model and its sequences:
 * work that they all do alike counts once in wf_context_model_flops. Nothing for axis -1. */
WF_API void wf_mesh_shares_model(wf_mesh *mesh, int axis);

/**
 * wf_mesh_cut_finely - cuts dims along this axis anywhere, not between grains only
 *
 * For an axis that shards stored tensors: they are in parts of the same size, and gathered
 * along it before an op sees heads. A view of heads that it cuts is refused (WF_ELAYOUT).
 * Called before the first layout with the axis is used, on all ranks.
 */
WF_API void wf_mesh_cut_finely(wf_mesh *mesh, int axis);

/** wf_mesh_cuts_finely - returns true after wf_mesh_cut_finely of this axis; false for axis
 * -1. */
WF_API bool wf_mesh_cuts_finely(const wf_mesh *mesh, int axis);

/*
 * Layouts are made step by step, belong to the mesh, and are equal when their pointers are.
 * Splitting by an axis of size 1, or by an unknown one (-1), changes nothing.
 */

/** wf_layout_split - returns `from`, with `axis` added as the innermost one that splits `dim`.
 * Axis -1 is an error, WF_EINVAL in the mesh's context, as of wf_layout_partial: a name was
 * misspelt. */
WF_API const wf_layout *wf_layout_split(wf_mesh *mesh, const wf_layout *from, int dim,
                                        int axis);
/** wf_layout_partial - returns `from`, but with a sum or maximum still to be taken over
 * `axis`. */
WF_API const wf_layout *wf_layout_partial(wf_mesh *mesh, const wf_layout *from, int axis,
                                          wf_reduction reduction);
/** wf_layout_whole - returns `from`, but whole on `axis`. */
WF_API const wf_layout *wf_layout_whole(wf_mesh *mesh, const wf_layout *from, int axis);
/** wf_layout_dual - returns the layout of the gradient of a tensor of this layout: whole where
 * it is partial. */
WF_API const wf_layout *wf_layout_dual(wf_mesh *mesh, const wf_layout *layout);

/** wf_layout_split_dim - returns the dim that `axis` splits, or -1. */
WF_API int wf_layout_split_dim(const wf_layout *layout, int axis);
/** wf_layout_dim_axes - lists the axes that split `dim`, outermost first; returns how many. */
WF_API int wf_layout_dim_axes(const wf_layout *layout, int dim, int axis[WF_MAX_AXES]);
/** wf_layout_split_axes - returns the axes that split any dim, a bit each. */
WF_API unsigned wf_layout_split_axes(const wf_layout *layout);
/** wf_layout_is_partial - returns true for a layout that is partial over this axis, or over any
 * (-1). */
WF_API bool wf_layout_is_partial(const wf_layout *layout, int axis);
/** wf_layout_print - writes "[replicate, *, tp] partial(shard)", whole dims as *; returns
 * text. */
WF_API char *wf_layout_print(const wf_layout *layout, char *text, size_t size);

/**
 * wf_layout_parse - parses a layout in the notation of wf_layout_print
 *
 * "whole", or "[dp, *, tp/shard] partial(pp)": dims in order (those after the last one are
 * whole), each with the axes that split it, outermost first, or *; then what is partial. An
 * axis of one rank may be listed anywhere and changes nothing.
 *
 * @param layout  filled in; NULL for whole, and on errors
 * Collective:  no
 * Errors:      WF_EINVAL, with the position in the text and the names of the axes; WF_ELAYOUT
 *              (an axis that is listed twice), WF_ENOMEM; recorded in the mesh's context and
 *              returned
 */
WF_API wf_status wf_layout_parse(wf_mesh *mesh, const char *text, const wf_layout **layout);

/** wf_layout_groups_agree - returns true where every rank's query heads (dim 2 of q) use
 * exactly the key-value heads (dim 2 of k) that it holds, so that attention needs no others */
WF_API bool wf_layout_groups_agree(const wf_tensor *q, const wf_tensor *k);

/** wf_layout_part - computes the part of dim i of a shape that any rank of the mesh holds. */
WF_API void wf_layout_part(const wf_mesh *mesh, const wf_layout *layout, int i,
                           const wf_dim *dim, int rank, int64_t *start, int64_t *local);
/** wf_layout_largest_part - returns the indices of dim i that the rank with most of them
 * holds. */
WF_API int64_t wf_layout_largest_part(const wf_mesh *mesh, const wf_layout *layout, int i,
                                      const wf_dim *dim);

/**
 * wf_redistribute - redistributes a tensor to another layout
 *
 * The activations of a model move between ranks by this function, wf_redistribute_many and
 * wf_border alone. Such a border is recorded even where nothing moves forward, also on one
 * rank, since its gradient is the transposed move: a gradient arrives in any layout and is
 * brought to the dual of x's. That of a vector, which has a row per sequence, is summed over
 * the ranks that share a sequence, then over sequences.
 *
 * A weight that a model computes before it uses it (masked, normed, merged with another) passes
 * wf_redistribute(w, w->layout) where ranks have shares of the batch: its gradient is summed
 * over them there, in every micro-step, and then flows through the ops that made the weight.
 * Another number of micro-steps then has other bits, which wf_context_inexact reports
 * (wf_context_micro_steps).
 *
 * @param to    of the same mesh; NULL for whole
 * Layout:      any to any; sums over ranks in tree order, rounded once where results are stored
 *              as bf16 (wf_context_storage): partial tensors are not
 * Collective:  over the axes on which the layouts differ
 * Owner:       scope
 * Errors:      WF_ELAYOUT, WF_EDTYPE (partial and not f32), WF_EUNSUPPORTED (a gradient is
 *              wanted of a maximum over ranks), WF_ENOMEM, WF_ELOST, WF_EMISMATCH
 * Gradient:    to x, of x's shape
 */
WF_API wf_tensor *wf_redistribute(wf_tensor *x, const wf_layout *to);

/** wf_redistribute_many - redistributes up to WF_MAX_OUTPUTS tensors in shared collectives; y
 * may be x. */
WF_API wf_status wf_redistribute_many(int count, wf_tensor *const *x,
                                      const wf_layout *const *to, wf_tensor **y);

/**
 * wf_border - redistributes tensors on one axis, as plans do (wf_redistribute_many)
 *
 * @param axis  the only one on which `to` differs from the tensors' layouts; their gradients
 *              are moved on it alone, and stay as they come on the others (a parameter's
 *              gradient is partial over the data-parallel axes until the step ends), and it is
 *              the innermost one where it splits a dim with others. -1: all axes
 * Errors:      as wf_redistribute; WF_ELAYOUT where they differ on another axis
 */
WF_API wf_status wf_border(int axis, int count, wf_tensor *const *x, const wf_layout *const *to,
                           wf_tensor **y);

/**
 * wf_border_over - makes a border on several axes, a bit each, whose gradients are moved on all
 * of them, the innermost first where they are sums
 *
 * @param via  what is moved instead of x: x after earlier moves, which it shares with other
 *             uses; x itself where there is none
 * Errors:     as wf_border
 */
WF_API wf_status wf_border_over(unsigned axes, int count, wf_tensor *const *x,
                                wf_tensor *const *via, const wf_layout *const *to,
                                wf_tensor **y);

/**
 * wf_border_handle - makes a second handle on the result y of a border on `axis` of x: y's
 * data, with a gradient of its own
 *
 * Where y is whole on each rank and a rank's gradient of y is partial for some of its uses and
 * complete for others, the two cannot be added: uses of the second kind take this handle, and
 * their complete gradient goes back to x by itself. Nothing is moved for it forward.
 *
 * Gradient:    to x, on that axis alone
 */
WF_API wf_tensor *wf_border_handle(int axis, wf_tensor *x, wf_tensor *y);

/** wf_row_owners - who takes which rows [b, t] of tensors [b, t, d]: the ranks along an axis
 * that own one of the k indices of a row. */
typedef struct wf_row_owners {
    int axis;         /* splits the batch, and the dim that is owned */
    int inner;        /* splits that dim further, inside of axis, or tokens; -1: none does */
    wf_tensor *index; /* f32 [b, t, k], whole over both: whole numbers */
    wf_dim dim;       /* the dim that is owned, dim 0 of a tensor of this layout: */
    const wf_layout *layout;
} wf_row_owners;

/**
 * wf_border_rows - a border in which rows go to the owners of their indices alone, with
 * the values of one that gathers all and scatters sums
 *
 * A tensor that is split over owners->axis is brought to its owners: a rank gets the rows of
 * which it owns an index; the others are +0, and nothing may read them. One that is partial
 * over it, and over owners->inner, if that splits no tokens, is summed where its rows belong: a
 * rank that owns none of a
 * row's indices has +0 of it, and is left out. Partial sums are never -0, as of wf_experts.
 *
 * @param x    recorded
 * @param via  moved instead of it, as in wf_border_over: its batch split over the axis, and
 *             tokens maybe over the inner one; or a partial sum, f32
 * @param to   whole over owners->axis and inner; or the batch split over the axis, and tokens
 *             maybe over the inner one
 * Collective:  over both axes
 * Owner:       scope
 * Memory:      beside the result, as many rows as move if all owners take all of them
 * Errors:      WF_ELAYOUT, WF_EDTYPE, WF_EUNSUPPORTED (a device with memory of its own),
 *              WF_ENOMEM, WF_ELOST; NULL then
 * Gradient:    to x, by the opposite move
 */
WF_API wf_tensor *wf_border_rows(const wf_row_owners *owners, wf_tensor *x, wf_tensor *via,
                                 const wf_layout *to);

/**
 * wf_border_rows_begin - begins wf_border_rows: posts what it moves and returns
 *
 * The result has no elements: wf_border_rows_end takes it for them, and nothing else may. The
 * gradient's move begins where the walk back passes the end, and is waited for where it passes
 * the begin, so that what is recorded in between hides both.
 *
 * Collective:  over both axes; ended in the order in which they were begun
 * Owner:       scope
 * Memory:      that of wf_border_rows, until it is ended
 * Errors:      as wf_border_rows
 */
WF_API wf_tensor *wf_border_rows_begin(const wf_row_owners *owners, wf_tensor *x,
                                       wf_tensor *via, const wf_layout *to);
/** wf_border_rows_end - waits for a border that was begun; returns x itself where none has made
 * it. Owner: scope. Errors: as wf_border_rows. Gradient: to what the border has moved. */
WF_API wf_tensor *wf_border_rows_end(wf_tensor *x);

/** wf_row_wave - sequences whose rows move by themselves: of the owners' indices, this rank's
 * [first, end). */
typedef struct wf_row_wave {
    int64_t first, end;
    wf_dim batch;   /* dim 0 of a tensor of these sequences alone (wf_tensor_rows) */
    wf_tensor *sum; /* sums are written to its rows of them; NULL: it is made */
} wf_row_wave;

/**
 * wf_rows_move - makes the move of wf_border_rows without the tape, of all sequences or of a
 * wave of them, for which there is room alone
 *
 * @param owners  as in wf_border_rows
 * @param wave    NULL: all of them. Rows of x, which has all of this rank's, then go to owners
 *                as a tensor of the wave's sequences; a partial sum of these is added up in
 *                wave->sum, which has all of this rank's rows, is f32, to be rounded when all
 *                waves are there (wf_rounded), and is split over owners->axis and inner
 * @param to      as in wf_border_rows; not read of a wave
 * Collective, Owner, Errors:  as wf_border_rows
 * Gradient:      none
 */
WF_API wf_tensor *wf_rows_move(const wf_row_owners *owners, const wf_row_wave *wave,
                               wf_tensor *x, const wf_layout *to);

/** wf_rows_share - returns the part of rows, with k different indices each of `all`, of which
 * an owner of `owned` of these takes any, if indices are equally likely. */
WF_API double wf_rows_share(int64_t owned, int64_t all, int64_t k);

/** wf_keep_origin - declares that y was redistributed from x: where the gradient of a parameter
 * needs y, the tape keeps x and redistributes it in backward: less memory for one more
 * collective */
WF_API void wf_keep_origin(wf_tensor *y, wf_tensor *x);

/*
 * wf_move - a redistribution in flight, without the tape: for gradients, parameters and
 * prefetch. Any number of tensors; collectives of one kind and axis are shared. x must not be
 * written and stays alive until the end.
 */
typedef struct wf_move wf_move;

/**
 * wf_move_begin - begins a move: posts its first collective and returns
 *
 * It progresses while the caller computes, where the transport has a thread for that (threads:
 * one per rank, started by the first). Collectives of later steps are posted by wf_move_end:
 * they need tensors of the context, which is its own thread's.
 *
 * Collective: see wf_redistribute. Errors: NULL, the reason is in the context and nothing is in
 * flight.
 */
WF_API wf_move *wf_move_begin(wf_context *ctx, int64_t count, wf_tensor *const *x,
                              const wf_layout *const *to);
/** wf_move_end - waits, does the remaining steps, fills y (owned by the scope); frees move,
 * always. */
WF_API wf_status wf_move_end(wf_move *move, wf_tensor **y);

/** wf_move_run - begins and ends a move, on the caller's thread alone; y may be x. */
WF_API wf_status wf_move_run(wf_context *ctx, int64_t count, wf_tensor *const *x,
                             const wf_layout *const *to, wf_tensor **y);

/*
 * From plain memory to tensors of a mesh and back, in PyTorch's words distribute_tensor,
 * from_local, to_local and full_tensor.
 */

/** wf_distribute - takes this rank's part of a whole array that every rank has
 * (distribute_tensor). Gradient: none. Owner: scope. */
WF_API wf_tensor *wf_distribute(wf_context *ctx, const void *whole, wf_dtype dtype, int ndim,
                                const wf_dim *dims, const wf_layout *layout);

/**
 * wf_from_local - makes this rank's tensor its part of a global one
 *
 * @param local  no layout; its sizes are those of this rank's part
 * @param dims   the global shape
 * Collective:  no
 * Errors:      WF_ESHAPE with the sizes expected
 * Gradient:    to local: the part of the gradient, in the dual of layout
 */
WF_API wf_tensor *wf_from_local(wf_tensor *local, int ndim, const wf_dim *dims,
                                const wf_layout *layout);

/**
 * wf_to_local - returns this rank's part as a tensor of its own
 *
 * @param grad_layout  the layout in which the gradients of all ranks' parts make up that of x:
 *                     where the parts are used alike on an axis, whole; where each rank adds
 *                     its own share, partial. There is no default: a wrong guess is a wrong
 *                     gradient
 * Collective:  no; its gradient brings grad_layout to the dual of x's layout
 */
WF_API wf_tensor *wf_to_local(wf_tensor *x, const wf_layout *grad_layout);

/** wf_whole - redistributes to the layout that is whole everywhere (full_tensor). */
WF_API wf_tensor *wf_whole(wf_tensor *x);

/**
 * wf_mesh_trace - traces this rank from now on: kernels and phases of the mesh's context, and
 * the collectives of its groups. NULL ends it.
 *
 * @param trace  the caller's, and open as long; texts in its events live as long as the mesh
 *               and the modules that were run
 * Collective:   no; times are best where all ranks trace the same steps
 */
WF_API void wf_mesh_trace(wf_mesh *mesh, wf_trace *trace);

/** wf_mesh_oplog - logs ops of the mesh's context, and collectives and messages of its groups
 * (core/oplog.h). NULL ends it. */
WF_API void wf_mesh_oplog(wf_mesh *mesh, const wf_oplog *oplog);

WF_END_DECLS

#endif
