/*
 * nn/dataset/packing.h - packs pieces of text into windows: best fit decreasing. The longest
 * piece comes first, and each goes to the window with the least room that it fits in, or begins
 * a window.
 *
 * Windows are in the order of the first piece of each, so that the end of the windows is about
 * the end of the pieces, and pieces of a window in their own order. It is a function of the
 * lengths alone.
 */
#ifndef WF_NN_DATASET_PACKING_H
#define WF_NN_DATASET_PACKING_H

#include "core/status.h"
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_dataset_packing {
    int64_t windows;
    /* [windows + 1] window w has the pieces piece[first[w]] .. piece[first[w + 1] - 1] */
    int64_t *first;
    int64_t *piece;
} wf_dataset_packing;

/**
 * wf_dataset_packing_new - packs pieces into windows
 *
 * @param length  [pieces], each in [1, room]
 * @param room    tokens of a window
 * Owner:         the caller, wf_dataset_packing_free, also after an error
 * Errors:        WF_ENOMEM
 */
WF_API wf_status wf_dataset_packing_new(const int32_t *length, int64_t pieces, int64_t room,
                                        wf_dataset_packing *packing, wf_error *error);

/** wf_dataset_packing_free - frees the lists; a zeroed packing is allowed. */
WF_API void wf_dataset_packing_free(wf_dataset_packing *packing);

WF_END_DECLS

#endif
