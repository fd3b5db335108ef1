/*
 * parallel/check/check.h - an oracle for trainers that are not Weft's: their gradients, losses
 * and updated weights beside those that Weft computes on one rank in fp32 from the same weights
 * and batch. Each parameter is compared by its Hugging Face name, and differences that a known
 * fault explains are named.
 */
#ifndef WF_PARALLEL_CHECK_CHECK_H
#define WF_PARALLEL_CHECK_CHECK_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_check_decay - the parameters that weight decay is for */
typedef enum wf_check_decay {
    WF_CHECK_DECAY_MATRICES, /* all but vectors: no bias, no gain of a norm */
    WF_CHECK_DECAY_ALL,
    WF_CHECK_DECAY_NONE
} wf_check_decay;

typedef struct wf_check_options {
    const char
        *model; /* a folder of Hugging Face, or a GGUF file: the weights before the step */
    const char *batch; /* a safetensors file: input_ids, and labels, routed_experts, .. */
    const char
        *gradients; /* a safetensors file, or a folder of such: what their trainer computed */
    const char *updated;   /* NULL, or the same of weights after the step */
    const char *write;     /* NULL, or a file that gets Weft's gradients and losses */
    const char *optimizer; /* "adamw" or "sgd", for updated; NULL: adamw */
    double lr, beta1, beta2, eps, weight_decay;
    wf_check_decay decay;
    /* bound of the gradients' norm that they have been clipped to; 0: not clipped */
    double clip;
    /* the numbers of their ranks and micro-batches, by which factors are named; 0: not known */
    int64_t tp, dp, micro_batches;
    double tolerance; /* relative error of a parameter that counts as equal */
    bool partial;     /* parameters that their files do not have are left out */
    int threads;      /* 0: one */
} wf_check_options;

/** wf_check_row - a parameter: their gradient x beside Weft's g */
typedef struct wf_check_row {
    char *name;
    int ndim;
    int64_t shape[4];
    bool missing; /* their files do not have it (wf_check_options.partial) */
    bool equal;
    bool explained; /* differs as a finding about the whole batch says */
    double error;   /* |x - g| / |g|; a g that is next to nothing counts by the others' size */
    double cosine;  /* cosine of the angle between x and g */
    double ratio;   /* |x| / |g| */
    double update;  /* the error of its update; -1: not compared */
    bool update_equal;
    char text[160]; /* the fit of one that differs */
} wf_check_row;

/** wf_check_finding - parameters that differ in one way, and its likely cause */
typedef struct wf_check_finding {
    char id[32];     /* a word for scripts: "factor", "rows", "permuted", "clip", .. */
    char what[400];  /* the difference, with numbers */
    char cause[400]; /* a fault that is known to make it, or "" */
    char where[240]; /* their parameters' names */
    int64_t count;   /* the number of them */
} wf_check_finding;

typedef struct wf_check_report {
    bool equal;
    int64_t sequences, tokens, counted; /* the batch's, and the tokens that are predicted */
    double loss;                        /* Weft's: the mean over `counted` */
    bool has_loss, loss_equal;          /* their files have "loss" */
    double their_loss;
    bool has_token_losses;      /* their files have "token_losses" */
    int64_t token_losses_wrong; /* those that differ, and the first of them */
    int64_t wrong_sequence, wrong_token;
    double wrong_theirs, wrong_ours;
    /* choices of experts that the batch has, those that are not of greatest scores, and of
       these those that rounding does not explain */
    int64_t choices, choices_differ, choices_wrong;
    double choice_gap;       /* the greatest, in standard deviations of a token's scores */
    double norm, their_norm; /* norms of all gradients */
    double tolerance;
    bool updates; /* updated weights were compared */
    int64_t rows;
    wf_check_row *row;
    int64_t findings;
    wf_check_finding *finding;
} wf_check_report;

/**
 * wf_check_run - computes losses and gradients of a model and a batch, compares a trainer's
 * with them, and looks for the causes of differences
 *
 * The update is that of a first step, whose moments are zero: it is made of their gradients, so
 * that a fault of those is not counted twice.
 *
 * @param report  filled in; what differs is no error
 * Collective:    no; it launches a rank of its own
 * Owner:         the caller, wf_check_free, also after an error
 * Errors:        WF_EIO, WF_EDATA (a damaged file; a name or a shape that is not the model's, a
 *                parameter that is missing: by name), WF_EINVAL (options, a batch that the
 *                model cannot take), WF_EUNSUPPORTED, WF_ENOMEM
 */
WF_API wf_status wf_check_run(const wf_check_options *options, wf_check_report *report,
                              wf_error *error);

/** wf_check_free - frees what a report has */
WF_API void wf_check_free(wf_check_report *report);

/** wf_check_print - writes losses, findings and a table of parameters; `all`: those that are
 * equal, too */
WF_API void wf_check_print(FILE *out, const wf_check_report *report, bool all);

/** wf_check_json - writes a report as an object of JSON, in a line. Errors: WF_EIO,
 * WF_ENOMEM */
WF_API wf_status wf_check_json(FILE *out, const wf_check_report *report, wf_error *error);

WF_END_DECLS

#endif
