/* core/status.h - status codes and the error record: the first error stays, with its text. */
#ifndef WF_CORE_STATUS_H
#define WF_CORE_STATUS_H

#include "core/export.h"
#include <stdarg.h>

WF_BEGIN_DECLS

typedef enum wf_status {
#define STATUS(name, text) WF_##name,
#include "core/status.def"
#undef STATUS
    WF_STATUS_COUNT
} wf_status;

struct wf_context; /* core/context.h */

enum { WF_ERROR_TEXT = 1536 };

/** wf_error - the first failure recorded here; zero-initialise it. */
typedef struct wf_error {
    wf_status code;
    char text[WF_ERROR_TEXT];
} wf_error;

/**
 * wf_status_name - returns a short text of a status, for instance "out of memory".
 *
 * Owner:   static string; never NULL
 */
WF_API const char *wf_status_name(wf_status status);

/**
 * wf_error_set - records a failure, unless one is recorded already.
 *
 * @param error  record to fill; NULL drops the text
 * @param code   anything but WF_OK
 * Returns:      code, so that callers can `return wf_error_set(...)`
 */
WF_API wf_status wf_error_set(wf_error *error, wf_status code, const char *format, ...)
    WF_PRINTF(3, 4);

/** wf_fail - records the first failure of a context, with the module path and rank in front;
 * returns code. */
WF_API wf_status wf_fail(struct wf_context *ctx, wf_status code, const char *format, ...)
    WF_PRINTF(3, 4);

/** wf_text_visible - replaces, in place, control characters that a terminal would obey, but
 * tabs and line ends, by '?'; returns text. Done to every text of an error, and to texts of
 * files before they are printed. */
WF_API char *wf_text_visible(char *text);

/** wf_error_vset - records a failure like wf_error_set, with a va_list. */
WF_API wf_status wf_error_vset(wf_error *error, wf_status code, const char *format,
                               va_list args) WF_PRINTF(3, 0);

WF_END_DECLS

#endif
