/*
 * nn/optim/groups.h - parameter groups: another rate and weight decay for parameters by their
 * paths, as a text
 *
 *     embed:lr=0.1,wd=0; block.*.attn:lr=0.5
 *
 * Each group has a pattern as wf_nn_freeze takes it (a parameter's path or that of a module
 * above it, * for one name), then lr=, a factor of the step's rate, and wd=, a weight decay
 * instead of the optimizer's, one of the two or both. Of several groups that meet a parameter
 * the last counts.
 */
#ifndef WF_NN_OPTIM_GROUPS_H
#define WF_NN_OPTIM_GROUPS_H

#include "nn/module.h"

WF_BEGIN_DECLS

/** wf_nn_group - one group of a text. */
typedef struct wf_nn_group {
    char pattern[WF_NN_PATH];
    bool has_lr, has_decay;
    float lr, decay;
} wf_nn_group;

/**
 * wf_nn_groups_parse - reads a text of groups
 *
 * @param text   NULL: none
 * @param group  [*n]. Owner: the caller, free; NULL after an error
 * Errors:       WF_EINVAL with the part that is no group, WF_ENOMEM
 */
WF_API wf_status wf_nn_groups_parse(const char *text, wf_nn_group **group, int *n,
                                    wf_error *error);

/** wf_nn_groups_find - returns the group of a path, the last that meets it; -1: none does. */
WF_API int wf_nn_groups_find(const wf_nn_group *group, int n, const char *path);

WF_END_DECLS

#endif
