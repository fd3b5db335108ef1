/*
 * my_plan.c - who holds what: a style for the feed-forward layer, and the model's plan.
 *
 * The style splits `up` by its rows and `down` by its columns, so a rank computes with its own
 * hidden units alone, and what "sum" sees is a partial sum. Two borders bring the layouts that
 * this needs: the input whole (its gradient is then summed over the ranks), and the sum taken.
 */
#include "mine.h"

const wf_par_style my_feed_forward_style = {
    .name = "my_feed_forward",
    .splits = (const wf_par_split[]){{"up", 0}, {"down", 1}, {NULL, 0}},
    .borders = (const wf_par_border[]){{"in", WF_PAR_WHOLE, 0, true},
                                       {"sum", WF_PAR_RESIDUAL, 1, false},
                                       {NULL, 0, 0, false}}};

const wf_par_rule my_plan[] = {{"embed", WF_VOCAB},
                               {"layer.*.feed", &my_feed_forward_style},
                               {"head", WF_COLUMN},
                               {"loss", WF_LOSS},
                               {NULL, NULL}};
