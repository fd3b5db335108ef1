/*
 * core/memory/host_memory.c - memory of the host, in blocks that can be extended where they
 * lie.
 *
 *     block, its bytes to be used | addresses that may not be touched, until the block is
 *     extended
 *
 * Addresses cost nothing, and one long block wastes less than many short ones: what was given
 * back lies together, so that a larger request fits.
 */
#include "core/memory/memory.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

/* In front of a large block. */
typedef struct reservation {
    _Alignas(ALIGN) size_t bytes; /* the length of the reserved addresses from here on */
} reservation;

static size_t round_up(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* As much as the machine has. */
static size_t machine_bytes(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Reserves `bytes` addresses from a huge page's boundary on; NULL where there are fewer. */
static void *reserve(size_t bytes)
{
    size_t before, all = bytes + HUGE_PAGE;
    char *at = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    before = (HUGE_PAGE - (size_t)at % HUGE_PAGE) % HUGE_PAGE;
    if (before)
        munmap(at, before);
    munmap(at + before + bytes, all - before - bytes);
    return at + before;
}

/* Let [at, at + bytes) of a reservation be used. */
static bool use(char *at, size_t bytes)
{
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    madvise(at, bytes, MADV_HUGEPAGE);
    return true;
}

static void *alloc_large(size_t bytes)
{
    size_t used = round_up(sizeof(reservation) + bytes), most = machine_bytes();
    size_t all = most > used ? round_up(most) : used;
    reservation *r = reserve(all);

    if (!r && all > used)
        r = reserve(all = used);
    if (!r)
        return NULL;
    if (!use((char *)r, used)) {
        munmap(r, all);
        return NULL;
    }
    r->bytes = all;
    return r + 1;
}

static void *host_alloc(void *self, size_t bytes)
{
    void *result = NULL;

    (void)self;
    if (bytes >= HUGE_PAGE)
        return alloc_large(bytes);
    return posix_memalign(&result, ALIGN, bytes) == 0 ? result : NULL;
}

static void host_release(void *self, void *block, size_t bytes)
{
    reservation *r = (reservation *)block - 1;

    (void)self;
    if (bytes >= HUGE_PAGE)
        munmap(r, r->bytes);
    else
        free(block);
}

static bool host_extend(void *self, void *block, size_t bytes, size_t more)
{
    reservation *r = (reservation *)block - 1;
    size_t used = round_up(sizeof *r + bytes), wanted = round_up(sizeof *r + bytes + more);

    (void)self;
    if (bytes < HUGE_PAGE || wanted > r->bytes)
        return false;
    return wanted == used || use((char *)r + used, wanted - used);
}

wf_allocator wf_host_allocator(void)
{
    return (wf_allocator){.alloc = host_alloc, .release = host_release, .extend = host_extend};
}
