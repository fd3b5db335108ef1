/* apps/gpt_train/chakra_file.h - the step of a rank as a Chakra execution trace. */
#ifndef WF_APPS_CHAKRA_FILE_H
#define WF_APPS_CHAKRA_FILE_H

#include "apps/gpt_train/step_record.h"

/* Whether this program was built with protobuf-c; else what follows fails with WF_EUNSUPPORTED. */
bool chakra_is_built(void);

/* Write FOLDER/weft.RANK.et: the step of a rank that does what the record's does, and of the same pipeline coordinate.
   Errors: WF_EIO, WF_ENOMEM; the file is then not there, or what it was before */
wf_status chakra_file_write(const char *folder, const step_record *record, int rank,
                            wf_error *error);

#endif
