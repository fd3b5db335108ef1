/* nn/optim/lion.c - Lion (Chen et al. 2023, "Symbolic discovery of optimization algorithms") as
   rows; its function is kernels/update_steps.c's. docs/examples/lion.c has one of its own, to
   copy. */
#include "nn/optim/method_internal.h"

const wf_nn_method_row wf_nn_lion = {"lion", .states = 1,
                                     .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2,
                                     .elements = wf_update_lion, .captured = true};
const wf_nn_method_row wf_nn_lion8bit = {"lion8bit",
                                         .states = 1,
                                         .state = {WF_DYNAMIC8},
                                         .uses = WF_NN_USES_BETA1 | WF_NN_USES_BETA2,
                                         .elements = wf_update_lion,
                                         .captured = true};
