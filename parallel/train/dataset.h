/*
 * parallel/train/dataset.h - the dataset of a run (nn/dataset/dataset.h) as what a trainer
 * reads: fields "tokens" and "targets", and of packed documents the two of
 * WF_PAR_GPT_DOCUMENT_FIELDS.
 *
 *     wf_dataset_open(&options, &dataset, &error);
 *     job.data = wf_par_dataset(dataset, WF_DATASET_TRAIN);
 *     job.eval_data = wf_par_dataset(dataset, WF_DATASET_VALIDATION);
 */
#ifndef WF_PARALLEL_TRAIN_DATASET_H
#define WF_PARALLEL_TRAIN_DATASET_H

#include "nn/dataset/dataset.h"
#include "parallel/train/batch.h"

WF_BEGIN_DECLS

/** wf_par_dataset - returns a part of a dataset as a trainer's data. It counts targets where
 * some are not trained on (wf_dataset_counts). The dataset outlives it. */
WF_API wf_par_data wf_par_dataset(const wf_dataset *dataset, wf_dataset_part part);

WF_END_DECLS

#endif
