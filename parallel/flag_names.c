/* parallel/flag_names.c - fields of options in errors as flags. */
#include "parallel/flag_names.h"
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

/* A library names the field, ".seq_len", since it has no flags; ".data/x" is a path. */
char *wf_flags_format(const char *text, wf_flag_of *flag_of, const void *arg, char *to,
                      size_t size)
{
    size_t used = 0;

    for (const char *c = text; *c && used + 1 < size;) {
        const bool begins = *c == '.' && (c == text || strchr(" (\"", c[-1]));
        const size_t length =
            begins ? strspn(c + 1, "abcdefghijklmnopqrstuvwxyz_0123456789") : 0;
        const size_t flag = length && c[length + 1] != '/'
                                ? flag_of(arg, c + 1, length, to + used, size - used)
                                : 0;

        used += flag;
        c += flag ? length + 1 : 0;
        if (!flag)
            to[used++] = *c++;
    }
    to[used < size ? used : size - 1] = 0;
    return to;
}

/* The flags of this process's program; set before ranks are started. */
static wf_flag_of *reported_by;
static const void *reported_arg;

void wf_flags_report(wf_flag_of *flag_of, const void *arg)
{
    reported_by = flag_of;
    reported_arg = arg;
}

const char *wf_flags_reported(const char *text, char *to, size_t size)
{
    return reported_by ? wf_flags_format(text, reported_by, reported_arg, to, size) : text;
}

void wf_flags_print(FILE *out, const char *format, ...)
{
    char text[4096], spelled[4608];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fputs(wf_flags_reported(text, spelled, sizeof spelled), out);
}
