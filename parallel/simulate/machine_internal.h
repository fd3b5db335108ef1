/* parallel/simulate/machine_internal.h - machine files as text, for the fuzzer. Not
   installed. */
#ifndef WF_PARALLEL_SIMULATE_MACHINE_INTERNAL_H
#define WF_PARALLEL_SIMULATE_MACHINE_INTERNAL_H

#include "parallel/simulate/machine.h"
#include <stddef.h>

/* Reads what wf_sim_machine_read reads, from memory. */
wf_status wf_sim_machine_parse(const char *path, const char *text, size_t bytes,
                               wf_sim_machine *machine, wf_error *error);

#endif
