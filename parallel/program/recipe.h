/* parallel/program/recipe.h - the numbers of a training recipe, as the flags of a program. */
#ifndef WF_PARALLEL_PROGRAM_RECIPE_H
#define WF_PARALLEL_PROGRAM_RECIPE_H

#include "parallel/program/flags.h"
#include "parallel/train/train.h"

WF_BEGIN_DECLS

typedef int64_t wf_recipe_INT;
typedef double wf_recipe_FLOAT;
typedef const char *wf_recipe_TEXT;

/** wf_recipe - a field for each row of parallel/program/recipe.def */
typedef struct wf_recipe {
#define RECIPE(kind, field, flag, standard, domain, metavar, help) wf_recipe_##kind field;
#include "parallel/program/recipe.def"
#undef RECIPE
} wf_recipe;

/** wf_recipe_id - WF_RECIPE_lr, ..: the rows */
typedef enum wf_recipe_id {
#define RECIPE(kind, field, flag, standard, domain, metavar, help) WF_RECIPE_##field,
#include "parallel/program/recipe.def"
#undef RECIPE
    WF_RECIPES
} wf_recipe_id;

/** wf_recipe_flag - returns the flag of a row, which sets `value`: an int64_t, a double or a
 * const char *, by the row's kind */
WF_API wf_flag wf_recipe_flag(wf_recipe_id row, void *value);

/** wf_recipe_field - returns a row's field */
WF_API void *wf_recipe_field(wf_recipe *recipe, wf_recipe_id row);

/** wf_recipe_of - fills in the recipe of a job's training; lr_schedule is NULL, as long as no
 * flag names another one, and so is skip_steps */
WF_API void wf_recipe_of(const wf_par_train_options *train, wf_recipe *recipe);

/**
 * wf_recipe_give - puts a recipe into a job's training, but for its schedule
 *
 * Errors:  WF_EINVAL (skip_steps)
 */
WF_API wf_status wf_recipe_give(const wf_recipe *recipe, wf_par_train_options *train,
                                wf_error *error);

/**
 * wf_recipe_give_schedule - puts its rates and steps into a schedule; reads lr_schedule, where
 * that is not NULL
 *
 * Owner:   the caller, wf_nn_schedule_free, where the schedule has become WF_NN_POINTS
 * Errors:  WF_EINVAL (a warm-up longer than the schedule), those of wf_nn_schedule_read
 */
WF_API wf_status wf_recipe_give_schedule(const wf_recipe *recipe, wf_nn_schedule *schedule,
                                         wf_error *error);

WF_END_DECLS

#endif
