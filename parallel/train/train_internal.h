/*
 * parallel/train/train_internal.h - a trainer, and the step that it is in: what the files here
 * and parallel/stages share.
 */
#ifndef WF_PARALLEL_TRAIN_TRAIN_INTERNAL_H
#define WF_PARALLEL_TRAIN_TRAIN_INTERNAL_H

#include "parallel/shard/buddy_internal.h"
#include "parallel/shard/gradient_sum_internal.h"
#include "parallel/shard/unshard_internal.h"
#include "parallel/train/added_loss.h"
#include "parallel/train/train.h"

/* The state of a step, which decides which of its parts may come next. */
typedef enum wf_par_at {
    WF_PAR_AT_NONE,        /* none has begun, or its update is done */
    WF_PAR_AT_MICRO_STEPS, /* gradients of micro-steps are added up */
    WF_PAR_AT_REDUCED      /* gradients are summed, and wait for the update */
} wf_par_at;

/* The losses of the micro-steps of one pass over a global batch. */
typedef struct wf_par_losses {
    wf_tensor **sum;  /* [micros] of each, retained; partial over the data-parallel axes */
    wf_par_sum total; /* over micro-steps, while it is taken */
    int64_t put;      /* number of losses */
    float weight;     /* each summand's in the mean: that of the first loss that was put */
    float mean; /* over the global batch, in the last step that was reduced: of added losses */
} wf_par_losses;

/* The losses that modules add to a step's own (added_loss.h): an entry for each call in a
   micro-step, in the order of the calls. */
typedef struct wf_par_added {
    char name[WF_NN_LOSS_NAME], path[WF_NN_PATH];
    wf_par_losses losses;
} wf_par_added;

typedef struct wf_par_step_state {
    wf_par_at at;
    int64_t number;  /* 1, 2, .. */
    int64_t micro;   /* micro-steps that are done */
    int64_t counted; /* elements that its data count (wf_par_data.counted); less than 0: all */
    bool running;    /* one has begun, and its backward pass not ended */
    wf_par_batch batch; /* its own */
    wf_tape *tape;
    wf_dtype storage; /* the context's, outside of it */
    wf_tensor **grad; /* [count] retained, where reduced; NULL: the parameter has none */
    float grad_scale; /* by which the update multiplies gradients: clipping */
    bool of_graph;    /* gradients and losses are what a graph leaves, and summed */
    bool ahead;       /* the device judges it */
    /* this rank could not read its data, and makes the step with others all the same, so that
       it is held on all of them */
    bool unread;
    /* results of ops are inspected, so they run one by one and not as a graph */
    bool op_by_op;
    struct {
        const char *name; /* the action of a schedule that runs; NULL: none */
        int stage;
        /* its position among those of its micro-batch on all ranks: forward goes up the stages,
           backward comes down, gradients of weights are last */
        int64_t order;
    } action;
} wf_par_step_state;

/* The facts of a step that ranks compare (step_alike_internal.h). */
typedef struct wf_par_alike {
    uint64_t of_world, of_batch; /* this rank's factors */
    uint64_t *batch;             /* [micros] hashes of what was read */
    uint64_t evaluated;          /* the same of evaluations since they were compared */
    float rate, clip;            /* this step's; below 0: not known before the update */
    bool done;                   /* it was compared in this step */
} wf_par_alike;

/* The update that was made last. */
typedef struct wf_par_committed {
    int64_t step; /* 0: none yet; or where it continued from */
    float lr, scale;
    bool skip;       /* the step was skipped, and has no update */
    int64_t skipped; /* steps that were, until then */
    int64_t fresh;   /* the step after which the optimizer's state was new: 0, or a reset */
    /* the next one has begun: what is updated and what is not is unknown */
    bool under_way;
} wf_par_committed;

typedef struct wf_par_engine wf_par_engine;

enum { WF_PAR_LAUNCHED = 2 }; /* steps, at most */

/* A step that was launched and is not finished. */
typedef struct wf_par_launched {
    int64_t step;
    wf_par_data data; /* its own copy, for a step that is repeated */
    bool has_data;
    bool judged; /* result is its own; else the device judges it */
    int slot;
    uint64_t evaluated; /* hash of evaluations before it (wf_par_alike) */
    wf_par_step result;
    wf_par_committed before; /* the update before it */
} wf_par_launched;

struct wf_par_trainer {
    wf_par *par;
    wf_nn_module *model;
    wf_par_train_options options;
    int fields; /* number of fields of a batch */
    int64_t count;
    int64_t batch, micros; /* the sequences of the step, and its micro-steps */
    int64_t ranks;     /* data-parallel ranks whose gradients each micro-step sums; 1: none */
    int64_t sequences; /* a step's, of all such ranks */
    /* the same, where each is a term of the step's sums of its own, since a micro-step's are no
       node of the tree, or fewer than ranks; else 0 */
    int64_t per_sequence;
    wf_nn_parameter **parameter;
    int64_t held; /* parameters whose tensors are retained, so that they stay real */
    wf_nn_optimizer *optimizer;
    wf_par_gradients *gradients;
    wf_par_units *units;
    wf_par_buddies *buddies; /* NULL: there is no redundancy */
    bool mirrored;           /* buddies have what their originals have */
    wf_tensor **averaged;    /* [count] NULL but while average and weights are exchanged */
    wf_par_losses losses;
    wf_par_added **added; /* [added_count] */
    int64_t added_count;
    bool added_are_known;        /* from a plan of the whole model: no other may come */
    wf_par_step_loss *step_loss; /* [step_losses] by name, of the last step that was reduced */
    int step_losses;
    wf_par_step_state step;
    wf_par_committed committed;
    wf_par_launched launched[WF_PAR_LAUNCHED]; /* the oldest first */
    int launches;
    bool launching; /* a part of a step is called for one of them */
    wf_par_alike alike;
    const wf_par_engine *engine; /* runs the parts of a step (engine_internal.h) */
    void *own;                   /* the engine's own state; NULL: none */
};

/* Checks that the state is that of a step: the context has no error, and no update has failed
   before its end. WF_EINVAL in the context */
wf_status wf_par_trainer_check(const wf_par_trainer *trainer);

/* Waits for steps that were launched, and forgets them. */
void wf_par_launched_drop(wf_par_trainer *trainer);

/* The trainer has been given the state after `steps` steps. skipped: of those that the
   optimizer has made, which was new after step `fresh` */
void wf_par_trainer_restored(wf_par_trainer *trainer, int64_t steps, int64_t skipped,
                             int64_t fresh);

/* Puts the weights back where they are exchanged with the average; also after an error. */
void wf_par_average_end(wf_par_trainer *trainer);

/* Fails where it still is. */
wf_status wf_par_average_ended(const wf_par_trainer *trainer);

/* Divides a global batch over ranks and micro-steps, for the next step. Errors: WF_EINVAL */
wf_status wf_par_divide_batch(wf_par_trainer *trainer, int64_t batch);

/* Returns the global batch of a step, in a plan as well; checks the growth of batches. Errors:
   WF_EINVAL, WF_EUNSUPPORTED */
int64_t wf_par_batch_at(const wf_par_trainer *trainer, int64_t step);
wf_status wf_par_rampup_check(const wf_par_trainer *trainer);

/* Ends a step: the next one may begin. */
wf_status wf_par_step_end(wf_par_trainer *trainer);

/* Returns true where the options say that a step is skipped, and says why. */
bool wf_par_skips(const wf_par_trainer *trainer, float loss, double norm, char *why,
                  size_t size);

/* Returns true where loss and norm are finite, or nothing of the batch counts. */
bool wf_par_is_finite(const wf_par_trainer *trainer, float loss, double norm);

#endif
