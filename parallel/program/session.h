/*
 * parallel/program/session.h - a session: a run that is driven from outside, step by step, by
 * the thread that has opened it. Its ranks are threads of this process and wait between steps
 * for the next call. It is what a module of another language stands on.
 *
 *     wf_process process = WF_PROCESS("mine");
 *     wf_session *session;
 *
 *     process.job = job;
 *     process.run.out = out;
 *     wf_plan_request_of(&process.job, &process.request);
 *     session = wf_session_open(&process, &error);
 *     while (next_batch(&batch) && wf_session_step(session, &batch, &made, &error) == WF_OK)
 *         printf("%f\n", (double)made.loss);
 *     wf_session_call(session, evaluate, &result, &error);    on each rank
 *     wf_session_close(session, &error);
 *
 * A process may have several. The calls of one are made one at a time; a fork has none. Ranks
 * that hang are left running when a session ends, or could not be opened: process.ranks_left
 * says how many, and where it is not 0 the process, and what it points to, outlive them.
 */
#ifndef WF_PARALLEL_PROGRAM_SESSION_H
#define WF_PARALLEL_PROGRAM_SESSION_H

#include "parallel/program/process.h"

WF_BEGIN_DECLS

typedef struct wf_session wf_session;

/**
 * wf_session_open - starts the ranks of a process's job, and returns when all of them wait for
 * a call: the model is made, and a checkpoint loaded
 *
 * @param process  of one process, not elastic, with steps; it becomes embedded: no signal gets
 *                 a handler. Outlives the session. Its job's data are those of steps without
 *                 their own; all data of steps have `counted` where these have it, or none
 * Owner:          the caller, wf_session_close
 * Errors:         WF_EINVAL, WF_ENOMEM, those of wf_process_run; NULL then
 */
WF_API wf_session *wf_session_open(wf_process *process, wf_error *error);

/** wf_session_steps - returns how many steps are done, those before a resume included; also
 * while another thread is in a call */
WF_API int64_t wf_session_steps(const wf_session *session);

/**
 * wf_session_step - makes the next step of the run, and waits for its end: logged, evaluated
 * and saved, as the process asks
 *
 * @param data  the batch of this step, read while the call lasts; NULL: the job's
 * @param made  its record; the borrowed arrays are empty. NULL: not wanted
 * Errors:      WF_EINVAL: the run has made its last step, or has ended; the failure of the run,
 *              which has ended then
 */
WF_API wf_status wf_session_step(wf_session *session, const wf_par_data *data,
                                 wf_step_log *made, wf_error *error);

/**
 * wf_session_call - calls a function on each rank, between two steps, and waits for all
 *
 * @param function  collective as it likes. A failure in the context of a rank ends the run
 * Errors:          those of wf_session_step
 */
WF_API wf_status wf_session_call(wf_session *session, wf_par_hook *function, void *arg,
                                 wf_error *error);

/** wf_session_close - ends the run, as after its last step, and waits for its ranks; NULL is
 * allowed. Errors: the failure of the run, unless a call has returned it */
WF_API wf_status wf_session_close(wf_session *session, wf_error *error);

WF_END_DECLS

#endif
