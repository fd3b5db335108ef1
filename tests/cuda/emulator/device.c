/* tests/cuda/emulator/device.c - the devices, which are alike and share all memory; names of errors. */
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    prop->major = 9;
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
