/*
 * parallel/plan/search.h - a search: all layouts of a job over some ranks, the fastest that fit
 * first, as a list to go through.
 *
 *     wf_plan_list list;
 *
 *     wf_plan_request_of(&job, &request);
 *     request.machine = "docs/machines/h100.json";
 *     request.ranks = 8;
 *     if (wf_plan_search(&request, &list, &error) == WF_OK && list.count)
 *         run(wf_plan_request_job(&list.layout[0].request, &made));
 *     wf_plan_list_free(&list);
 */
#ifndef WF_PARALLEL_PLAN_SEARCH_H
#define WF_PARALLEL_PLAN_SEARCH_H

#include "parallel/plan/request.h"

WF_BEGIN_DECLS

enum { WF_PLAN_LAYOUT_FLAGS = 400, WF_PLAN_REASONS = 12 };

/** wf_plan_layout - a layout that a search has found */
typedef struct wf_plan_layout {
    /* The request with the layout's settings, as it is planned or run (wf_plan_request_job);
       its rank is of the fullest stage. It points to what the request that was searched points
       to. */
    wf_plan_request request;
    /* settings that differ from what was asked for: "--tp 4 --dp 2" */
    char flags[WF_PLAN_LAYOUT_FLAGS];
    double seconds;     /* a step's, predicted */
    wf_sim_cost path;   /* seconds along the critical path, by term */
    double bubble;      /* idle share in the pipeline; 0 without one */
    double utilisation; /* model FLOPs over those that devices have */
    size_t peak;        /* bytes of the fullest rank, by its plan */
    int stage;          /* its position on pp */
} wf_plan_layout;

/** wf_plan_refused - why layouts are not in the list, and how many of them */
typedef struct wf_plan_refused {
    const char *words; /* continue "12 layouts"; NULL ends a list of reasons */
    int64_t count;
} wf_plan_refused;

typedef struct wf_plan_list {
    wf_plan_layout *layout; /* [count], by time: at most 10, which fit by plans of all stages */
    int64_t count;
    wf_plan_layout data_parallel; /* the best that has neither pp nor tp, in the list or not */
    bool has_data_parallel;       /* else none fits .. */
    bool data_parallel_refused;   /* .. or all are refused for another reason than memory */
    bool data_parallel_absent;    /* .. or it is no layout of what was asked for */
    wf_plan_refused refused[WF_PLAN_REASONS]; /* in the order of looking; counts may be 0 */
    /* why the first plan was refused that was so for another reason than memory; WF_OK: none
       was */
    wf_error refusal;
    char machine[WF_SIM_NAME];
    int64_t ranks, tokens; /* a layout's; a step's */
    int64_t considered, simulated, planned;
    double work; /* s of this process */
} wf_plan_list;

/**
 * wf_plan_search - looks at all layouts of a request's job that its machine, device_memory and
 * `given` settings allow
 *
 * @param request  `given` settings stay as they are; ranks 0: the mesh's where it was given,
 *                 else a host's; search "inexact": layouts whose numbers are not those of one
 *                 rank are taken too
 * @param list     owner: the caller, wf_plan_list_free, also after errors; without a layout
 *                 where none fits
 * Errors:  WF_EINVAL: a mesh with other axes than pp, dp, tp and cp, or no machine; WF_EIO,
 *          WF_EDATA: its file; what the job is refused for on one rank; WF_ENOMEM
 */
WF_API wf_status wf_plan_search(const wf_plan_request *request, wf_plan_list *list,
                                wf_error *error);

/** wf_plan_list_free - frees the layouts; a zeroed list is allowed */
WF_API void wf_plan_list_free(wf_plan_list *list);

WF_END_DECLS

#endif
