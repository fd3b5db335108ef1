/* parallel/checkpoint/resume.h - which checkpoints a run may continue from: --save DIR and
   --resume auto, none or PATH. */
#ifndef WF_PARALLEL_CHECKPOINT_RESUME_H
#define WF_PARALLEL_CHECKPOINT_RESUME_H

#include "parallel/checkpoint/checkpoint.h"

WF_BEGIN_DECLS

enum { WF_RESUME_MOST = 8 }; /* checkpoints that are tried, newest first */

typedef struct wf_resume {
    wf_par_checkpoint *checkpoint[WF_RESUME_MOST]; /* to be tried in this order */
    int count;
    /* Why this process could not open one, where it is not the first process, which reports
       it. */
    wf_error unopened;
} wf_resume;

typedef struct wf_resume_options {
    const char *program; /* names the reporter */
    const char *save;    /* the folder of the run's own checkpoints; NULL: none */
    /* PATH of a checkpoint or of a folder of some, "none", "auto": those of save; NULL: auto */
    const char *resume;
    /* Checks that the run's settings fit a checkpoint; NULL: any do. WF_EINVAL: they do not, or
       what else is wrong. */
    wf_status (*fits)(void *arg, const wf_par_checkpoint *checkpoint, wf_error *error);
    void *arg;
} wf_resume_options;

/**
 * wf_resume_open - opens the checkpoints that a run may continue from
 *
 * One that is damaged is reported on stderr by the first process, and left out; so is one that
 * does not fit, after one that does.
 *
 * Owner:   the caller, wf_resume_close
 * Errors:  WF_EINVAL: the first one does not fit; WF_EIO, WF_EDATA: there are some, and none
 *          can be used
 */
WF_API wf_status wf_resume_open(const wf_resume_options *options, wf_resume *resume,
                                wf_error *error);
WF_API void wf_resume_close(wf_resume *resume);

/** wf_resume_looks - returns whether checkpoints are looked for at all */
WF_API bool wf_resume_looks(const wf_resume_options *options);

/** wf_resume_step - returns the step of the one that is tried first; -1: there is none */
WF_API int64_t wf_resume_step(const wf_resume *resume);

WF_END_DECLS

#endif
