/* parallel/plan/chakra_internal.h - gpt_train --plan --chakra: a planned step of all ranks as
   Chakra execution traces. */
#ifndef WF_PARALLEL_PLAN_CHAKRA_INTERNAL_H
#define WF_PARALLEL_PLAN_CHAKRA_INTERNAL_H

#include "parallel/plan/request.h"
#include "parallel/simulate/machine.h"

/*
 * Write --chakra's folder: weft.RANK.et of every rank, or of --rank alone, and
 * weft.groups.json, which has the members of the groups that collectives name. Ranks that do
 * the same are planned once.
 *
 * @param machine  what ops and transfers take, or NULL
 * Errors:  WF_EUNSUPPORTED: built without protobuf-c; WF_EIO; WF_ENOMEM; those of the plan
 */
wf_status wf_chakra_write(const wf_plan_request *options, const wf_sim_machine *machine,
                          FILE *out, wf_error *error);

#endif
