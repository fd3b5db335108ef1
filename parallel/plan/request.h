/*
 * parallel/plan/request.h - what is planned: a job whose settings are words and numbers, as a
 * command line has them, which planners change. A candidate of a search is a request with other
 * settings.
 *
 *     wf_plan_request r;
 *
 *     wf_plan_request_of(&job, &r);
 *     r.device_memory = 80e9;
 *     r.machine = "docs/machines/h100.json";
 *     snprintf(r.search, sizeof r.search, "on");
 *     wf_plan_print(&r, stdout, &error);   // all layouts of the job, the fastest that fit
 *                                          first
 */
#ifndef WF_PARALLEL_PLAN_REQUEST_H
#define WF_PARALLEL_PLAN_REQUEST_H

#include "mesh/transport/launcher.h"
#include "parallel/plan/plan.h"
#include <stdio.h>

WF_BEGIN_DECLS

enum {
    WF_WORD = 24,
    WF_PLAN_FLAG = 32
}; /* bytes of a setting that is a word, and of its name as a flag */

typedef int64_t wf_setting_COUNT;
typedef char wf_setting_WORD[WF_WORD];
typedef const char *wf_setting_TEXT;
typedef bool wf_setting_SWITCH;

/** wf_setting - WF_SETTING_dp, ..: the rows of parallel/plan/settings.def. */
typedef enum wf_setting {
#define SETTING(kind, field, help) WF_SETTING_##field,
#include "parallel/plan/settings.def"
#undef SETTING
    WF_SETTINGS
} wf_setting;

typedef struct wf_plan_request {
    wf_par_job job; /* its mesh, training and pipeline are changed by the settings below */
#define SETTING(kind, field, help) wf_setting_##kind field;
#include "parallel/plan/settings.def"
#undef SETTING
    bool given[WF_SETTINGS]; /* asked for: planners leave it as it is */
    bool whole_batches;      /* micro_batch_size was not asked for */
    bool no_pipeline;        /* pp stays 1 */
    /* a field of pipelines that was asked for without their ranks, as pp_schedule: a search
       takes layouts with a pipeline alone; NULL: none */
    const char *pipeline_field;
    int64_t elastic; /* a run continues with as few data-parallel ranks; 0: with all alone */
    bool planned;    /* nothing is run: limits are the machine's, not paced's */
    bool find_batch; /* look for the largest micro-batch that fits */
    bool rank_given; /* else planners choose the fullest rank */
    int64_t rank;    /* the rank that is planned */
    int64_t device_memory; /* bytes of a device; 0: not known */
    /* Files of figures (docs/planning.md): the machine that times steps, and the one whose time
       a run takes; NULL: none. */
    const char *machine, *paced;
    /* "off"; "on": list layouts of this number of ranks (0: the mesh's where it was given, else
       a host's); "inexact": those that are not exact too. */
    wf_setting_WORD search;
    int64_t ranks;
    FILE *notes;        /* lines beside a plan: it is not exact, it takes long; NULL: nowhere */
    const char *json;   /* file of the plan as JSON; NULL: none */
    const char *chakra; /* folder of execution traces; NULL: none */
    const char *memory_timeline; /* file of a picture of the step's memory; NULL: none */
} wf_plan_request;

/**
 * wf_plan_request_of - fills a request with the settings of a job
 *
 * @param job  outlived by nothing of it: what its pointers name stays the caller's
 */
WF_API void wf_plan_request_of(const wf_par_job *job, wf_plan_request *request);

/** wf_plan_job - a request's job as the library runs it; its pointers are into itself and the
 * request. */
typedef struct wf_plan_job {
    wf_par_job job;
    wf_par_pipeline_options pipeline;
    wf_axis axes[WF_MAX_AXES + 1];
} wf_plan_job;

/**
 * wf_plan_request_job - returns the job that a request describes
 *
 * @param made  the job is in it; it and the request stay where they are while the job is used
 */
WF_API const wf_par_job *wf_plan_request_job(const wf_plan_request *request, wf_plan_job *made);

/** wf_plan_pipelined - returns whether a schedule runs the steps: over several ranks, or where
 * one rank has stages, a schedule or a cut of its own. recompute: "stage" is one, too */
WF_API bool wf_plan_pipelined(int64_t pp, const wf_par_pipeline_options *stages,
                              const char *recompute);

/** wf_plan_ranks - returns how many ranks a request's mesh has */
WF_API int64_t wf_plan_ranks(const wf_plan_request *request);

/** wf_plan_data_ranks - returns how many ranks the batch is split over: dp, and other axes that
 * do (wf_par_splits_batch) */
WF_API int64_t wf_plan_data_ranks(const wf_plan_request *request);

/** wf_plan_micro_steps - returns the micro-steps of a step, rounded up; wf_plan_idle - how many
 * data-parallel ranks have no sequence in the last one */
WF_API int64_t wf_plan_micro_steps(const wf_plan_request *request);
WF_API int64_t wf_plan_idle(const wf_plan_request *request);

/** wf_plan_flag_name - writes a setting's name as a flag's, with - for _; returns it */
WF_API const char *wf_plan_flag_name(wf_setting setting, char name[WF_PLAN_FLAG]);

/** wf_plan_word_value - returns the value of the enumeration (wf_par_reshard,
 * wf_par_accumulate, wf_nn_method) that a setting's word names; 0: none is named so.
 * wf_plan_group - returns the N of "group:N", a power of two; 0: it is none */
WF_API int wf_plan_word_value(wf_setting setting, const char *word);
WF_API int wf_plan_group(const char *word);

/** wf_plan_words - writes the words that a setting takes, for people, "always, never or
 * default"; returns text; wf_plan_has_word - returns whether a word is one of them: true for
 * settings whose words are of other tables, or the model's */
WF_API const char *wf_plan_words(wf_setting setting, char *text, size_t size);
WF_API bool wf_plan_has_word(wf_setting setting, const char *word);

/**
 * wf_plan_changes - writes the settings in which two requests differ, as flags: "--tp 4 --dp 2"
 *
 * @param text  cut where it is too short
 */
WF_API void wf_plan_changes(const wf_plan_request *from, const wf_plan_request *to, char *text,
                            size_t size);

/**
 * wf_plan_print - plans a request and prints what its rank takes and moves, what would fit
 * where it doesn't, and other strategies; with `search` all layouts, the fastest that fit
 * first; writes request->json and request->chakra
 *
 * Errors:  what the run would be refused for; WF_EIO, WF_EDATA (machine), WF_EUNSUPPORTED
 *          (chakra), WF_ENOMEM
 */
WF_API wf_status wf_plan_print(const wf_plan_request *request, FILE *out, wf_error *error);

/** wf_plan_explain - adds what would fit to the error of a run that went out of
 * device_memory */
WF_API void wf_plan_explain(const wf_plan_request *request, wf_error *error);

/**
 * wf_plan_choose_sums - sets what a run chooses by itself: with device_memory, or that of the
 * machine's devices, `accumulate` auto becomes the way of summing gradients over ranks that
 * moves least of those that fit; where data-parallel ranks don't divide the batch, or the
 * numbers would not be those of one rank, micro-batches have one sequence
 *
 * @param out  a line for each choice; NULL: none
 */
WF_API void wf_plan_choose_sums(wf_plan_request *request, FILE *out);

/**
 * wf_plan_choose_single - sets micro-batches of one sequence, whose gradients are reduced in
 * each micro-step where `accumulate` is auto: the numbers of one rank on any number of
 * data-parallel ranks, for any batch. A strategy with groups that its way of that does not
 * serve reduces over all ranks
 *
 * @param serves  says whether a request will do
 * Returns:       whether one does; else the request is as it was
 */
WF_API bool wf_plan_choose_single(wf_plan_request *request,
                                  bool (*serves)(const wf_plan_request *request));

/**
 * wf_plan_start_check - plans a run before it starts, and refuses what the plan is refused for:
 * what a rank would find while it opens, or in the middle of its first step
 *
 * @param memory  compares what the ranks of this process would take with the limits of the
 *                process, too: memory of the host and of its control group, address space
 * Errors:        those of wf_plan_step; WF_ENOMEM: it does not fit, with the bytes, the limit,
 *                and what would
 */
WF_API wf_status wf_plan_start_check(const wf_plan_request *request,
                                     const wf_launcher *launcher, bool memory, wf_error *error);

/** wf_plan_request_step - plans its rank (wf_plan_step); wf_plan_request_serves - returns
 * whether that succeeds, and the layout does not show in the numbers, unless exactness is
 * off */
WF_API wf_status wf_plan_request_step(const wf_plan_request *request, wf_plan *plan,
                                      wf_error *error);
WF_API bool wf_plan_request_serves(const wf_plan_request *request, wf_plan *plan);

WF_END_DECLS

#endif
