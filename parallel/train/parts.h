/*
 * parallel/train/parts.h - digests of each rank's parts of model and optimizer: so that a step
 * can be compared on any other mesh, and a rank with different state is named.
 */
#ifndef WF_PARALLEL_TRAIN_PARTS_H
#define WF_PARALLEL_TRAIN_PARTS_H

#include "parallel/train/train.h"

WF_BEGIN_DECLS

/** wf_par_held_part - elements [start, start + local) of each dim of a parameter (kind 0) or of
 * a moment of it (1, 2), and their digest: that of core/numerics/digest.h over them alone. */
typedef struct wf_par_held_part {
    const char *path; /* the parameter's */
    int kind, ndim;
    int64_t size[WF_MAX_DIMS], start[WF_MAX_DIMS], local[WF_MAX_DIMS];
    uint64_t digest;
} wf_par_held_part;

/**
 * wf_par_trainer_parts - lists the parts that this rank holds, copies of other ranks' parts
 * included, in the order of parameters
 *
 * @param list  [*n]; paths are the parameters' own
 * Owner:   caller, free(*list), also after an error
 * Errors:  WF_EINVAL for NULL; WF_ENOMEM, and those of reading, in the context
 */
WF_API wf_status wf_par_trainer_parts(wf_par_trainer *trainer, wf_par_held_part **list,
                                      int64_t *n);

/**
 * wf_par_trainer_digest_parts - computes the digests of given parts from the state of this
 * trainer's ranks, in whatever layout they hold it
 *
 * @param list  [n], the same on all ranks: digest is set. A part of an unknown tensor, or of
 *              one with another size, is WF_EINVAL
 * Collective:  over the world
 * Errors:      WF_EINVAL, WF_ENOMEM, and those of reading and communication, in the context
 */
WF_API wf_status wf_par_trainer_digest_parts(wf_par_trainer *trainer, wf_par_held_part *list,
                                             int64_t n);

/**
 * wf_par_trainer_flip_bit - flips a bit of this rank's state, as failing hardware does: for
 * drills
 *
 * @param element  of the part that the rank holds, in memory's order
 * @param bit      0 is the lowest; below 32, or 16 of a part stored as bf16
 * Errors:         WF_EINVAL in the context: there is no such tensor, element or bit here
 */
WF_API wf_status wf_par_trainer_flip_bit(wf_par_trainer *trainer, const char *path, int kind,
                                         int64_t element, int bit);

WF_END_DECLS

#endif
