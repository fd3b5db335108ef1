/* apps/gpt_train/elastic_run.h - meshes of the flags for ranks that are left;
   parallel/recovery/elastic.h has the rest. */
#ifndef WF_APPS_ELASTIC_RUN_H
#define WF_APPS_ELASTIC_RUN_H

#include "apps/options/options.h"
#include "parallel/recovery/elastic.h"

/* The meshes of an app_options. */
extern const wf_elastic_meshes app_elastic_meshes;

/* Writes "--pp 1 --dp 2 --tp 8". */
void app_elastic_name(const void *options, char *text, size_t size);

/* Changes the options to the mesh of a run that is started with `processes` processes, as many
   of which are used. Errors: those of wf_elastic_processes */
wf_status app_elastic_processes(app_options *options, int *processes, wf_error *error);

#endif
