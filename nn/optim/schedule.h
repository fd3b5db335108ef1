/* nn/optim/schedule.h - learning rates as a function of the step: rows of schedules.def, or a
   file of points. */
#ifndef WF_NN_OPTIM_SCHEDULE_H
#define WF_NN_OPTIM_SCHEDULE_H

#include "core/context.h"

WF_BEGIN_DECLS

/** wf_nn_schedule_kind - the numbers of schedules.def, and that of points. */
typedef enum wf_nn_schedule_kind {
    WF_NN_COSINE,
    WF_NN_CONSTANT,
    WF_NN_LINEAR,
    WF_NN_WSD,
    WF_NN_INVERSE_SQRT,
    WF_NN_SCHEDULES,
    WF_NN_POINTS = WF_NN_SCHEDULES
} wf_nn_schedule_kind;

typedef struct wf_nn_schedule_point {
    int64_t step;
    double lr;
} wf_nn_schedule_point;

typedef struct wf_nn_schedule {
    double lr, min_lr;
    int64_t warmup, steps;
    wf_nn_schedule_kind kind;
    int64_t decay; /* wsd: the last steps, over which the rate falls; 0: a tenth of steps */
    /* WF_NN_POINTS: rates of steps, ascending, with lines between them; lr, min_lr, warmup and
       steps are not read. Owner: the caller */
    const wf_nn_schedule_point *point;
    int64_t points;
} wf_nn_schedule;

/**
 * wf_nn_schedule_check - checks a schedule of learning rates
 *
 * Errors:  WF_EINVAL in the context: rates that are negative, or not finite as float; negative
 *          counts of steps, more steps of warm-up, or of warm-up and decay, than steps; an
 *          unknown kind; points that do not ascend
 */
WF_API wf_status wf_nn_schedule_check(wf_context *ctx, const wf_nn_schedule *schedule);

/** wf_nn_schedule_at - returns the learning rate of a step (the first is 1): a line from 0 over
 * `warmup` steps, then what the row of its kind says, with t steps after the warm-up of T:
 *
 *     constant      lr
 *     linear        from lr to min_lr at `steps`
 *     cosine        min_lr + (lr - min_lr) (1 + cos(pi t / T)) / 2 (Loshchilov & Hutter 2017)
 *     wsd           lr, then over the last `decay` steps a line to min_lr (warmup, stable,
 *                   decay: Hu et al. 2024; the line of Hägele et al. 2024)
 *     inverse-sqrt  lr sqrt(w / step), w the warm-up or 1 without, not below min_lr (Vaswani et
 *                   al. 2017)
 *
 * After `steps` the rate stays; of wsd, linear and cosine that is min_lr. */
WF_API float wf_nn_schedule_at(const wf_nn_schedule *schedule, int64_t step);

/** wf_nn_schedule_name - returns the word of a kind, "points" of WF_NN_POINTS; NULL:
 * unknown. */
WF_API const char *wf_nn_schedule_name(wf_nn_schedule_kind kind);

/**
 * wf_nn_schedule_read - sets the kind of a schedule by its word, or its points from a file:
 * lines STEP,RATE with ascending steps, blank lines and what follows a # are skipped
 *
 * @param word      constant, linear, cosine, wsd, inverse-sqrt, or a file's name
 * Owner:   the points: the caller, wf_nn_schedule_free
 * Errors:  WF_EIO (neither a word nor a file that can be read), WF_EDATA with the line,
 *          WF_ENOMEM
 */
WF_API wf_status wf_nn_schedule_read(const char *word, wf_nn_schedule *schedule,
                                     wf_error *error);

/** wf_nn_schedule_free - frees points that wf_nn_schedule_read has read. */
WF_API void wf_nn_schedule_free(wf_nn_schedule *schedule);

WF_END_DECLS

#endif
