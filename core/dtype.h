/* core/dtype.h - what storage types are for: the columns of core/dtype.def as functions. */
#ifndef WF_CORE_DTYPE_H
#define WF_CORE_DTYPE_H

#include "core/shape.h"

WF_BEGIN_DECLS

/** wf_dtype_kind - the numbers that a type may store. */
typedef enum wf_dtype_kind {
    WF_DTYPE_WIDE, /* all: what devices compute in */
    /* activations, parameters and gradients, rounded to fewer bits; computed with as they are,
       or widened */
    WF_DTYPE_NARROW,
    WF_DTYPE_BLOCKS, /* matrices that are not trained, in blocks with scales */
    /* without a flag: token ids, a reference's numbers, an optimizer's state */
    WF_DTYPE_OTHER
} wf_dtype_kind;

/** wf_dtype_kind_of - returns the numbers that a type may store. */
WF_API wf_dtype_kind wf_dtype_kind_of(wf_dtype dtype);

/** wf_dtype_word - returns a type's name in flags and machine files, "fp32" and so on; "": it
 * has none. */
WF_API const char *wf_dtype_word(wf_dtype dtype);

/** wf_dtype_find - returns the type of a word; WF_DTYPES: none has it. */
WF_API wf_dtype wf_dtype_find(const char *word);

/** wf_dtype_is_narrow, wf_dtype_is_stored - return whether results of ops may be stored so:
 * rounded; or at all. */
static inline bool wf_dtype_is_narrow(wf_dtype dtype)
{
    return wf_dtype_kind_of(dtype) == WF_DTYPE_NARROW;
}

static inline bool wf_dtype_is_stored(wf_dtype dtype)
{
    return wf_dtype_kind_of(dtype) <= WF_DTYPE_NARROW;
}

WF_END_DECLS

#endif
