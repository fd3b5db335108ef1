/* apps/gpt_train/chakra.h - gpt_train --plan --chakra: a planned step of all ranks as Chakra execution traces. */
#ifndef WF_APPS_CHAKRA_H
#define WF_APPS_CHAKRA_H

#include "apps/options/options.h"
#include "parallel/simulate/machine.h"

/*
 * Write --chakra's folder: weft.RANK.et of every rank, or of --rank alone, and weft.groups.json, which has the members of
 * the groups that collectives name. Ranks that do the same are planned once.
 *
 * @param machine  what ops and transfers take, or NULL
 * Errors:  WF_EUNSUPPORTED: built without protobuf-c; WF_EIO; WF_ENOMEM; those of the plan
 */
wf_status chakra_write(const app_options *options, const wf_sim_machine *machine, FILE *out,
                       wf_error *error);

#endif
