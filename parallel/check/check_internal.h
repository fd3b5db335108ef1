/*
 * parallel/check/check_internal.h - the parts of a check: batch, reference, files of theirs,
 * fits, causes. Not installed.
 */
#ifndef WF_PARALLEL_CHECK_CHECK_INTERNAL_H
#define WF_PARALLEL_CHECK_CHECK_INTERNAL_H

#include "core/tensor.h"
#include "parallel/check/check.h"
#include "parallel/formats/safetensors_internal.h"

/* A batch as they have it. */
typedef struct wf_check_batch {
    int64_t sequences, tokens;
    int32_t *ids;    /* [sequences, tokens] */
    int32_t *labels; /* each token's own, -100: not predicted; the token before predicts it */
    bool has_labels, has_documents;
    int32_t *first, *position; /* the document's first token, and the index in it; or NULL */
    /* [sequences, tokens, layers, chosen] experts of their routers, ascending; or NULL */
    int32_t *choice;
    int64_t layers, chosen;
} wf_check_batch;

/* Sizes of a model that a batch has to fit. */
typedef struct wf_check_sizes {
    int64_t vocabulary, positions;
    int64_t mixtures, experts, chosen; /* layers of experts, 0: none; a token's experts */
} wf_check_sizes;

/* A way to read a batch that is not the right one, but that a trainer may have taken. */
typedef enum wf_check_reading {
    WF_CHECK_RIGHT,
    WF_CHECK_UNSHIFTED,     /* a token predicts itself */
    WF_CHECK_SHIFTED_TWICE, /* a token predicts the one after the next */
    WF_CHECK_MASK_IGNORED,  /* labels of -100 count as the token that stands there */
    WF_CHECK_ONE_DOCUMENT,  /* tokens see those of the documents before theirs */
    WF_CHECK_READINGS
} wf_check_reading;

wf_status wf_check_batch_read(const char *path, const wf_check_sizes *sizes,
                              wf_check_batch *batch, wf_error *error);
void wf_check_batch_free(wf_check_batch *batch);
/* Fill [tokens] targets of a sequence, -1 where none counts; returns how many count. */
int64_t wf_check_targets(const wf_check_batch *batch, wf_check_reading reading,
                         int64_t sequence, int32_t *target);
/* Returns true where a reading is another one for this batch. */
bool wf_check_reading_differs(const wf_check_batch *batch, wf_check_reading reading);

/* The safetensors of a file or a folder. */
typedef struct wf_check_file {
    wf_file file;
    wf_safetensors header;
    bool *used;
} wf_check_file;

typedef struct wf_check_files {
    const char *path;
    int64_t count;
    wf_check_file *file;
} wf_check_files;

wf_status wf_check_files_open(wf_check_files *files, const char *path, wf_error *error);
void wf_check_files_close(wf_check_files *files);
/* Returns the entry of a name, marks it as used; NULL: there is none. */
const wf_safetensors_entry *wf_check_files_find(wf_check_files *files, const char *name,
                                                int64_t *file);
/* Read a whole tensor as floats or as integers. Owner: caller, free. WF_EDATA for another
   type. */
wf_status wf_check_files_floats(const wf_check_files *files, const wf_safetensors_entry *entry,
                                int64_t file, float **numbers, wf_error *error);
wf_status wf_check_files_integers(const wf_check_files *files,
                                  const wf_safetensors_entry *entry, int64_t file,
                                  int64_t **numbers, wf_error *error);
/* Returns the name of the first tensor that was never read, or NULL. */
const char *wf_check_files_unused(const wf_check_files *files);
int64_t wf_check_entry_count(const wf_safetensors_entry *entry);
/* "[2, 3]" */
const char *wf_check_shape(int ndim, const int64_t *shape, char text[96]);

/* Kinds of parameters, for causes. */
enum {
    WF_CHECK_NORM = 1,
    WF_CHECK_BIAS = 2,
    WF_CHECK_ROW_BIAS =
        4, /* a bias after a linear that tensor parallelism splits by its inputs */
    WF_CHECK_COLUMN = 8, /* a weight or bias whose outputs it splits */
    WF_CHECK_ROW = 16,   /* a weight whose inputs it splits */
    WF_CHECK_VOCABULARY = 32,
    WF_CHECK_POSITION = 64,
    WF_CHECK_KV = 128,
    WF_CHECK_MIXED = 256, /* several linears in one tensor */
    WF_CHECK_EXPERT = 512,
    WF_CHECK_ROUTER = 1024
};

/* Relations of a gradient to the right one. */
typedef enum wf_check_kind {
    WF_CHECK_EQUAL,
    WF_CHECK_MISSING,
    WF_CHECK_NOT_FINITE,
    WF_CHECK_ZERO,
    WF_CHECK_FACTOR,
    WF_CHECK_ROWS, /* runs of rows, or of columns, with a factor each */
    WF_CHECK_COLUMNS,
    WF_CHECK_TRANSPOSED,
    WF_CHECK_ROWS_MOVED, /* rows, or columns, in another order */
    WF_CHECK_COLUMNS_MOVED,
    WF_CHECK_OTHER,     /* the gradient of another parameter */
    WF_CHECK_DECAYED,   /* plus a factor of the weight */
    WF_CHECK_TIED,      /* only one of the two uses of a table */
    WF_CHECK_EXPLAINED, /* by what is wrong with the whole batch */
    WF_CHECK_ROUNDED,   /* nearly right: the precision is another one */
    WF_CHECK_UNKNOWN
} wf_check_kind;

typedef struct wf_check_fit {
    wf_check_kind kind;
    double factor, second; /* second: of the weight, or of a tied table's head */
    int64_t parts;         /* runs of equal factors */
    int64_t other;         /* number of the other parameter */
    char text[160];
} wf_check_fit;

/* A tensor of their files, and what belongs to it. */
typedef struct wf_check_tensor {
    char name[256];
    int ndim;
    int64_t shape[WF_MAX_DIMS], count, rows, columns;
    unsigned roles;
    int64_t head_dim; /* features of a head, for weights and biases of heads; else 0 */
    bool transposed;  /* [in, out] */
    float *reference, *weight, *theirs, *updated;
    int64_t vector;  /* a vector's offset in a row of by_sequence */
    float *head;     /* NULL, or a tied table's gradient by way of the head */
    double rounding; /* a relative error that the type of `updated` makes */
    double floor;    /* an error of its norm below which nothing is reported */
    double error, cosine, ratio, update;
    wf_check_fit fit, update_fit;
} wf_check_tensor;

/* Their choices of experts beside Weft's of the same inputs. */
typedef struct wf_check_choices {
    int64_t count, differ;
    double gap;    /* the greatest, in standard deviations of a token's scores */
    int64_t wrong; /* those that rounding does not explain: their gaps are above `bound` */
    double bound;
    double wrong_gap; /* the greatest in the first mixture that has any, and where it is */
    int64_t sequence, token, layer;
} wf_check_choices;

/* Losses and gradients of Weft, on one rank. */
typedef struct wf_check_reference {
    int64_t count;
    wf_check_tensor *tensor; /* in the order of forward */
    double loss;
    int64_t counted;
    float *token_loss;         /* [sequences, tokens], 0 where none counts */
    int64_t *sequence_counted; /* [sequences] */
    int64_t vectors;           /* elements of all vectors */
    float *by_sequence;        /* [sequences, vectors]: their gradients by a sequence each */
    bool tied;
    wf_check_choices choices; /* those of the last computation */
} wf_check_reference;

typedef struct wf_check_source wf_check_source;

/* Open a rank with the model in fp32; its parameters and their weights are put into
   *reference. */
wf_status wf_check_with_model(const wf_check_options *options,
                              wf_status (*work)(wf_check_source *source, void *arg), void *arg,
                              wf_error *error);
wf_status wf_check_reference_open(wf_check_source *source, wf_check_reference *reference,
                                  wf_error *error);
wf_check_sizes wf_check_source_sizes(const wf_check_source *source);
/*
 * Compute losses and gradients of a batch as it is read so; each sequence counts `weight`
 * times, NULL: once. by_sequence is filled where it is not NULL.
 */
wf_status wf_check_reference_compute(wf_check_source *source, wf_check_reference *reference,
                                     const wf_check_batch *batch, wf_check_reading reading,
                                     const double *weight, wf_error *error);
void wf_check_reference_free(wf_check_reference *reference);
wf_status wf_check_reference_write(const wf_check_reference *reference,
                                   const wf_check_batch *batch, const char *path,
                                   wf_error *error);

/* Numbers of two vectors. */
typedef struct wf_check_sums {
    double xx, gg, xg;
} wf_check_sums;
wf_check_sums wf_check_sum(const float *x, const float *g, int64_t n);
/* |x - s g|, by the sums' cancellation-free way. */
double wf_check_distance(const float *x, const float *g, double s, int64_t n);
double wf_check_norm(const float *x, int64_t n);

/* Error, cosine and ratio of a tensor, and whether it is equal (its fit). */
void wf_check_compare(wf_check_tensor *t, double tolerance);
/* The fit of a tensor that differs; `all` for gradients of others. */
void wf_check_find_fit(wf_check_tensor *t, const wf_check_reference *all, double tolerance);
/* Rows, columns and orders of a matrix, for wf_check_find_fit. */
bool wf_check_fit_lines(wf_check_tensor *t, double tolerance);
bool wf_check_fit_order(wf_check_tensor *t, double tolerance);

/* The weights that sequences must have had: [sequences]; false: no weights explain their
   vectors. */
bool wf_check_fit_sequences(const wf_check_reference *r, const wf_check_batch *batch,
                            double tolerance, double *weight);
void wf_check_name_sequences(const wf_check_reference *r, const wf_check_batch *batch,
                             const double *weight, double tolerance, wf_check_finding *finding);

/* The numbers by which factors are named. */
typedef struct wf_check_numbers {
    int64_t tp, dp, micro_batches, counted, all, sequences, tokens;
    double tolerance, clip, norm; /* norm: of Weft's gradients, before they are clipped */
} wf_check_numbers;
/* "4 = dp", "1 / 2", "the tokens that count": an exact factor; "" where it is no known one. */
const char *wf_check_factor_name(double factor, const wf_check_numbers *n, char text[96]);

/* The findings of fits of gradients, in *report. WF_ENOMEM. */
wf_status wf_check_explain(wf_check_report *report, const wf_check_reference *r,
                           const wf_check_numbers *n, wf_error *error);
/* Explains losses: theirs of each token or NULL, with `ours`; n distinguishes factors. */
wf_status wf_check_explain_loss(wf_check_report *report, const wf_check_reference *r,
                                const wf_check_batch *batch, const float *theirs, int64_t wide,
                                const wf_check_numbers *n, wf_error *error);
/* Explains choices of experts, after the losses. */
wf_status wf_check_explain_choices(wf_check_report *report, const wf_check_reference *r,
                                   wf_error *error);
/* The updates of first steps, fitted and explained. WF_EINVAL (optimizer), WF_ENOMEM. */
wf_status wf_check_updates(wf_check_report *report, wf_check_reference *r,
                           const wf_check_options *o, wf_error *error);
/* A new finding. Owner: report; NULL: no memory. */
wf_check_finding *wf_check_add(wf_check_report *report, const char *id, wf_error *error);
/* Write "model.layers.*.mlp.up_proj.weight (4), .." of the tensors that `is` accepts; returns
   how many. */
typedef bool wf_check_is(const wf_check_tensor *t, const void *arg);
int64_t wf_check_name_set(const wf_check_reference *r, wf_check_is *is, const void *arg,
                          char *text, size_t size);

#endif
