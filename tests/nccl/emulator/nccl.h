/*
 * tests/nccl/emulator/nccl.h - the part of NCCL that mesh/transport/nccl calls, on the CPU and
 * over shared memory, so that ranks may be threads or processes. As on GPUs: a call only puts
 * work on its stream, which blocks until its peers have joined, or its communicator is aborted;
 * communicators are made while one polls; and a peer that is gone is not reported.
 *
 * $WEFT_EMULATED_NCCL_FAULT = "error RANK CALLS" or "hang RANK CALLS": from the CALLS-th call
 * on, that rank's communicators report an error, or its work blocks.
 */
#ifndef WF_TESTS_NCCL_EMULATOR_NCCL_H
#define WF_TESTS_NCCL_EMULATOR_NCCL_H

#include <cuda_runtime_api.h>

#define NCCL_VERSION(X, Y, Z) ((X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE     NCCL_VERSION(2, 28, 0)

enum { NCCL_UNIQUE_ID_BYTES = 128, NCCL_SPLIT_NOCOLOR = -1 };
enum { NCCL_WIN_COLL_SYMMETRIC = 1, NCCL_WIN_REQUIRED_ALIGNMENT = 4096 };
enum { NCCL_CTA_POLICY_ZERO = 2 };

typedef struct ncclWindow *ncclWindow_t;

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef enum { ncclInt8 = 0, ncclFloat32 = 7, ncclBfloat16 = 9 } ncclDataType_t;
typedef enum { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;

typedef struct ncclConfig {
    int blocking;
    const char *commName;
    int CTAPolicy;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                \
    {                                                                                          \
        .blocking = 1                                                                          \
    }

const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetVersion(int *version); /* $WEFT_EMULATED_NCCL_VERSION, or that above */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child,
                           ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);

/*
 * Memory that is registered. The rules of NCCL are kept by abort() and a line that names the
 * broken one: windows are memory of ncclMemAlloc, of one size on all members, which register
 * together; a collective finds both of its buffers in one window of its communicator, or
 * neither in such memory, and in all members at one offset; a window ends before its
 * communicator does, and before its memory.
 */
ncclResult_t ncclMemAlloc(void **block, size_t bytes);
ncclResult_t ncclMemFree(void *block);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *block, size_t bytes,
                                    ncclWindow_t *window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

#endif
