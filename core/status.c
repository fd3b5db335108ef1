/* core/status.c - status names and the error record. */
#include "core/status_internal.h"
#include "core/failed_rank.h"
#include <stdio.h>
#include <string.h>

const char *wf_status_name(wf_status status)
{
    static const char *const text[] = {
#define STATUS(name, words) [WF_##name] = words,
#include "core/status.def"
#undef STATUS
    };

    return (unsigned)status < WF_STATUS_COUNT ? text[status] : "unknown status";
}

char *wf_text_visible(char *text)
{
    for (char *c = text; *c; c++) {
        unsigned char here = (unsigned char)*c, next = (unsigned char)c[1];

        if ((here < 0x20 && here != '\n' && here != '\t') || here == 0x7f)
            *c = '?';
        else if (here == 0xc2 && next >= 0x80 && next < 0xa0) /* U+0080 to U+009F in UTF-8 */
            c[0] = c[1] = '?';
    }
    return text;
}

/* Takes away a character whose last bytes the end of a text has cut off. */
static void drop_cut_character(char *text)
{
    size_t n = strlen(text), have = 0, wants;
    unsigned char first;

    while (have < n && have < 4 && ((unsigned char)text[n - 1 - have] & 0xc0) == 0x80)
        have++;
    if (have == n)
        return;
    first = (unsigned char)text[n - 1 - have++];
    wants = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    if (have < wants)
        text[n - have] = 0;
}

wf_status wf_error_vset(wf_error *error, wf_status code, const char *format, va_list args)
{
    if (error && error->code == WF_OK) {
        error->code = code;
        vsnprintf(error->text, sizeof error->text, format, args);
        drop_cut_character(error->text);
        wf_text_visible(error->text);
    }
    return code;
}

wf_status wf_error_set(wf_error *error, wf_status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    wf_error_vset(error, code, format, args);
    va_end(args);
    return code;
}

wf_status wf_fail(struct wf_context *ctx, wf_status code, const char *format, ...)
{
    wf_failure *failure = (wf_failure *)(void *)ctx;
    char text[WF_ERROR_TEXT];
    va_list args;

    if (failure->error.code != WF_OK)
        return code;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (wf_names_rank(text))
        return wf_error_set(&failure->error, code, "%s", text);
    if (failure->path)
        return wf_error_set(&failure->error, code, "rank %d, in %s: %s", failure->rank,
                            failure->path, text);
    return wf_error_set(&failure->error, code, "rank %d: %s", failure->rank, text);
}
