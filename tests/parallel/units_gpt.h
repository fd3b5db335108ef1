/* tests/parallel/units_gpt.h - the small GPT that tests of units cut up. */
#ifndef WF_TESTS_PARALLEL_UNITS_GPT_H
#define WF_TESTS_PARALLEL_UNITS_GPT_H

#include "parallel/models/gpt/gpt.h"
#include "tests/parallel/part.h"

enum { LAYERS = 4, TOKENS = 8, VOCABULARY = 67 };

static const wf_nn_gpt_config tiny = {WF_NN_GPT2,          .vocabulary = VOCABULARY,
                                      .positions = TOKENS, .layers = LAYERS,
                                      .heads = 3,          .kv_heads = 3,
                                      .width = 12,         .ffn = 20};

#endif
