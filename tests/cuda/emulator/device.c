/*
 * tests/cuda/emulator/device.c - the devices, which are alike and share all memory; their
 * memory pools, which hold nothing; errors and their names.
 */
#include "emulator.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local cudaError_t last_error;

void emulator_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("emulated device: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

cudaError_t emulator_error(cudaError_t error)
{
    last_error = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* WEFT_EMULATOR_DEVICES=n in the environment: so many; 0: a driver without a device. */
cudaError_t cudaGetDeviceCount(int *count)
{
    const char *said = getenv("WEFT_EMULATOR_DEVICES");

    *count = said ? atoi(said) : 1;
    if (*count > EMULATOR_DEVICES)
        emulator_die("%d devices: there are at most %d", *count, EMULATOR_DEVICES);
    return *count > 0 ? cudaSuccess : emulator_error(cudaErrorNoDevice);
}

static cudaError_t check(int device)
{
    int count = 0;

    cudaGetDeviceCount(&count);
    return device >= 0 && device < count ? cudaSuccess : emulator_error(cudaErrorInvalidDevice);
}

static _Thread_local int current;

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = check(device);

    if (error == cudaSuccess)
        current = device;
    return error;
}

/* WEFT_EMULATOR_PEERS=0: none can read another's memory. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    const char *said = getenv("WEFT_EMULATOR_PEERS");
    cudaError_t error = check(device);

    if (error == cudaSuccess)
        error = check(peer);
    *can = error == cudaSuccess && device != peer && !(said && atoi(said) == 0);
    return error;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

/* WEFT_EMULATOR_CAPABILITY=90 in the environment: a Hopper; 80 without it. */
static int capability(void)
{
    const char *said = getenv("WEFT_EMULATOR_CAPABILITY");

    return said ? atoi(said) : 80;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    size_t unused;

    if (check(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    memset(prop, 0, sizeof *prop);
    strcpy(prop->name, "emulated on the CPU");
    emulator_lock();
    emulator_memory_totals(&unused, &prop->totalGlobalMem);
    emulator_unlock();
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = EMULATOR_SHARED;
    prop->warpSize = EMULATOR_WARP;
    prop->maxThreadsPerBlock = EMULATOR_THREADS;
    prop->major = capability() / 10;
    prop->minor = capability() % 10;
    prop->multiProcessorCount = EMULATOR_PROCESSORS;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->l2CacheSize = 1 << 20;
    prop->pciBusID = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);

    if (error != cudaSuccess)
        return error;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
    default:
        return emulator_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int device)
{
    cudaError_t error = check(device);

    if (error == cudaSuccess)
        snprintf(text, (size_t)room, "0000:%02x:00.0", (unsigned)device);
    return error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t emulator_shared_limit(size_t bytes);

cudaError_t emulator_shared_limit(size_t bytes)
{
    return bytes <= EMULATOR_SHARED ? cudaSuccess : emulator_error(cudaErrorInvalidValue);
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].error == error)
            return texts[i].name;
    return "unknown error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].error == error)
            return texts[i].text;
    return "unrecognized error code";
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    static char pools[EMULATOR_DEVICES];
    int count = 0;

    cudaGetDeviceCount(&count);
    if (device < 0 || device >= count)
        return emulator_error(cudaErrorInvalidDevice);
    *pool = (cudaMemPool_t)(void *)&pools[device];
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list,
                                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int device = list[i].location.id, can = 0;
        cudaMemPool_t own;

        if (cudaDeviceGetDefaultMemPool(&own, device) != cudaSuccess || own == pool ||
            cudaDeviceCanAccessPeer(&can, device, device ? 0 : 1) != cudaSuccess || !can)
            return emulator_error(cudaErrorInvalidDevice);
    }
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
    return pool && value && attr == cudaMemPoolAttrReleaseThreshold
               ? cudaSuccess
               : emulator_error(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    (void)keep;
    return pool ? cudaSuccess : emulator_error(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}
