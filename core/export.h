/* core/export.h - what the shared library shows: everything is hidden but what carries WF_API. */
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

#define WF_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

#endif
