/* apps/gpt_train/saving.h - checkpoints of a rank's training loop: going on from one, and saving. */
#ifndef WF_APPS_SAVING_H
#define WF_APPS_SAVING_H

#include "apps/gpt_train/resume.h"
#include <stdatomic.h>
#include <weft/weft.h>

/* Shared by the ranks of a process, which all write the same to it. */
typedef struct app_saving_result {
    atomic_bool failed; /* the last save, or loading: exit status 8 where a file is to blame */
    bool made;          /* the directory of --save, which was not there before */
    int lock;           /* its open lock, of process 0; -1: none */
    atomic_bool preempted; /* saved, and stopped before the last step: 75 */
} app_saving_result;

typedef struct app_saving {
    const app_options *options;
    wf_par *par;
    wf_par_trainer *trainer; /* NULL: `model` alone is loaded, and nothing saved */
    wf_nn_module *model;
    wf_par_saver *saver, *best; /* NULL: none */
    char **texts;               /* what checkpoints keep: flags, numerics, the best loss */
    int64_t text_count;
    char numerics[17], best_text[32];
    char base[17];   /* the checksum of what adapters are for, or "" */
    float best_loss; /* the lowest of validation so far; FLT_MAX before */
    bool new_best, moved;
    double started; /* s, of the process */
    app_saving_result *result;
} app_saving;

/* Makes and locks the directory of --save, before hours of work are to go into it, listens to signals from then on, and opens the
   checkpoints that there are. In every process. Errors: WF_EIO, WF_EDATA, those of app_resume_open. */
wf_status app_saving_prepare(const app_options *options, const wf_launcher *launcher,
                             app_resume *resume, app_saving_result *result, wf_error *error);

/* Take what saving needs. numerics: the run's identity, or "". Collective. Errors: in the context. In a plan too, since
   it is memory. */
wf_status app_saving_open(app_saving *s, const app_options *options, wf_par *par,
                          wf_nn_gpt *model, wf_par_trainer *trainer, const char *numerics,
                          app_saving_result *result);
void app_saving_close(app_saving *s);

/* Makes the directories and sees that all processes can write there, before any step. Collective. Errors: in the context. */
wf_status app_saving_check(app_saving *s);

/* Load the first of these that is valid; *step is what it has done, 0 where there is none.
   Collective. Errors: in the context. */
wf_status app_saving_resume(app_saving *s, const app_resume *resume, int64_t *step);

/* Makes the directory again, with a lock of its own, after it was removed under the run; wf_par_save_options.remake, of an
   app_saving. Errors: WF_EIO, where another run has it by now too. */
wf_status app_saving_remake(void *saving, wf_error *error);

/* Reports, once, that the directory was moved while the run saves there. */
void app_saving_moved(app_saving *s);

/* This rank's requests at the end of a step (parallel/recovery/signal_requests.h); the ranks add them up. */
unsigned app_saving_requests(const app_saving *s);

/* A validation loss; the lowest that there was before, FLT_MAX for none. */
void app_saving_validated(app_saving *s, float loss);
void app_saving_best(app_saving *s, float loss);

/* The end of a step with the requests of all ranks: save what is to be saved. *stop: it was the
   last one. Collective. A save that fails is told, and training goes on. */
wf_status app_saving_step(app_saving *s, int64_t step, unsigned requests, bool *stop);

/* Training ends because of what all ranks have found alike: what is still being written is a state
   from before, and is finished. Collective. */
void app_saving_finish(app_saving *s);

#endif
