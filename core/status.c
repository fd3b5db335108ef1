/* core/status.c - status names and the error record. */
#include "core/status.h"
#include <stdio.h>

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

wf_status wf_error_vset(wf_error *error, wf_status code, const char *format, va_list args)
{
    if (error && error->code == WF_OK) {
        error->code = code;
        vsnprintf(error->text, sizeof error->text, format, args);
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
