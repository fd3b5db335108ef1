/* parallel/plan/chakra_file_internal.h - the step of a rank as a Chakra execution trace. */
#ifndef WF_PARALLEL_PLAN_CHAKRA_FILE_INTERNAL_H
#define WF_PARALLEL_PLAN_CHAKRA_FILE_INTERNAL_H

#include "parallel/plan/record_internal.h"
#include "core/files/output.h"

/* Returns true where this program was built with protobuf-c; else the functions below fail with
   WF_EUNSUPPORTED. */
bool wf_chakra_is_built(void);

/* Write weft.RANK.et into the folder: the step of a rank that does what the record's does, and
   of the same pipeline coordinate. Errors: WF_EIO, WF_ENOMEM; the file is then not there, or
   what it was before */
wf_status wf_chakra_file_write(wf_output_folder *folder, const wf_step_record *record, int rank,
                               wf_error *error);

#endif
