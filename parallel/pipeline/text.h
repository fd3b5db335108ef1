/*
 * parallel/pipeline/text.h - schedules as text, to be written by hand, edited and given back:
 *
 *     weft-schedule 1                      # to the end of the line is a comment
 *     stages 4  micro 2  place 0 1 1 0     # the rank of each stage: a V over two ranks
 *     0: F0.0 F0.1 F3.0 B3.0 (F3.1 + B0.0) \
 *        B3.1 B0.1
 *     1: F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 B1.1
 *
 * An action is its kind, stage and micro-batch: F2.5, W2.4-7 for a range, UNSHARD2, NORM. A
 * table that is lowered has after the ranks of its stages: lowered, and where they apply, group
 * N, resident N and tied.
 */
#ifndef WF_PARALLEL_PIPELINE_TEXT_H
#define WF_PARALLEL_PIPELINE_TEXT_H

#include "parallel/pipeline/schedule.h"
#include <stdio.h>

WF_BEGIN_DECLS

/**
 * wf_pipe_table_parse - parses a table from its text, or from a CSV of
 * torch.distributed.pipelining
 *
 * A CSV has a line for each rank and in its cells 0F0, 3I2, 3W2, 7B1, (0F1;7B0)OVERLAP_F_B or
 * nothing; ranks of stages follow from the rows, of which those without an action are no
 * rank's. Its UNSHARD, RESHARD, REDUCE_GRAD, SEND and RECV are skipped, since lowering derives
 * them. A byte order mark in front of either is skipped too.
 *
 * @param name   of the file, for errors; one that ends in ".csv", in letters of any case, is a
 *               CSV
 * @param text   ended by a 0
 * @param table  the new table, the caller's: wf_pipe_table_free; NULL on errors. wf_pipe_prove
 *               checks that it can run
 * Errors:       WF_EDATA with name, line and column; WF_ENOMEM
 */
WF_API wf_status wf_pipe_table_parse(const char *name, const char *text, wf_pipe_table **table,
                                     wf_error *error);

/** wf_pipe_table_read - reads a table from a file, or a pipe, by wf_pipe_table_parse. Errors:
 * its own; WF_EIO; WF_EDATA for a byte 0, since what follows it would be lost */
WF_API wf_status wf_pipe_table_read(const char *path, wf_pipe_table **table, wf_error *error);

/**
 * wf_pipe_table_print - writes a table as text, which wf_pipe_table_parse reads back as the
 * same table
 *
 * Errors:  WF_EIO: it could not be written
 */
WF_API wf_status wf_pipe_table_print(const wf_pipe_table *table, FILE *out);

WF_END_DECLS

#endif
