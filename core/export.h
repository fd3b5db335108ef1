/* core/export.h - visibility of symbols: everything is hidden but what carries WF_API. */
#ifndef WF_CORE_EXPORT_H
#define WF_CORE_EXPORT_H

#define WF_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define WF_BEGIN_DECLS extern "C" {
#define WF_END_DECLS   }
#else
#define WF_BEGIN_DECLS
#define WF_END_DECLS
#endif

/* Marks functions that GPU kernels call too; only nvcc knows the keywords. */
#ifdef __CUDACC__
#define WF_HOST_DEVICE __host__ __device__
#else
#define WF_HOST_DEVICE
#endif

#define WF_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

#endif
