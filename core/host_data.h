/*
 * core/host_data.h - the data of tensors where host code can read and write them: in place
 * where the device's memory is the host's, else in a copy. Code that is no kernel reads numbers
 * by these functions; a tensor's `data` may be an address of a device. Rows that come later
 * (core/later.h) are waited for first: all of them, by each rank that they come from.
 */
#ifndef WF_CORE_HOST_DATA_H
#define WF_CORE_HOST_DATA_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/** wf_host_data - a tensor's local data on the host, from read or write until close. */
typedef struct wf_host_data {
    wf_tensor *t;
    void *copy; /* NULL: the data themselves */
    /* the data widened to f32, where they are stored as another type and f32 was asked for */
    void *f32;
    bool changed;
} wf_host_data;

/**
 * wf_data_read - returns the local data of t, to be read; waits for what computes them
 *
 * Owner:   *view, until wf_data_close
 * Errors:  in t's context, WF_EINVAL: its memory was given back; the result is then NULL, and
 *          *view may still be closed
 */
WF_API const void *wf_data_read(const wf_tensor *t, wf_host_data *view);

/**
 * wf_data_write - returns the local data of t, to be written: wf_data_close copies them to the
 * device
 *
 * @param keep  what is there is wanted as well; false: all of it will be written
 * Owner:   *view, until wf_data_close
 * Errors:  in t's context; the result is then NULL, and *view may still be closed
 */
WF_API void *wf_data_write(wf_tensor *t, bool keep, wf_host_data *view);

/** wf_data_read_f32, wf_data_write_f32 - return the local data as f32, where a tensor is stored
 * as bf16: widened, and rounded when wf_data_close stores them. Of f32 the data themselves; all
 * elements are written. Nf4 is read widened too, and written by wf_nf4_store alone
 * (WF_EDTYPE) */
WF_API const float *wf_data_read_f32(const wf_tensor *t, wf_host_data *view);
WF_API float *wf_data_write_f32(wf_tensor *t, wf_host_data *view);

/** wf_data_close - ends the access; written data are copied to the device. */
WF_API void wf_data_close(wf_host_data *view);

/** wf_data_get - copies elements [first, first + n) of the local data to `to`; an error in the
 * context. */
WF_API wf_status wf_data_get(const wf_tensor *t, int64_t first, int64_t n, void *to);

/**
 * wf_data_take - takes scratch memory for the host's own use: from the context's pool, and
 * counted there, where that holds host memory. Pair with wf_data_give. A kernel declares its
 * scratch memory as wf_kernel.workspace; what ops need between each other are tensors of a
 * scope.
 *
 * Errors:  in the context; the result is then NULL
 */
WF_API void *wf_data_take(wf_context *ctx, size_t bytes, wf_memory_kind kind);
WF_API void wf_data_give(wf_context *ctx, void *block, size_t bytes, wf_memory_kind kind);

WF_END_DECLS

#endif
