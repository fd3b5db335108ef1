/* parallel/formats/json_number.c - see the header. */
#include "parallel/formats/json_number.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

/* The first number of this thread that was refused since the last check. */
static _Thread_local struct refused {
    char key[64]; /* "": none */
    double value;
} refused;

json_t *wf_json_number(const char *key, double value)
{
    if (isfinite(value))
        return json_real(value);
    if (!*refused.key) {
        snprintf(refused.key, sizeof refused.key, "%s", key);
        refused.value = value;
    }
    return NULL;
}

wf_status wf_json_check(const json_t *json, const char *what, wf_error *error)
{
    struct refused first = refused;

    refused.key[0] = 0;
    if (*first.key)
        return wf_error_set(error, WF_ENONFINITE, "%s: %s is %s, which JSON cannot hold", what,
                            first.key,
                            isnan(first.value) ? "NaN"
                            : first.value > 0  ? "inf"
                                               : "-inf");
    return json ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for %s as JSON", what);
}

wf_status wf_json_write(const json_t *json, FILE *out, size_t flags, const char *what,
                        wf_error *error)
{
    if (wf_json_check(json, what, error) != WF_OK)
        return error->code;
    errno = 0;
    if (json_dumpf(json, out, flags) == 0 && fputc('\n', out) != EOF)
        return WF_OK;
    return ferror(out)
               ? wf_error_set(error, WF_EIO, "cannot write %s: %s", what, strerror(errno))
               : wf_error_set(error, WF_ENOMEM, "no memory for %s as JSON", what);
}

wf_status wf_json_line(json_t *json, FILE *out, int digits, const char *what, wf_error *error)
{
    wf_json_write(json, out, (size_t)JSON_REAL_PRECISION(digits), what, error);
    json_decref(json);
    return error->code;
}
