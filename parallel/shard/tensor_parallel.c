/* parallel/shard/tensor_parallel.c - the styles of tensor parallelism. */
#include "parallel/shard/sharding_plan.h"

/* The first factor of an adapter of a column-parallel linear is whole, so its gradient is
   complete on each rank once what comes back of u = x A^T is summed; the second one is split as
   the linear is. */
const wf_par_style wf_par_column = {
    .name = "column",
    .splits = (const wf_par_split[]){{"weight", 0}, {"?bias", 0}, {"?lora_b", 0}, {NULL, 0}},
    .borders = (const wf_par_border[]){{"in", WF_PAR_WHOLE, 0, true},
                                       {"?lora_in", WF_PAR_HANDLE, 0, false},
                                       {"?lora", WF_PAR_WHOLE, 0, false},
                                       {NULL, 0, 0, false}}};

/* Both factors of an adapter of a row-parallel linear are split over what they sum, so that u
   and y are one partial sum each. */
const wf_par_style wf_par_row = {
    .name = "row",
    .splits = (const wf_par_split[]){{"weight", 1}, {"?lora_a", 1}, {"?lora_b", 1}, {NULL, 0}},
    .borders = (const wf_par_border[]){{"?lora", WF_PAR_SPLIT, 2, false},
                                       {"sum", WF_PAR_RESIDUAL, 1, false},
                                       {NULL, 0, 0, false}}};

const wf_par_style wf_par_vocab = {
    .name = "vocab",
    .splits = (const wf_par_split[]){{"table", 0}, {NULL, 0}},
    .borders =
        (const wf_par_border[]){{"sum", WF_PAR_RESIDUAL, 1, false}, {NULL, 0, 0, false}}};

const wf_par_style wf_par_position = {
    .name = "position",
    .borders = (const wf_par_border[]){{"rows", WF_PAR_CONTEXT, 0, false},
                                       {"positions", WF_PAR_CONTEXT, 1, false},
                                       {"rows", WF_PAR_RESIDUAL, 0, false},
                                       {"positions", WF_PAR_RESIDUAL, 1, false},
                                       {NULL, 0, 0, false}}};

const wf_par_style wf_par_groups = {
    .name = "groups",
    .splits = (const wf_par_split[]){{"?sinks", 0}, {NULL, 0}},
    .borders = (const wf_par_border[]){{"?heads", WF_PAR_HEADS, 2, false},
                                       {"qkv", WF_PAR_GROUPS, 2, false},
                                       {"?sinks", WF_PAR_SINKS, 2, false},
                                       {"?attend", WF_PAR_ATTEND, 1, false},
                                       {"?tokens", WF_PAR_TOKENS, 1, false},
                                       {NULL, 0, 0, false}}};

const wf_par_style wf_par_wide_norm = {
    .name = "wide norm",
    .borders = (const wf_par_border[]){
        {"in", WF_PAR_WHOLE, 0, false}, {"out", WF_PAR_SPLIT, 2, false}, {NULL, 0, 0, false}}};

const wf_par_style wf_par_loss = {
    .name = "loss",
    .borders = (const wf_par_border[]){
        {"max", WF_PAR_WHOLE, 0, false}, {"sum", WF_PAR_WHOLE, 0, false}, {NULL, 0, 0, false}}};

/* Tokens are whole for experts and router. The router is whole on each rank, and so is its
   gradient, once those of the weights, which each expert's rank has of its own choices, are
   summed at "weights". Data-parallel ranks that split experts gather the tokens of all of them
   at "dispatch". */
const wf_par_style wf_par_experts = {
    .name = "experts",
    .splits = (const wf_par_split[]){{"gate", 0},
                                     {"up", 0},
                                     {"down", 0},
                                     {"?lora_gate_up_a", 0},
                                     {"?lora_gate_b", 0},
                                     {"?lora_up_b", 0},
                                     {"?lora_down_a", 0},
                                     {"?lora_down_b", 0},
                                     {NULL, 0}},
    .features = (const wf_par_split[]){{"gate", 1},
                                       {"up", 1},
                                       {"down", 2},
                                       {"?lora_gate_b", 1},
                                       {"?lora_up_b", 1},
                                       {"?lora_down_a", 2},
                                       {NULL, 0}},
    .borders = (const wf_par_border[]){{"in", WF_PAR_WHOLE, 0, true},
                                       {"router", WF_PAR_HANDLE, 0, false},
                                       {"weights", WF_PAR_WHOLE, 0, false},
                                       {"dispatch", WF_PAR_DISPATCH, 0, false},
                                       {"arrived", WF_PAR_ARRIVE, 0, false},
                                       {"experts", WF_PAR_FEATURES, 1, false},
                                       {"sum", WF_PAR_COMBINE, 1, false},
                                       {"summed", WF_PAR_ARRIVE, 1, false},
                                       {"gate", WF_PAR_RESIDUAL, 1, false},
                                       {NULL, 0, 0, false}},
    .experts = true};
