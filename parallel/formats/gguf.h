/*
 * parallel/formats/gguf.h - the metadata of a GGUF file: keys with a value or an array of them.
 */
#ifndef WF_PARALLEL_FORMATS_GGUF_H
#define WF_PARALLEL_FORMATS_GGUF_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_par_gguf_kind - the type of a value: uint32_t, int32_t, float, bool, wf_par_gguf_text,
 * int64_t, double. Reading a file gives the last four: integers and others of any width are
 * widened to those. */
typedef enum wf_par_gguf_kind {
    WF_PAR_GGUF_U32,
    WF_PAR_GGUF_I32,
    WF_PAR_GGUF_F32,
    WF_PAR_GGUF_BOOL,
    WF_PAR_GGUF_TEXT,
    WF_PAR_GGUF_I64,
    WF_PAR_GGUF_F64
} wf_par_gguf_kind;

typedef struct wf_par_gguf_text {
    const char *text; /* not terminated */
    int64_t bytes;
} wf_par_gguf_text;

/** wf_par_gguf_key - a name like "tokenizer.ggml.model", and its value, or `count` of them. */
typedef struct wf_par_gguf_key {
    const char *key;
    wf_par_gguf_kind kind;
    bool array;
    int64_t count; /* length of an array */
    const void *values;
} wf_par_gguf_key;

typedef struct wf_par_gguf wf_par_gguf;

/** wf_par_gguf_there - returns true where a path is a file that begins as GGUF files do. */
WF_API bool wf_par_gguf_there(const char *path);

/**
 * wf_par_gguf_open - opens a GGUF file: its keys, and the list of its tensors
 *
 * @param path  versions 2 and 3, little-endian
 * Collective:  no
 * Owner:       caller; wf_par_gguf_close (NULL is allowed)
 * Errors:      WF_EIO, WF_EDATA (damaged: with file and key or tensor), WF_EUNSUPPORTED (a
 *              version), WF_ENOMEM; NULL then
 */
WF_API wf_par_gguf *wf_par_gguf_open(const char *path, wf_error *error);
WF_API void wf_par_gguf_close(wf_par_gguf *gguf);

/** wf_par_gguf_count - returns the number of keys; wf_par_gguf_at - one of them by number.
 * Owner: gguf */
WF_API int64_t wf_par_gguf_count(const wf_par_gguf *gguf);
WF_API const wf_par_gguf_key *wf_par_gguf_at(const wf_par_gguf *gguf, int64_t i);

/**
 * wf_par_gguf_find - finds the value of a key, of a kind that reading gives, an array or not
 *
 * Returns: NULL where there is no such key, and where it is of another kind, which is an error
 * Owner:   gguf
 * Errors:  WF_EDATA, with file and key
 */
WF_API const wf_par_gguf_key *wf_par_gguf_find(const wf_par_gguf *gguf, const char *key,
                                               wf_par_gguf_kind kind, bool array,
                                               wf_error *error);

WF_END_DECLS

#endif
