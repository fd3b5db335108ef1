/* kernels/cuda/levels.c - see levels_internal.h. */
#include "kernels/cuda/levels_internal.h"
#include "kernels/cuda/device_internal.h"
#include <string.h>

enum { EIGHT = 8 };

wf_nf4_matrix wf_cuda_nf4_matrix(wf_cuda *cuda, const wf_tensor *t, wf_dtype as)
{
    wf_nf4_matrix a = {.part = wf_cuda_host_table->nf4_part_of(t),
                       .bytes = t->data,
                       .scales = t->scales->data,
                       .levels = wf_cuda_levels_of(cuda),
                       .round = as == WF_F32 && t->rounds_to == WF_BF16};

    a.row_bytes = (int64_t)wf_cuda_host_table->nf4_row_bytes(&a.part);
    a.eights = a.part.width % EIGHT == 0 && a.part.first_column % EIGHT == 0;
    a.words = a.eights && (uintptr_t)t->data % 4 == 0 && a.row_bytes % 4 == 0;
    return a;
}

static void fill(wf_cuda_levels *levels)
{
    for (int k = 0; k < 2; k++) {
        const float *level = wf_cuda_host_table->dynamic8_levels[k];

        memcpy(levels->dynamic8[k], level, sizeof levels->dynamic8[k]);
        wf_cuda_host_table->dynamic8_map_make(&levels->map[k], level);
    }
    memcpy(levels->nf4, wf_cuda_host_table->nf4_levels, sizeof levels->nf4);
}

void wf_cuda_levels_close(wf_cuda *cuda)
{
    if (cuda->levels)
        cudaFreeAsync(cuda->levels, cuda->stream);
    cuda->levels = NULL;
}

const wf_cuda_levels *wf_cuda_levels_of(wf_cuda *cuda)
{
    wf_cuda_levels levels;
    void *block = NULL;
    cudaError_t code;

    if (cuda->levels)
        return cuda->levels;
    wf_cuda_enter(cuda);
    code = cuda->capturing ? cudaErrorStreamCaptureUnsupported
                           : cudaMallocAsync(&block, sizeof levels, cuda->stream);
    wf_cuda_note(cuda, code, "tables of levels");
    if (code != cudaSuccess)
        return NULL;
    memset(&levels, 0, sizeof levels); /* padding too */
    fill(&levels);
    wf_cuda_memory.write(&cuda->device, block, &levels, sizeof levels);
    cuda->levels = block;
    return cuda->levels;
}
