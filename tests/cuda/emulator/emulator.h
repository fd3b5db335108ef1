/*
 * tests/cuda/emulator/emulator.h - the inside of the emulated device, for its own files and for
 * emulated libraries (cuBLASLt, NCCL), which give their work to a stream by emulator_enqueue.
 */
#ifndef WF_TESTS_EMULATOR_EMULATOR_H
#define WF_TESTS_EMULATOR_EMULATOR_H

#include "cuda_runtime.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Queues work for a stream: run(arg) in the stream's order, with device memory open to it, then
 * drop(arg) (NULL: nothing). One piece of work runs at a time, on whatever thread waits for it.
 */
cudaError_t emulator_enqueue(cudaStream_t stream, void (*run)(void *arg), void *arg,
                             void (*drop)(void *arg));

/* The same with a copy of `bytes` at arg. */
cudaError_t emulator_enqueue_copy(cudaStream_t stream, void (*run)(void *arg), const void *arg,
                                  size_t bytes);

/* Work that waits for another stream's: attempt(arg) is called until it is true, with the lock
   left to others in between. */
cudaError_t emulator_enqueue_attempts(cudaStream_t stream, bool (*attempt)(void *arg),
                                      void *arg);

/* A grid of blocks: body(arg) once for every thread. */
cudaError_t emulator_launch(const cudaLaunchConfig_t *config, void (*body)(void *arg),
                            void *arg, void (*drop)(void *arg));

/* One lock for everything; it is recursive. */
void emulator_lock(void);
void emulator_unlock(void);
void emulator_nap(void); /* leaves it to other threads for a moment */

/* Returns true where work runs when it is given ($WEFT_EMULATOR). */
bool emulator_eager(void);

/* Keep the error as the last one and return it. */
cudaError_t emulator_error(cudaError_t error);

/* Print and abort: what a kernel or its caller did is undefined on a device. */
void emulator_die(const char *format, ...)
    __attribute__((__format__(__printf__, 1, 2), noreturn));

/* Plans of the emulated cuDNN that were run. */
long emulator_cudnn_runs(void);

/* Device memory: opened while work runs (calls nest), closed to all others. */
void emulator_memory_open(void);
void emulator_memory_close(void);
/* 1: [at, at + bytes) is inside of one allocation; 0: it is no device memory; -1: it leaves
   one */
int emulator_memory_holds(const void *at, size_t bytes);
void emulator_memory_totals(size_t *unused, size_t *total);

/* Memory of a graph: its address is the graph's as long as that lives, its contents begin anew
   with every launch, and it may be given back in the graph, in another one or after it. */
cudaError_t emulator_memory_take(void **at, size_t bytes, cudaGraph_t graph);
bool emulator_memory_is_of_graph(const void *at);
void emulator_memory_begin(void *at);            /* work: a launch takes it */
void emulator_memory_end_all(cudaGraph_t graph); /* frees the memory that the graph still has */
bool emulator_memory_any(cudaGraph_t graph);     /* returns true where there is such memory */
void emulator_memory_forget(cudaGraph_t graph);  /* the graph is gone */

/* The graph that records what this stream is given; NULL: none does. */
cudaGraph_t *emulator_stream_graph(cudaStream_t stream);
/* The device on which a stream was made; -1: the legacy stream, which every device has. */
int emulator_stream_device(cudaStream_t stream);
/* Keep work that a capturing stream was given; an error where the capture is lost. */
cudaError_t emulator_graph_record(cudaGraph_t graph, void (*run)(void *arg), void *arg,
                                  void (*drop)(void *arg));
/* True where the calling thread captures and must not do what it is about to; the capture is
   lost. */
bool emulator_graph_forbids(void);
void emulator_graph_lose(cudaGraph_t graph);

void emulator_run_grid(const cudaLaunchConfig_t *config, void (*body)(void *arg), void *arg);

/* The running thread's number in its cluster, its block's, and the shared memory of a block of
   that cluster. */
unsigned emulator_thread(void);
unsigned emulator_block_in_cluster(void);
char *emulator_shared_of(unsigned block);
/* Lets other threads run; notes that a wait may have ended. */
void emulator_pass_on(void);
void emulator_moved(void);
/* hopper.c: a cluster begins, and has ended. */
void emulator_copies_begin(void);
void emulator_copies_end(void);

enum {
    EMULATOR_CLUSTER = 2, /* most blocks of a cluster */
    EMULATOR_NAMED = 16,  /* barriers of a block that have a number */
    EMULATOR_WARP = 32,
    EMULATOR_THREADS = 1024, /* most threads of a block */
    EMULATOR_SHARED = 227 << 10,
    EMULATOR_PROCESSORS = 2,
    EMULATOR_DEVICES = 8
};

#ifdef __cplusplus
}
#endif

#endif
