/* tests/parallel/checkpoint_folder.h - what lies in a directory of checkpoints, for tests of
   it. */
#ifndef WF_TESTS_PARALLEL_CHECKPOINT_FOLDER_H
#define WF_TESTS_PARALLEL_CHECKPOINT_FOLDER_H

#include "tests/parallel/checkpoint_trial.h"

typedef char text[512];

/* The path of a name in a directory. */
const char *in(text path, const char *dir, const char *name);

bool is_there(const char *dir, const char *name);

/* Writes a file of a number of bytes that are no checkpoint's. */
void litter(const char *dir, const char *name, size_t bytes);

/* "step-00000003": the file name alone of path number i, "" where there are fewer. */
const char *listed(const char *dir, int64_t i, wf_error *error);

/* Every byte of it is what was saved, and nothing else is in its folder. */
bool whole(const char *dir, const char *name);

wf_status save_steps(trial *t, wf_rank *rank, wf_par_saver *saver, int from, int to);

#endif
