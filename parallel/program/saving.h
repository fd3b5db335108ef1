/*
 * parallel/program/saving.h - checkpoints of a training loop: continuing from one, saving every
 * N steps, after the last one and on signals. wf_par_run does all of it for a program; a loop
 * of its own calls these.
 */
#ifndef WF_PARALLEL_PROGRAM_SAVING_H
#define WF_PARALLEL_PROGRAM_SAVING_H

#include "mesh/transport/launcher.h"
#include "parallel/checkpoint/resume.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_saving_result - shared by the ranks of a process; lock -1 at first */
typedef struct wf_saving_result {
    bool failed;    /* the last save, or loading: WF_EXIT_CHECKPOINT where a file is to blame */
    bool made;      /* the folder, which was not there before */
    bool preempted; /* saved, and stopped before the last step: WF_EXIT_PREEMPTED */
    int lock;       /* the folder is locked by it, in process 0; -1: it is not */
} wf_saving_result;

/** wf_saving_failed, wf_saving_preempted - set these on ranks, which all write the same */
WF_API void wf_saving_failed(wf_saving_result *result, bool failed);
WF_API void wf_saving_preempted(wf_saving_result *result, bool preempted);

/* Exit statuses beside wf_par_exit_status. */
enum { WF_EXIT_CHECKPOINT = 8, WF_EXIT_PREEMPTED = 75 };

typedef struct wf_saving_options {
    const char *program; /* names the reporter */
    FILE *out;           /* rank 0 prints the checkpoint there that it continues from */
    /* dir NULL: nothing is saved. Its texts are the program's; remake is the saving's own. */
    wf_par_save_options save;
    bool best;  /* the one with the lowest validation loss as well, under dir/best */
    bool fresh; /* parameters and steps alone are loaded (wf_par_checkpoint_load_fresh) */
    bool looks; /* wf_resume_looks: processes agree on the checkpoints that all see */
    int64_t interval,
        steps;            /* steps between saves, 0: none; the last one, which is saved too */
    double seconds;       /* saves and stops after this time; 0: never */
    const char *numerics; /* the run's identity, 16 digits; NULL or "": unknown */
    /* Hooks; each may be NULL. */
    wf_status (*fits)(void *arg, const wf_par_checkpoint *c,
                      wf_error *error);                    /* on each rank */
    void (*loaded)(void *arg, const wf_par_checkpoint *c); /* rank 0: reports what differs */
    void (*explain)(void *arg, const wf_par_checkpoint *c,
                    wf_error *error); /* adds to why one could not be loaded */
    void *arg;
} wf_saving_options;

typedef struct wf_saving {
    wf_saving_options options;
    wf_par *par;
    wf_par_trainer *trainer; /* NULL: `model` alone is loaded, and nothing saved */
    wf_nn_module *model;
    wf_par_saver *saver, *best; /* NULL: none */
    const char **texts;         /* in checkpoints: the program's, numerics, the best loss */
    char numerics[17], best_text[32];
    float best_loss; /* the lowest of validation so far; FLT_MAX before */
    bool new_best, moved;
    int64_t reported, reported_best; /* the checkpoints that have had their lines */
    double started;                  /* s, of the process */
    wf_saving_result *result;
} wf_saving;

/** wf_saving_prepare - makes and locks the folder, before hours of work are to go into it. In
 * every process. Errors: WF_EIO */
WF_API wf_status wf_saving_prepare(const char *program, const char *dir,
                                   const wf_launcher *launcher, wf_saving_result *result,
                                   wf_error *error);

/** wf_saving_exit_status - returns the exit status of a run by how it ended */
WF_API int wf_saving_exit_status(wf_status status, const wf_saving_result *result);

/**
 * wf_saving_open - takes what saving needs; in a plan too, since it is memory
 *
 * @param s        stays where it is
 * @param options  copied, with the list of texts; the texts stay alive
 * @param trainer  NULL: the parameters of `model` alone are loaded, and nothing is saved
 * Collective:  over the world. Errors: in the context. Owner: the caller, wf_saving_close
 */
WF_API wf_status wf_saving_open(wf_saving *s, const wf_saving_options *options, wf_par *par,
                                wf_nn_module *model, wf_par_trainer *trainer,
                                wf_saving_result *result);
WF_API void wf_saving_close(wf_saving *s);

/** wf_saving_check - makes the folders and sees that all processes can write there, before any
 * step. Collective. Errors: in the context */
WF_API wf_status wf_saving_check(wf_saving *s);

/** wf_saving_resume - loads the first of these that is valid; *step is what it has done, 0
 * where there is none. Collective. Errors: in the context */
WF_API wf_status wf_saving_resume(wf_saving *s, const wf_resume *resume, int64_t *step);

/** wf_saving_requests - returns this rank's requests at the end of a step
 * (parallel/recovery/signal_requests.h); ranks add them up */
WF_API unsigned wf_saving_requests(const wf_saving *s);

/** wf_saving_validated - takes a validation loss; wf_saving_best - the lowest that there was
 * before, FLT_MAX for none */
WF_API void wf_saving_validated(wf_saving *s, float loss);
WF_API void wf_saving_best(wf_saving *s, float loss);

/** wf_saving_due - returns true where a checkpoint is saved after a step, whatever is asked
 * for. */
WF_API bool wf_saving_due(const wf_saving *s, int64_t step);

/**
 * wf_saving_step - ends a step with the requests of all ranks: saves what is due. A save that
 * fails is reported, and training continues
 *
 * @param stop  set: it was the last one
 * Collective: over the world. Errors: in the context
 */
WF_API wf_status wf_saving_step(wf_saving *s, int64_t step, unsigned requests, bool *stop);

/** wf_saving_report - prints a line for each checkpoint that has been published since, on rank
 * 0; clear: called before one, or NULL */
WF_API void wf_saving_report(wf_saving *s, void (*clear)(void *arg), void *arg);

/** wf_saving_finish - finishes what is being written, where training ends by something that all
 * ranks have found alike. Collective */
WF_API void wf_saving_finish(wf_saving *s);

WF_END_DECLS

#endif
