/* parallel/generate/requests.h - requests of multiple-choice evaluation tasks, read from lines
   of JSON. */
#ifndef WF_PARALLEL_GENERATE_REQUESTS_H
#define WF_PARALLEL_GENERATE_REQUESTS_H

#include "nn/text/tokenizer/tokenizer.h"

WF_BEGIN_DECLS

/*
 * A line {"request": {"context": TEXT, "continuation": TEXT}, "doc_id": N, "label": N}. Lines
 * of one doc_id follow each other: they are the choices of a question, and label, the same on
 * all, is the number of the right one, from 0. Without a label, or with null, the right one is
 * not known.
 */
typedef struct wf_gen_request {
    int64_t doc, label;            /* label -1: unknown */
    int64_t begin, context, count; /* its tokens in `ids`: of the context, and of all */
    int64_t bytes;                 /* bytes of the continuation as written */
    int64_t line;                  /* its line in the file */
} wf_gen_request;

typedef struct wf_gen_requests {
    wf_gen_request *list;
    int64_t count, room;
    wf_tok_ids ids;
} wf_gen_requests;

/**
 * wf_gen_requests_read - reads and encodes all requests
 *
 * Context and continuation are encoded together, and blanks at the end of the context begin the
 * continuation, as in lm-evaluation-harness (_encode_pair): the context's own ids, then those
 * of both after the same number of ids. A text begins with the first token where the
 * tokenizer's texts do; an empty context is the token that begins texts or, of tokenizers
 * without one, the token that ends them.
 *
 * @param positions  of the model: longer requests keep their last positions + 1 tokens
 * Owner:   the caller, wf_gen_requests_free in any case
 * Errors:  WF_EIO; WF_EDATA (file, line, and key; lines of a question that are not adjacent,
 *          labels that differ, and one that none of the choices has); WF_EINVAL (no token to
 *          foretell); WF_ENOMEM
 */
WF_API wf_status wf_gen_requests_read(const char *path, const wf_tok *tokenizer,
                                      int64_t positions, wf_gen_requests *requests,
                                      wf_error *error);

/** wf_gen_requests_next - returns the first request after those of the question that begins at
 * request `begin` */
WF_API int64_t wf_gen_requests_next(const wf_gen_requests *requests, int64_t begin);

/** wf_gen_requests_free - frees a list; a zeroed one is allowed. */
WF_API void wf_gen_requests_free(wf_gen_requests *requests);

WF_END_DECLS

#endif
