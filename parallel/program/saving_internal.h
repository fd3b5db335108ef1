/* parallel/program/saving_internal.h - shared by the files of saving. */
#ifndef WF_PARALLEL_PROGRAM_SAVING_INTERNAL_H
#define WF_PARALLEL_PROGRAM_SAVING_INTERNAL_H

#include "parallel/program/saving.h"

/* Returns whether this is rank 0, which reports. */
bool wf_saving_first(const wf_saving *s);

/* Recreates the folder, with a lock of its own, after it was removed under the run;
   wf_par_save_options.remake, of a wf_saving. Errors: WF_EIO, where another run has it by now
   too. */
wf_status wf_saving_remake(void *saving, wf_error *error);

#endif
