/*
 * tests/cuda/emulator/launch.c - launches grids: as work of a stream, where their sizes are
 * those that a device has.
 */
#include "emulator.h"
#include <stdlib.h>

typedef struct launch {
    cudaLaunchConfig_t config;
    void (*body)(void *arg);
    void *arg;
    void (*drop)(void *arg);
} launch;

static void run_launch(void *arg)
{
    launch *l = arg;

    emulator_run_grid(&l->config, l->body, l->arg);
}

static void drop_launch(void *arg)
{
    launch *l = arg;

    l->drop(l->arg);
    free(l);
}

cudaError_t emulator_launch(const cudaLaunchConfig_t *c, void (*body)(void *arg), void *arg,
                            void (*drop)(void *arg))
{
    size_t threads = (size_t)c->blockDim.x * c->blockDim.y * c->blockDim.z;
    size_t blocks = (size_t)c->gridDim.x * c->gridDim.y * c->gridDim.z;
    size_t cluster = c->cluster ? c->cluster : 1; /* its blocks are whole warps */
    launch *l = malloc(sizeof *l);
    int device = 0, made_on = emulator_stream_device(c->stream);

    if (!l)
        emulator_die("no memory for a launch");
    *l = (launch){*c, body, arg, drop};
    if (threads == 0 || threads > EMULATOR_THREADS || blocks == 0 || c->gridDim.y > 65535 ||
        c->gridDim.z > 65535 || c->gridDim.x > INT32_MAX ||
        c->dynamicSmemBytes > EMULATOR_SHARED || cluster > EMULATOR_CLUSTER ||
        c->gridDim.x % cluster || (cluster > 1 && threads % EMULATOR_WARP) ||
        cluster * threads > EMULATOR_THREADS) {
        drop_launch(l);
        return emulator_error(cudaErrorInvalidConfiguration);
    }
    cudaGetDevice(&device);
    if (made_on >= 0 && made_on != device) {
        drop_launch(l);
        return emulator_error(cudaErrorInvalidResourceHandle);
    }
    return emulator_enqueue(c->stream, run_launch, l, drop_launch);
}
