/*
 * kernels/cuda_host_internal.h - the interface between libweft and libweft_cuda.so. The plugin
 * exports one symbol, wf_plugin, and links to nothing of Weft: what it calls there is in the
 * host's table. Without a header of CUDA, for both sides.
 */
#ifndef WF_KERNELS_CUDA_HOST_INTERNAL_H
#define WF_KERNELS_CUDA_HOST_INTERNAL_H

#include "core/context.h"
#include "core/numerics/nf4.h"
#include "core/numerics/random.h"
#include "kernels/devices.h"
#include "kernels/parameters.h"

WF_BEGIN_DECLS

/* To be raised with every change to what both sides share: this file and all of core/ that it
   includes. */
enum { WF_CUDA_VERSION = 15 };

typedef struct wf_cuda_host {
    size_t size; /* this table's; it comes first, so that it can always be read */
    int version;
    int ops; /* rows of kernels/ops.def: ids are counted over it */

    wf_status (*error_set)(wf_error *error, wf_status code, const char *format, ...)
        WF_PRINTF(3, 4);
    wf_status (*fail)(wf_context *ctx, wf_status code, const char *format, ...) WF_PRINTF(3, 4);
    wf_device *(*context_device)(wf_context *ctx);
    void (*context_warn)(wf_context *ctx, const void *of, const char *format, ...)
        WF_PRINTF(3, 4);
    bool (*context_exact)(const wf_context *ctx);
    bool (*context_dry_run)(const wf_context *ctx);
    wf_pool *(*context_pool)(wf_context *ctx);
    void *(*pool_take)(wf_pool *pool, size_t bytes, wf_memory_kind kind, wf_error *error);
    void (*pool_give)(wf_pool *pool, void *block, size_t bytes, wf_memory_kind kind);
    int (*chunk_cuts)(const wf_tensor *t, int dim, int64_t at[WF_MAX_CHUNKS + 1]);
    int64_t (*tensor_local_count)(const wf_tensor *t);
    size_t (*dtype_size)(wf_dtype dtype);
    bool (*truncate)(wf_truncated *t, float mean, float deviation, float low, float high);
    const float *dynamic8_levels[2]; /* dynamic8, dynamic8u */
    const float *nf4_levels;
    void (*dynamic8_map_make)(wf_dynamic8_map *map, const float *level);
    wf_dynamic8_row (*dynamic8_row_of)(int64_t size, int64_t grain, int64_t start,
                                       int64_t columns);
    wf_nf4_part (*nf4_part_of)(const wf_tensor *t);
    size_t (*nf4_row_bytes)(const wf_nf4_part *part);
    wf_update_run *update_lion, *update_sign, *update_keep;
} wf_cuda_host;

typedef struct wf_cuda_plugin {
    /* Returns the number of GPUs; 0 with an error that gives the reason. */
    int (*count)(wf_error *error);
    wf_device *(*open)(const wf_cuda_options *options, wf_error *error);
    /* For tests: why the GPU has no kernel of a row of ops.def; NULL: it has one, or needs
       none */
    const char *(*missing)(int id);
} wf_cuda_plugin;

/* The entry that the plugin exports as "wf_plugin"; returns NULL where size, version or ops are
   not its own. */
typedef const wf_cuda_plugin *wf_cuda_entry(const wf_cuda_host *host);

WF_END_DECLS

#endif
