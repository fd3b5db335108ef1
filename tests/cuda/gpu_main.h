/* tests/cuda/gpu_main.h - the main of a test that needs the (emulated) GPU. */
#ifndef WF_TESTS_CUDA_GPU_MAIN_H
#define WF_TESTS_CUDA_GPU_MAIN_H

#include "core/context.h"
#include "mesh/cluster/launch.h"
#include "tests/harness.h"

/* wf_test_main, or 77 (skipped) with the reason where there is no GPU. */
int gpu_test_main(const char *suite, const wf_test *tests);

/* Opens a context on the first GPU, of seed 7. */
wf_context *gpu_context(void);

/* Writes a member's numbers (tests/mesh/ranks.h) to a tensor of floats; returns it. */
wf_tensor *gpu_filled(wf_tensor *t, int member);

/* Runs a function on four ranks with an emulated GPU each: over threads, whose devices read
   each other's memory, and over NCCL, which brings parts. Says so where there are no such
   GPUs. */
enum { GPU_RANKS = 4 };
void gpu_over_ranks(wf_status (*rank_of)(wf_rank *rank, void *arg));

#endif
