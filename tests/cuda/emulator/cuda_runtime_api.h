/* tests/cuda/emulator/cuda_runtime_api.h - the same under CUDA's other name. */
#include "cuda_runtime.h"
