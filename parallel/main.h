/* parallel/main.h - the main function of a program over ranks. */
#ifndef WF_PARALLEL_MAIN_H
#define WF_PARALLEL_MAIN_H

#include "mesh/cluster/launch.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

/* Seconds after which a rank that neither runs nor waits for others has failed, unless
   --stall-timeout sets another number. */
enum { WF_PAR_STALL_TIMEOUT = 1800 };

/**
 * wf_par_main - starts the ranks of a mesh, runs a function on each, and reports how it ended
 *
 *     int main(int argc, char **argv)
 *     {
 *         return wf_par_main(argc, argv, &(wf_par_options){.tp = 2, .dp = 2}, train, NULL);
 *     }
 *
 * The ranks of the mesh are threads of this process; where a launcher has started several
 * processes (mpirun, srun, torchrun: mesh/transport/launcher.h), each runs an equal share of
 * them. A rank that fails ends all of them, and one line on stderr, of one process, names it
 * and the reason: a rank that crashes (wf_recorder_crashes), calls exit or _exit(0), or stalls,
 * too.
 *
 * @param argv      argv[0] names the program in that line; the following may be --AXIS N,
 *                  another size for an axis of the mesh: --tp 4 --dp 1, and --stall-timeout
 *                  SECONDS, 0 for never (wf_launch_options.stall_timeout; WF_PAR_STALL_TIMEOUT
 *                  without it). A program with arguments of its own reads them itself, and
 *                  passes argc 1
 * @param options   of every rank (wf_par_open)
 * @param function  run by every rank; it fails where it returns another status than WF_OK, or
 *                  leaves an error in the context of `par`
 * @param arg       passed to the function of every rank of this process
 * Returns:         wf_par_exit_status of the run, the same in all processes. Where ranks do not
 *                  return after a failure (wf_launch_end), the process ends with it instead
 */
WF_API int wf_par_main(int argc, char **argv, const wf_par_options *options,
                       wf_status (*function)(wf_par *par, void *arg), void *arg);

/** wf_par_report_line - writes "PROGRAM: TEXT" on stderr, as a program does that has something
 * to report; NULL: the text alone */
WF_API void wf_par_report_line(const char *program, const char *format, ...) WF_PRINTF(2, 3);

/** wf_par_main_end - prints the error of a run, where no other process does; ends the process
 * with `status` where ranks are stuck (wf_launch_end). Returns status. */
WF_API int wf_par_main_end(const char *program, const wf_launch_end *end, const wf_error *error,
                           int status);

/** wf_par_warn - writes a warning to stderr, as a callback of warnings: `program` is the name
 * in front, as a string; NULL: "weft" */
WF_API void wf_par_warn(void *program, const char *text);

/** wf_par_exit_status - returns the exit status of a failure: 0 none; 2 bad input, or something
 * that is not supported (WF_EINVAL, WF_EUNSUPPORTED); 3 files (WF_EIO, WF_EDATA); 4 a rank or
 * process was lost (WF_ELOST); 5 ranks diverged (WF_EMISMATCH); 6 a stall (WF_ETIMEOUT); 7
 * numbers are not finite (WF_ENONFINITE); 1 anything else */
WF_API int wf_par_exit_status(wf_status status);

WF_END_DECLS

#endif
