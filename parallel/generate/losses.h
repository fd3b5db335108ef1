/*
 * parallel/generate/losses.h - the losses that a model has on a text that is longer than its
 * windows: perplexity, and bits per byte, are sums of them.
 *
 * Window w has tokens w x stride .. + length - 1, and the token after each is its target; of
 * these the ones count that no window before has had. So each token but the first counts once,
 * with at least length - stride tokens before it, or all.
 */
#ifndef WF_PARALLEL_GENERATE_LOSSES_H
#define WF_PARALLEL_GENERATE_LOSSES_H

#include "nn/models/gpt/gpt.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

typedef struct wf_gen_windows {
    int64_t tokens, length, stride, count;
} wf_gen_windows;

/** wf_gen_windows_of - returns the windows of `tokens` tokens, which are shorter where there
 * are fewer */
WF_API wf_gen_windows wf_gen_windows_of(int64_t tokens, int64_t length, int64_t stride);

/** wf_gen_windows_begin - returns the first target of a window that counts, as a position in
 * the text; wf_gen_windows_end - the position after its last */
WF_API int64_t wf_gen_windows_begin(const wf_gen_windows *w, int64_t window);
WF_API int64_t wf_gen_windows_end(const wf_gen_windows *w, int64_t window);

typedef struct wf_gen_losses_options {
    wf_rank *rank;
    wf_par *par;
    /* materialised; data-parallel ranks have copies, which share out the windows */
    wf_nn_gpt *model;
    int64_t copies; /* copies of the model among the ranks */
    wf_gen_windows windows;
    const int32_t *ids;     /* [windows.tokens] */
    const int32_t *counted; /* [windows.tokens], 1 or 0; NULL: all count */
    int64_t batch;          /* windows at once, of each copy */
    /* Called on rank 0 after each batch; NULL: nothing is. */
    void (*progress)(void *arg, int64_t done, int64_t windows);
    void *arg;
} wf_gen_losses_options;

/**
 * wf_gen_losses - computes the loss of each token that counts, as it is in training but without
 * dropout
 *
 * Layout, batch and copies change no bit of them.
 *
 * @param loss  [windows.tokens], shared by the ranks of a process: the negative log probability
 *              of each token given those before it in its window, in nats; others stay as they
 *              are. Complete in the process of rank 0
 * Collective over the world. Errors: in the context
 */
WF_API wf_status wf_gen_losses(const wf_gen_losses_options *options, float *loss);

WF_END_DECLS

#endif
