/*
 * kernels/cuda/cudnn/library.c - libcudnn.so.9 (on the emulated GPU the emulator's), found when
 * it is first asked for. A machine with CUDA and without cuDNN runs all the same: our kernels
 * serve attention then.
 */
#include "kernels/cuda/cudnn/graph_internal.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifdef WF_CUDA_EMULATED
#define LIBRARY "libcuda_emulator.so"
#else
#define LIBRARY "libcudnn.so.9"
#endif

static wf_cudnn_api api;
static char problem[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Releases whose attention is known to be wrong (their release notes say so). */
static bool is_refused(size_t version)
{
    return version < 90600 || version == 91000 || version == 91001 || version == 91400;
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (!found && !problem[0])
        snprintf(problem, sizeof problem, LIBRARY " has no %s", name);
    return found;
}

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;

    if (!library) {
        snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
#define WF_CUDNN_FIND(name)                                                                    \
    found = symbol(library, #name);                                                            \
    memcpy(&api.name, &found, sizeof found);
    WF_CUDNN_FUNCTIONS(WF_CUDNN_FIND)
#undef WF_CUDNN_FIND
    if (!problem[0] && is_refused(api.cudnnGetVersion()))
        snprintf(problem, sizeof problem,
                 "cuDNN %zu is not used: attention needs 9.6 or later, and 9.10.0, 9.10.1 and "
                 "9.14.0 compute it wrong",
                 api.cudnnGetVersion());
}

const wf_cudnn_api *wf_cudnn_load(const char **why)
{
    pthread_once(&once, load);
    *why = problem;
    return problem[0] ? NULL : &api;
}
