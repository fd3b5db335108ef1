/* parallel/report/layout.h - prints the layout of a model on a mesh, and the traffic and memory
   of a step. */
#ifndef WF_PARALLEL_REPORT_LAYOUT_H
#define WF_PARALLEL_REPORT_LAYOUT_H

#include "parallel/stages/pipeline.h"
#include "parallel/train/report.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_par_print_layout - prints the stages of a pipeline, if there is one; every parameter's
 * shape, layout and local shape; the ranks of each part; and the units. Collective: no; `model`
 * is planned */
WF_API void wf_par_print_layout(FILE *out, wf_par *par, wf_nn_module *model,
                                const wf_par_pipeline *pipeline);

/** wf_par_print_stages - prints a line per stage: its pipeline rank, its parameters and its
 * modules */
WF_API void wf_par_print_stages(FILE *out, const wf_par_pipeline *pipeline,
                                wf_nn_module *model);

/** wf_par_print_traffic - prints a line per collective that was called in a step */
WF_API void wf_par_print_traffic(FILE *out, const wf_par_report *report);

/** wf_par_print_memory - prints a rank's memory by kind, at its peak and at most */
WF_API void wf_par_print_memory(FILE *out, const wf_memory_report *memory);

/** wf_size_text - writes bytes as "79.3 GiB"; returns text */
WF_API char *wf_size_text(char text[32], double bytes);

/** wf_size_parse - reads "80GiB", "512MiB", "1.5TB" or a number of bytes, up to 8192 TiB;
 * returns false where it is none */
WF_API bool wf_size_parse(const char *text, int64_t *bytes);

/** wf_moment_text - writes the moment of a peak, as "backward of block.1.mlp"; returns text */
WF_API char *wf_moment_text(char *text, size_t size, const wf_memory_report *memory);

/** wf_par_bytes_per_parameter - returns the bytes of a kind of memory per element of the rank's
 * share, at most */
WF_API double wf_par_bytes_per_parameter(const wf_par_report *report, wf_memory_kind kind);

WF_END_DECLS

#endif
