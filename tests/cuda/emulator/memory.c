/*
 * tests/cuda/emulator/memory.c - the device's memory: one range of addresses that may be
 * touched only while work of a stream runs.
 *
 * New memory and memory that was given back hold NaN patterns. After every allocation lies a
 * zone of the same, which must not change; under AddressSanitizer it is out of bounds as well.
 */
#include "core/memory/poison_internal.h"
#include "emulator.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 256, ZONE = 256, MOST = 1 << 20, HUGE_PAGE = 2 << 20, LARGE = 16 << 20 };

static const size_t reserved = (size_t)64 << 30; /* so many addresses */

typedef struct allocation {
    char *at;
    size_t bytes;
    cudaGraph_t graph; /* the graph that owns it; NULL: nobody's but the program's */
    bool given;        /* a graph's that is not taken now, but whose address is kept */
    cudaStream_t back; /* on this stream of a capture it was given back; NULL: it was not */
} allocation;

static struct {
    char *base;
    size_t end;   /* the end of what was ever handed out */
    size_t used;  /* up to here all that is not live holds the pattern */
    size_t total; /* bytes that the device says it has */
    size_t live;
    allocation *list; /* by address */
    size_t n, room, hint;
    int open;
} memory;

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void prepare(void)
{
    const char *said = getenv("WEFT_EMULATOR_MEMORY");

    if (memory.base)
        return;
    memory.total = said ? (size_t)strtoull(said, NULL, 10) : (size_t)2 << 30;
    memory.base =
        mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory.base == MAP_FAILED)
        emulator_die("no addresses for the memory of a device");
    /* It is opened and closed all the time: a huge page at once, where the system has some. */
    memory.base += (size_t)(-(uintptr_t)memory.base % HUGE_PAGE);
    (void)madvise(memory.base, reserved - HUGE_PAGE, MADV_HUGEPAGE);
}

static void protect(int rights)
{
    if (memory.end && mprotect(memory.base, memory.end, rights) != 0)
        emulator_die("cannot open or close the memory of the device");
}

void emulator_memory_open(void)
{
    if (memory.open++ == 0)
        protect(PROT_READ | PROT_WRITE);
}

void emulator_memory_close(void)
{
    if (--memory.open == 0)
        protect(PROT_NONE);
}

/* The index of the first allocation after `at`. */
static size_t after(const char *at)
{
    size_t low = 0, high = memory.n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (memory.list[middle].at > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int emulator_memory_holds(const void *pointer, size_t bytes)
{
    const char *at = pointer;
    const allocation *a;
    size_t i;
    int held = -1;

    emulator_lock();
    i = after(at);
    if (!memory.base || at < memory.base || at >= memory.base + reserved) {
        held = 0;
    } else if (i > 0) {
        a = &memory.list[i - 1];
        held = at + bytes <= a->at + a->bytes ? 1 : -1;
    }
    emulator_unlock();
    return held;
}

void emulator_memory_totals(size_t *unused, size_t *total)
{
    prepare();
    *total = memory.total;
    *unused = memory.live < memory.total ? memory.total - memory.live : 0;
}

/* Return the begin and the end of the gap after allocation i. */
static char *gap_begin(size_t i)
{
    return i == 0 ? memory.base
                  : memory.list[i - 1].at + round_up(memory.list[i - 1].bytes + ZONE, ALIGN);
}

static char *gap_end(size_t i)
{
    return i == memory.n ? memory.base + memory.end : memory.list[i].at;
}

/* From where the last one was found on, so that memory is not taken again at once; new
   addresses only where no old ones are left, since all of them are opened and closed
   together. */
static size_t find_gap(size_t need)
{
    char *last = gap_begin(memory.n);

    for (size_t k = 0; k <= memory.n; k++) {
        size_t i = (memory.hint + k) % (memory.n + 1);

        if (gap_end(i) >= gap_begin(i) + need)
            return i;
    }
    if (last + need > memory.base + reserved - HUGE_PAGE)
        emulator_die("the device's addresses are used up");
    memory.end = round_up((size_t)(last + need - memory.base), (size_t)4 << 20);
    return memory.n;
}

static void insert(size_t i, char *at, size_t bytes)
{
    if (memory.n == memory.room) {
        memory.room = memory.room ? 2 * memory.room : 256;
        memory.list = realloc(memory.list, memory.room * sizeof *memory.list);
        if (!memory.list || memory.room > MOST)
            emulator_die("no memory for the list of allocations");
    }
    memmove(memory.list + i + 1, memory.list + i, (memory.n - i) * sizeof *memory.list);
    memory.list[i] = (allocation){.at = at, .bytes = bytes};
    memory.n++;
    memory.hint = i + 1;
}

cudaError_t emulator_memory_take(void **at, size_t bytes, cudaGraph_t graph)
{
    cudaError_t error = cudaSuccess;
    size_t need = round_up(bytes + ZONE, ALIGN), i;
    char *found;

    emulator_lock();
    prepare();
    *at = NULL;
    if (bytes > memory.total || memory.live > memory.total - bytes) {
        error = emulator_error(cudaErrorMemoryAllocation);
    } else if (bytes) {
        i = find_gap(need);
        found = gap_begin(i);
        memory.open++; /* a new allocation is opened with it */
        protect(PROT_READ | PROT_WRITE);
        WF_UNPOISON(found, need);
        if (memory.used < (size_t)(found - memory.base) + need) {
            memset(memory.base + memory.used, 0xff,
                   (size_t)(found - memory.base) + need - memory.used);
            memory.used = (size_t)(found - memory.base) + need;
        }
        WF_POISON(found + bytes, need - bytes);
        emulator_memory_close();
        insert(i, found, bytes);
        memory.list[i].graph = graph;
        memory.list[i].given = graph != NULL; /* until the first launch */
        memory.live += bytes;
        *at = found;
    }
    emulator_unlock();
    return error;
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    return emulator_graph_forbids() ? emulator_error(cudaErrorStreamCaptureUnsupported)
                                    : emulator_memory_take(at, bytes, NULL);
}

/* Nothing was written after an allocation, and nothing will be read of it. */
static void retire(const allocation *a)
{
    size_t zone = round_up(a->bytes + ZONE, ALIGN) - a->bytes;

    WF_UNPOISON(a->at + a->bytes, zone);
    for (size_t i = 0; i < zone; i++)
        if ((unsigned char)a->at[a->bytes + i] != 0xff)
            emulator_die("byte %zu of an allocation of %zu bytes was written", a->bytes + i,
                         a->bytes);
    memset(a->at, 0xff, a->bytes);
    WF_POISON(a->at, a->bytes + zone);
}

static allocation *allocation_at(const void *at)
{
    size_t i = after(at);

    return i > 0 && memory.list[i - 1].at == at ? &memory.list[i - 1] : NULL;
}

static void take_off_list(allocation *a)
{
    size_t i = (size_t)(a - memory.list);

    memory.live -= a->bytes;
    memmove(a, a + 1, (memory.n - i - 1) * sizeof *a);
    memory.n--;
    if (memory.hint > i)
        memory.hint--;
}

static void release(void *at)
{
    allocation *a = allocation_at(at);

    if (!a || a->given)
        emulator_die("%p is given back, but was not taken or is back already", at);
    retire(a);
    if (a->graph)
        a->given = true;
    else
        take_off_list(a);
}

bool emulator_memory_is_of_graph(const void *at)
{
    const allocation *a;
    bool is;

    emulator_lock();
    a = allocation_at(at);
    is = a && a->graph;
    emulator_unlock(); /* the list may move from here on */
    return is;
}

void emulator_memory_begin(void *at)
{
    allocation *a = allocation_at(at);

    WF_UNPOISON(a->at, a->bytes);
    a->given = false;
}

bool emulator_memory_any(cudaGraph_t graph)
{
    for (size_t i = 0; i < memory.n; i++)
        if (memory.list[i].graph == graph && !memory.list[i].given)
            return true;
    return false;
}

void emulator_memory_end_all(cudaGraph_t graph)
{
    for (size_t i = 0; i < memory.n; i++)
        if (memory.list[i].graph == graph && !memory.list[i].given)
            release(memory.list[i].at);
}

/* Makes allocations that the graph still has memory like any other. */
void emulator_memory_forget(cudaGraph_t graph)
{
    for (size_t i = memory.n; i-- > 0;) {
        allocation *a = &memory.list[i];

        if (a->graph == graph && a->given)
            take_off_list(a);
        else if (a->graph == graph)
            a->graph = NULL;
    }
}

cudaError_t cudaFree(void *at)
{
    if (emulator_graph_forbids())
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    if (!at)
        return cudaSuccess;
    emulator_lock();
    cudaDeviceSynchronize();
    emulator_memory_open();
    release(at);
    emulator_memory_close();
    emulator_unlock();
    return cudaSuccess;
}

/* Takes memory of a graph that an earlier node of the same stream gives back, as a pool of
   graphs does; NULL where there is none of that size. */
static void *take_again(size_t bytes, cudaGraph_t graph, cudaStream_t stream)
{
    for (size_t i = 0; i < memory.n; i++) {
        allocation *a = &memory.list[i];

        if (a->graph == graph && a->back == stream && a->bytes == bytes) {
            a->back = NULL;
            return a->at;
        }
    }
    return NULL;
}

/* A pool may give memory out that a stream has yet to give back, if it is of the same stream:
   here memory is only ever new. Large memory is first given back, else work that is done late
   would have much of it. */
cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t stream)
{
    cudaGraph_t graph = *emulator_stream_graph(stream);
    cudaError_t error;

    if (!graph && bytes >= LARGE)
        cudaStreamSynchronize(stream);
    emulator_lock();
    *at = graph && stream ? take_again(bytes, graph, stream) : NULL;
    emulator_unlock();
    error = *at ? cudaSuccess : emulator_memory_take(at, bytes, graph);
    if (error == cudaErrorMemoryAllocation && !graph) { /* work may bring some back */
        cudaStreamSynchronize(stream);
        error = emulator_memory_take(at, bytes, NULL);
        if (error == cudaSuccess)
            cudaGetLastError();
    }
    return error == cudaSuccess && graph && *at
               ? emulator_enqueue(stream, emulator_memory_begin, *at, NULL)
               : error;
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t stream)
{
    cudaGraph_t graph = *emulator_stream_graph(stream);

    if (!at)
        return cudaSuccess;
    if (emulator_memory_holds(at, 1) != 1 || (graph && !emulator_memory_is_of_graph(at))) {
        if (graph) /* it gives back what graphs took, and nothing else */
            emulator_graph_lose(graph);
        return emulator_error(cudaErrorInvalidValue);
    }
    if (graph) {
        emulator_lock();
        allocation_at(at)->back = stream;
        emulator_unlock();
    }
    return emulator_enqueue(stream, release, at, NULL);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    emulator_lock();
    emulator_memory_totals(unused, total);
    emulator_unlock();
    return cudaSuccess;
}
