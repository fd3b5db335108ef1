/*
 * parallel/formats/json_internal.h - JSON from strangers: bounded before it is parsed, and
 * looked at through calls that name the file and the key of what is wrong. Not installed.
 *
 * A text is refused where it is larger, nests deeper or is denser than its kind may be; so what
 * jansson allocates for it, and the time that it takes, is bounded too: some 30 times the text,
 * and 200 MB, at most.
 */
#ifndef WF_PARALLEL_FORMATS_JSON_INTERNAL_H
#define WF_PARALLEL_FORMATS_JSON_INTERNAL_H

#include "core/files/files_internal.h"
#include <jansson.h>

/*
 * Parses an object that nests at most `depth` deep, itself counted. Refused as WF_EDATA, with
 * `name` of the file in front: no UTF-8, a key twice, text after the object, numbers beyond 64
 * bits, more than one value in 3 bytes, or 2^21 of them. Owner: caller, json_decref.
 */
wf_status wf_json_parse(json_t **object, const char *name, const char *text, size_t bytes,
                        int depth, wf_error *error);

/*
 * The value of a key. WF_EDATA where it is missing, of another type, or out of its bounds;
 * where `standard` is not NULL, a key that is missing or null has that value instead.
 */
typedef struct wf_json_source {
    const char *name; /* the file's */
    const json_t *object;
    wf_error *error;
} wf_json_source;

wf_status wf_json_int(const wf_json_source *from, const char *key, int64_t least, int64_t most,
                      const int64_t *standard, int64_t *value);
wf_status wf_json_real(const wf_json_source *from, const char *key, double least, double most,
                       const double *standard, double *value);
wf_status wf_json_bool(const wf_json_source *from, const char *key, const bool *standard,
                       bool *value);
/* Without control characters, at most `size` - 1 bytes. Owner: the object. */
wf_status wf_json_text(const wf_json_source *from, const char *key, size_t size,
                       const char *standard, const char **value);
/* A text of 16 hexadecimal digits (checksum.h). */
wf_status wf_json_checksum(const wf_json_source *from, const char *key, uint64_t *value);
/* An array of `least` to `most` values, or an object. Owner: the object. */
wf_status wf_json_array(const wf_json_source *from, const char *key, size_t least, size_t most,
                        const json_t **value);
wf_status wf_json_object(const wf_json_source *from, const char *key, const json_t **value);

/* A text is printable where it has no control characters: names go into messages and paths. */
bool wf_json_printable(const char *text);

#endif
