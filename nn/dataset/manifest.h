/*
 * nn/dataset/manifest.h - PREFIX.dataset.json: a manifest of the files that were published
 * together as a dataset.
 *
 *     {"weft_dataset": 1, "id": "5f0c..", "tokens": 12, "documents": 2,
 *      "parts": {".bin": {"bytes": 24, "xxh3": ".."}, ".idx": {..},
 *                ".loss.bin": {..}, ".loss.idx": {..}}}
 *
 * A part is identified by its size and a fingerprint of its content (wf_output_fingerprint), so
 * that a file of another dataset beside it, as tokens that are older than their loss mask, is
 * refused by its name. Files without a manifest, as Megatron writes them, are taken as they
 * are.
 */
#ifndef WF_NN_DATASET_MANIFEST_H
#define WF_NN_DATASET_MANIFEST_H

#include "core/status.h"
#include "core/files/output.h"

WF_BEGIN_DECLS

enum { WF_DATASET_MANIFEST_PARTS = 4 };

#define WF_DATASET_MANIFEST_ENDING ".dataset.json"
#define WF_DATASET_MANIFEST_MASK   ".loss"

typedef struct wf_dataset_manifest_part {
    const char *ending;
    wf_output *output;
} wf_dataset_manifest_part;

/**
 * wf_dataset_manifest_publish - gives the files of a dataset, whose contents are complete, and
 * its manifest their names together
 *
 * PREFIX.idx is removed first and renamed last: without it no reader finds any of them; and the
 * manifest comes before the others, so that every mixture is refused. An older loss mask goes
 * where there is no new one.
 *
 * @param part  [parts], .bin and .idx first; their outputs are freed in any case
 * Errors:      WF_EIO, WF_EINVAL, WF_ENOMEM
 */
WF_API wf_status wf_dataset_manifest_publish(const char *prefix,
                                             const wf_dataset_manifest_part *part, int parts,
                                             int64_t tokens, int64_t documents,
                                             wf_error *error);

/**
 * wf_dataset_manifest_check - checks that the files of a dataset are those that were published
 * together
 *
 * @param bin  PREFIX.bin, the name of its tokens
 * Errors:     WF_EDATA: which file is not, or is not there, and what to do; WF_EIO, WF_ENOMEM
 */
WF_API wf_status wf_dataset_manifest_check(const char *bin, wf_error *error);

WF_END_DECLS

#endif
