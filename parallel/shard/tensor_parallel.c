/* parallel/shard/tensor_parallel.c - the styles of tensor parallelism. */
#include "parallel/shard/sharding_plan.h"

const wf_par_style wf_par_column = {
    .name = "column",
    .splits = (const wf_par_split[]){{"weight", 0}, {"bias", 0}, {NULL, 0}},
    .borders = (const wf_par_border[]){{"in", WF_PAR_WHOLE, 0, true}, {NULL, 0, 0, false}}};

const wf_par_style wf_par_row = {.name = "row",
                                 .splits = (const wf_par_split[]){{"weight", 1}, {NULL, 0}},
                                 .borders = (const wf_par_border[]){
                                     {"sum", WF_PAR_RESIDUAL, 1, false}, {NULL, 0, 0, false}}};

const wf_par_style wf_par_vocab = {
    .name = "vocab",
    .splits = (const wf_par_split[]){{"table", 0}, {NULL, 0}},
    .borders =
        (const wf_par_border[]){{"sum", WF_PAR_RESIDUAL, 1, false}, {NULL, 0, 0, false}}};

const wf_par_style wf_par_position = {
    .name = "position",
    .borders = (const wf_par_border[]){{"rows", WF_PAR_RESIDUAL, 0, false},
                                       {"positions", WF_PAR_RESIDUAL, 1, false},
                                       {NULL, 0, 0, false}}};

const wf_par_style wf_par_groups = {
    .name = "groups",
    .borders = (const wf_par_border[]){{"qkv", WF_PAR_GROUPS, 2, false}, {NULL, 0, 0, false}}};

const wf_par_style wf_par_loss = {
    .name = "loss",
    .borders = (const wf_par_border[]){
        {"max", WF_PAR_WHOLE, 0, false}, {"sum", WF_PAR_WHOLE, 0, false}, {NULL, 0, 0, false}}};
