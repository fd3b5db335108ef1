/*
 * parallel/checkpoint/index_internal.h - the index of a checkpoint: index.json, written last,
 * which says what the data files hold. Its size does not depend on the number of ranks. Not
 * installed.
 *
 *     {"format": "weft-checkpoint-2", "checksum": "<XXH3 of this text with 16 zeros here>",
 *      "kind": "sharded", "step": 20, "sequences": 640, "digest": "<16 digits>",
 *      "files": 8, "bytes": 123456, "files_checksum": "<16 digits>", "strategy": "full_shard",
 *      "mesh": [{"name": "shard", "size": 4, "fine": true}, {"name": "tp", "size": 2, ..}],
 *      "options": {"lr": "0.001", ..},
 *      "tensors": [{"path": "block.0.attn.qkv.q.weight", "kinds": ["", "m", "v"],
 *                   "shape": [64, 64], "grain": [16, 1], "layout": [["tp", "shard"], []]}, ..]}
 *
 * "skipped": 3 after "step" where steps were skipped, "fresh": 100 where the optimizer's state
 * was new after step 100 (wf_par_checkpoint_load_fresh). On a mesh with an axis "pp" a tensor
 * has "pp": 3, the coordinate on it of the ranks that wrote it.
 *
 * Which rank holds which part follows from mesh, shape, grain and layout (parts.h); tensor i of
 * the list is number i for wf_saved_writer. Kinds: "" is the parameter, "m" and "v" are
 * moments, "s" a third state of an optimizer, "ema" the moving average of the weights
 * (wf_nn_kept_suffix); in the data files these are tensors PATH, PATH.m and so on, all F32. A
 * state of a shape of its own is a further entry of the same path after that of the parameter,
 * in the order of kinds: {"path": .., "kinds": ["v"], "shape": [64], ..}.
 */
#ifndef WF_PARALLEL_CHECKPOINT_INDEX_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_INDEX_INTERNAL_H

#include "core/files/folder_internal.h"
#include "nn/optim/optimizer.h"
#include "parallel/checkpoint/parts_internal.h"

/* In format 1 the axes of a dim cut it one after the other (wf_saved_mesh.nested). */
#define WF_INDEX_FORMAT        "weft-checkpoint-2"
#define WF_INDEX_FORMAT_NESTED "weft-checkpoint-1"

enum {
    WF_INDEX_BYTES = 16 << 20, /* most bytes of an index: some 60,000 tensors */
    WF_INDEX_NAME = 512,       /* bytes of a path, a key or a name, with its end */
    WF_INDEX_OPTION = 65536    /* bytes of an option's value, with its end */
};

typedef enum wf_index_kind { WF_INDEX_SHARDED, WF_INDEX_FULL, WF_INDEX_LOCAL } wf_index_kind;

/* The saved state of a parameter, a bit each: bit 1 + k of state k. */
enum { WF_INDEX_VALUE = 1, WF_INDEX_M = 2, WF_INDEX_V = 4 };

typedef struct wf_index_tensor {
    char *path;
    unsigned kinds; /* WF_INDEX_VALUE and moments */
    int ndim;
    wf_dim
        dim[WF_MAX_DIMS]; /* sizes and grains; chunks are not saved (0): a model knows them */
    wf_saved_layout layout;
} wf_index_tensor;

typedef struct wf_index {
    wf_index_kind kind;
    int64_t step;    /* the last one that is done */
    int64_t skipped; /* steps among them without an update */
    int64_t fresh;   /* the step after which the optimizer's state was new */
    /* number of sequences of the data that are done: the position to continue from */
    int64_t sequences;
    uint64_t digest;
    int64_t files, bytes;    /* data files, and what they weigh together */
    uint64_t files_checksum; /* sum of wf_checksum_file over them */
    char strategy[64];
    wf_saved_mesh mesh;
    int64_t option_count;
    char **option; /* key, value, key, value, .. */
    int64_t count;
    /* ascending by path (strcmp), then by the lowest kind, also in the text */
    wf_index_tensor *tensor;
} wf_index;

/* "sharded", "full", "local". */
const char *wf_index_kind_name(wf_index_kind kind);

/* The name of a tensor in the data files: PATH, or PATH.m, PATH.v, .. by a bit of kinds. */
enum { WF_INDEX_KINDS = 1 + WF_NN_KEPT, WF_INDEX_FULL_NAME = WF_INDEX_NAME + 8 };
char *wf_index_name(const char *path, int bit, char name[WF_INDEX_FULL_NAME]);

/* Returns where the 16 digits of a text's own checksum begin, 0: nowhere; the checksum is of
   the text with zeros instead of them. */
size_t wf_index_checksum_offset(const char *text, size_t bytes);
wf_status wf_index_checksum(const char *text, size_t bytes, size_t offset, uint64_t *checksum);

/* The text of an index, its own checksum in it. WF_ENOMEM, WF_EINVAL. Owner: caller, free. */
wf_status wf_index_format(const wf_index *index, char **text, size_t *bytes, wf_error *error);

/*
 * Parse a text. Nothing is believed: WF_EDATA names what is wrong, the checksum first. What
 * comes out is consistent: cuts do not overflow, every element of a tensor lies in exactly one
 * part. Owner: caller, wf_index_close (allowed on a failed one, and on zeros).
 */
wf_status wf_index_parse(wf_index *index, const char *name, const char *text, size_t bytes,
                         wf_error *error);
/* The same from a file of a folder. */
wf_status wf_index_read(wf_index *index, const wf_folder *folder, const char *name,
                        wf_error *error);
void wf_index_close(wf_index *index);

/* Returns the entry of a path that has the lowest of these kinds, or NULL; wf_index_find: that
   of the parameter. wf_index_parameters counts those. */
const wf_index_tensor *wf_index_find_kinds(const wf_index *index, const char *path,
                                           unsigned kinds);
const wf_index_tensor *wf_index_find(const wf_index *index, const char *path);
int64_t wf_index_parameters(const wf_index *index);

/* Returns the value of an option, or NULL. */
const char *wf_index_option(const wf_index *index, const char *key);

#endif
