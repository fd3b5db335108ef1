/* tests/allocations.c - see the header. */
#include "tests/allocations.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static int64_t left = INT64_MAX;
static bool matter = true;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
char *__wrap_strndup(const char *text, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void __wrap_free(void *block);

static bool runs_out(allocation_kind kind, size_t bytes)
{
    (void)bytes;
    return kind == ALLOCATION_HEAP && matter && left != INT64_MAX && left-- <= 0;
}

static const allocation_watch counting = {runs_out, NULL};
static const allocation_watch *watching = &counting;

void allocations_watch(const allocation_watch *watch)
{
    watching = watch;
}

static bool refused(allocation_kind kind, size_t bytes)
{
    return watching->refuses && watching->refuses(kind, bytes);
}

static void changed(int blocks)
{
    if (watching->changed && blocks)
        watching->changed(blocks);
}

/* Returns a block that was taken, or NULL, and counts it. */
static void *taken(void *block)
{
    changed(block != NULL);
    return block;
}

void *__wrap_malloc(size_t size)
{
    return refused(ALLOCATION_HEAP, size) ? NULL : taken(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refused(ALLOCATION_HEAP, count * size) ? NULL : taken(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    void *moved = refused(ALLOCATION_HEAP, size) ? NULL : __real_realloc(old, size);

    changed(!old && moved);
    return moved;
}

char *__wrap_strdup(const char *text)
{
    return refused(ALLOCATION_HEAP, strlen(text) + 1) ? NULL : taken(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t size)
{
    return refused(ALLOCATION_HEAP, size + 1) ? NULL : taken(__real_strndup(text, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return refused(ALLOCATION_ALIGNED, bytes) ? NULL
                                              : taken(__real_aligned_alloc(alignment, bytes));
}

int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes)
{
    int code = ENOMEM;

    if (!refused(ALLOCATION_ALIGNED, bytes))
        code = __real_posix_memalign(block, alignment, bytes);
    changed(code == 0);
    return code;
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (refused(ALLOCATION_MAP, bytes)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(at, bytes, protection, flags, file, offset);
}

void __wrap_free(void *block)
{
    changed(-(block != NULL));
    __real_free(block);
}

void allocations_matter(bool so)
{
    matter = so;
}

int64_t allocations_left(int64_t n)
{
    int64_t before = left;

    left = n;
    return before;
}
