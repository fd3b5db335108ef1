/*
 * tests/core/test_memory.c - the pool: classes, accounting, limit and a failing device.
 *
 * ctest: builds plain address thread
 */
#include "core/memory/blocks.h"
#include "core/memory/size_class_internal.h"
#include "tests/core/pool_allocator.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>

static void counts_in_64(void)
{
    static const size_t ask[] = {0, 1, 63, 64, 65, 128, 1000},
                        counted[] = {64, 64, 64, 64, 128, 128, 1024};
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    void *block[7];
    size_t sum = 0;

    for (int i = 0; i < 7; i++) {
        block[i] = wf_pool_take(pool, ask[i], WF_MEMORY_BUFFER, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(block[i]);
        CU_ASSERT_EQUAL((uintptr_t)block[i] % 64, 0);
        memset(block[i], i, ask[i]);
        sum += counted[i];
        CU_ASSERT_EQUAL(report_of(pool).in_use, sum);
    }
    for (int i = 0; i < 7; i++) {
        for (size_t b = 0; b < ask[i]; b++)
            CU_ASSERT_EQUAL_FATAL(((unsigned char *)block[i])[b], i);
        wf_pool_give(pool, block[i], ask[i], WF_MEMORY_BUFFER);
    }
    CU_ASSERT_EQUAL(report_of(pool).in_use, 0);
    wf_pool_give(pool, NULL, 100, WF_MEMORY_BUFFER); /* nothing to give back */
    CU_ASSERT_EQUAL(report_of(pool).in_use, 0);
    close_pool(pool, &l);
}

/* The class of a request: as large as asked, at most an eighth larger, never smaller for
   more. */
static void class_of(size_t bytes, int *last)
{
    size_t asked = wf_block_bytes(bytes), got;
    int c = wf_size_class(asked);

    CU_ASSERT_TRUE_FATAL(c >= *last && c < WF_SIZE_CLASSES);
    got = wf_class_bytes(c);
    CU_ASSERT_TRUE(asked >= bytes && asked - bytes < 65 && asked % 64 == 0);
    CU_ASSERT_TRUE(got >= asked && got - asked <= asked / 8 && got % 64 == 0);
    CU_ASSERT_TRUE(c == 0 || wf_class_bytes(c - 1) < asked);
    CU_ASSERT_EQUAL(wf_size_class(got), c);
    if (asked < 16 * 64)
        CU_ASSERT_EQUAL(got, asked);
    *last = c;
}

static void size_classes(void)
{
    int last = 0;

    for (size_t bytes = 0; bytes < 9000; bytes += 31)
        class_of(bytes, &last);
    for (int shift = 14; shift < 62; shift++) {
        class_of(((size_t)1 << shift) - 64, &last);
        class_of((size_t)1 << shift, &last);
        class_of(((size_t)1 << shift) + 1, &last);
        class_of((size_t)3 << (shift - 1), &last);
    }
}

static void kinds_and_peak(void)
{
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    void *parameter = wf_pool_take(pool, 640, WF_MEMORY_PARAMETER, NULL);
    void *gradient = wf_pool_take(pool, 320, WF_MEMORY_GRADIENT, NULL);
    void *activation;
    wf_memory_report r;

    wf_pool_give(pool, gradient, 320, WF_MEMORY_GRADIENT);
    activation = wf_pool_take(pool, 192, WF_MEMORY_ACTIVATION, NULL);
    r = report_of(pool);
    CU_ASSERT_EQUAL(r.now[WF_MEMORY_PARAMETER], 640);
    CU_ASSERT_EQUAL(r.now[WF_MEMORY_GRADIENT], 0);
    CU_ASSERT_EQUAL(r.now[WF_MEMORY_ACTIVATION], 192);
    CU_ASSERT_EQUAL(r.in_use, 832);
    CU_ASSERT_EQUAL(r.peak, 960);
    CU_ASSERT_EQUAL(r.at_peak[WF_MEMORY_PARAMETER], 640);
    CU_ASSERT_EQUAL(r.at_peak[WF_MEMORY_GRADIENT], 320);
    CU_ASSERT_EQUAL(r.at_peak[WF_MEMORY_ACTIVATION], 0);
    CU_ASSERT_EQUAL(r.most[WF_MEMORY_GRADIENT], 320);
    CU_ASSERT_EQUAL(r.most[WF_MEMORY_ACTIVATION], 192);
    wf_pool_reset_peak(pool);
    r = report_of(pool);
    CU_ASSERT_EQUAL(r.peak, 832);
    CU_ASSERT_EQUAL(r.at_peak[WF_MEMORY_ACTIVATION], 192);
    CU_ASSERT_EQUAL(r.most[WF_MEMORY_GRADIENT], 0);
    wf_pool_give(pool, activation, 192, WF_MEMORY_ACTIVATION);
    wf_pool_give(pool, parameter, 640, WF_MEMORY_PARAMETER);
    CU_ASSERT_EQUAL(report_of(pool).peak, 832);
    close_pool(pool, &l);
}

/* The peak keeps the names that it had, whatever becomes of the texts. */
static void moment_of_the_peak(void)
{
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    char module[2 * WF_MEMORY_MODULE] = "block.7.mlp";
    void *block;

    CU_ASSERT_STRING_EQUAL(report_of(pool).phase, "");
    wf_pool_moment(pool, "backward", module);
    block = wf_pool_take(pool, 640, WF_MEMORY_GRADIENT, NULL);
    wf_pool_give(pool, block, 640, WF_MEMORY_GRADIENT);
    strcpy(module, "gone");
    wf_pool_moment(pool, "optimizer", NULL);
    block = wf_pool_take(pool, 640, WF_MEMORY_GRADIENT, NULL); /* as much, but not more */
    CU_ASSERT_STRING_EQUAL(report_of(pool).phase, "backward");
    CU_ASSERT_STRING_EQUAL(report_of(pool).module, "block.7.mlp");
    wf_pool_reset_peak(pool);
    CU_ASSERT_STRING_EQUAL(report_of(pool).phase, "optimizer");
    CU_ASSERT_STRING_EQUAL(report_of(pool).module, "");
    memset(module, 'x', sizeof module - 1);
    wf_pool_give(pool, block, 640, WF_MEMORY_GRADIENT);
    wf_pool_moment(pool, "forward", module);
    block = wf_pool_take(pool, 1280, WF_MEMORY_GRADIENT, NULL);
    CU_ASSERT_EQUAL(strlen(report_of(pool).module), WF_MEMORY_MODULE - 1); /* cut */
    wf_pool_give(pool, block, 1280, WF_MEMORY_GRADIENT);
    close_pool(pool, &l);
}

static void limit(void)
{
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 1024);
    void *a = wf_pool_take(pool, 256, WF_MEMORY_ACTIVATION, NULL);
    void *p = wf_pool_take(pool, 512, WF_MEMORY_PARAMETER, NULL);
    wf_error error = {WF_OK, ""};

    CU_ASSERT_PTR_NULL(wf_pool_take(pool, 257, WF_MEMORY_GRADIENT, &error));
    CU_ASSERT_EQUAL(error.code, WF_ENOMEM);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "257 bytes for gradients"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "768 were in use, most for parameters: 512,"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "limit of 1024"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "use a smaller micro-batch or more ranks"));
    CU_ASSERT_EQUAL(report_of(pool).in_use, 768);
    CU_ASSERT_EQUAL(report_of(pool).now[WF_MEMORY_GRADIENT], 0);
    wf_pool_give(pool, p, 512, WF_MEMORY_PARAMETER);
    p = wf_pool_take(pool, 768, WF_MEMORY_PARAMETER, NULL); /* cached blocks do not count */
    CU_ASSERT_PTR_NOT_NULL(p);
    CU_ASSERT_EQUAL(report_of(pool).in_use, 1024);
    CU_ASSERT_PTR_NULL(wf_pool_take(pool, 0, WF_MEMORY_BUFFER, NULL));
    wf_pool_give(pool, p, 768, WF_MEMORY_PARAMETER);
    wf_pool_give(pool, a, 256, WF_MEMORY_ACTIVATION);
    close_pool(pool, &l);
}

static void round_of_blocks(wf_pool *pool)
{
    enum { N = 50 };
    void *block[N];

    for (size_t i = 0; i < N; i++)
        block[i] = wf_pool_take(pool, 97 * i * i, WF_MEMORY_ACTIVATION, NULL);
    for (size_t i = 0; i < N; i++)
        wf_pool_give(pool, block[i], 97 * i * i, WF_MEMORY_ACTIVATION);
}

static void serves_again(void)
{
    logging_allocator l = {.room = SIZE_MAX, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    wf_memory_report first;

    round_of_blocks(pool);
    first = report_of(pool);
    CU_ASSERT_EQUAL(first.system_allocations, l.calls);
    CU_ASSERT_EQUAL(first.cached, l.in_use);
    round_of_blocks(pool);
    CU_ASSERT_EQUAL(report_of(pool).cached, first.cached);
    CU_ASSERT_EQUAL(l.calls, first.system_allocations);
    close_pool(pool, &l);
}

static void failing_allocator(void)
{
    const size_t mb = 1 << 20;
    logging_allocator l = {.room = 4 * mb, .real = true};
    wf_pool *pool = open_pool(&l, 0);
    void *a = wf_pool_take(pool, 2 * mb, WF_MEMORY_ACTIVATION, NULL), *b;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_PTR_NULL(wf_pool_take(pool, 2 * mb, WF_MEMORY_BUFFER, &error));
    CU_ASSERT_EQUAL(error.code, WF_ENOMEM);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "2097152 bytes for communication buffers"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "the device had no more"));
    CU_ASSERT_EQUAL(report_of(pool).in_use, 2 * mb);
    b = wf_pool_take(pool, 100 * 1000, WF_MEMORY_BUFFER, NULL); /* less than a region is left */
    CU_ASSERT_PTR_NOT_NULL(b);
    wf_pool_give(pool, b, 100 * 1000, WF_MEMORY_BUFFER);
    wf_pool_give(pool, a, 2 * mb, WF_MEMORY_ACTIVATION);

    /* The unused regions are in the way, and go. */
    b = wf_pool_take(pool, 4 * mb - 4096, WF_MEMORY_BUFFER, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    CU_ASSERT_TRUE(report_of(pool).cached < 4096);
    CU_ASSERT_EQUAL(report_of(pool).system_allocations, l.calls);
    wf_pool_give(pool, b, 4 * mb - 4096, WF_MEMORY_BUFFER);
    close_pool(pool, &l);
}

static void absurd_sizes(void)
{
    static const size_t ask[] = {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2, SIZE_MAX / 4 + 1};
    logging_allocator l = {.room = SIZE_MAX};
    wf_pool *pool = open_pool(&l, 0);

    for (int i = 0; i < 4; i++) {
        wf_error error = {WF_OK, ""};

        CU_ASSERT_PTR_NULL(wf_pool_take(pool, ask[i], WF_MEMORY_BUFFER, &error));
        CU_ASSERT_EQUAL(error.code, WF_ENOMEM);
    }
    CU_ASSERT_EQUAL(l.calls, 0);
    close_pool(pool, &l);
    wf_pool_close(NULL);
}

static void host_memory(void)
{
    wf_allocator host = wf_host_allocator();

    for (size_t bytes = 64; bytes <= (size_t)8 << 20; bytes *= 2) {
        unsigned char *block = host.alloc(host.self, bytes);

        CU_ASSERT_PTR_NOT_NULL_FATAL(block);
        CU_ASSERT_EQUAL((uintptr_t)block % 64, 0);
        block[0] = block[bytes - 1] = 1;
        host.release(host.self, block, bytes);
    }
    CU_ASSERT_STRING_EQUAL(wf_memory_kind_name(WF_MEMORY_OPTIMIZER), "optimizer state");
    CU_ASSERT_STRING_EQUAL(wf_memory_kind_name(WF_MEMORY_KINDS), "unknown kind");
}

/* A large block grows where it lies, as far as the machine has memory; a small one does not. */
static void host_memory_extends(void)
{
    const size_t bytes = 3 << 20, more = 50 << 20;
    wf_allocator host = wf_host_allocator();
    unsigned char *block = host.alloc(host.self, bytes), *small = host.alloc(host.self, 4096);

    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    CU_ASSERT_PTR_NOT_NULL_FATAL(small);
    memset(block, 5, bytes);
    CU_ASSERT_TRUE_FATAL(host.extend(host.self, block, bytes, more));
    memset(block + bytes, 6, more);
    CU_ASSERT_TRUE(block[0] == 5 && block[bytes - 1] == 5 && block[bytes + more - 1] == 6);
    CU_ASSERT_FALSE(host.extend(host.self, block, bytes + more, (size_t)1 << 46));
    CU_ASSERT_FALSE(host.extend(host.self, small, 4096, 64));
    host.release(host.self, block, bytes + more);
    host.release(host.self, small, 4096);
}

int main(void)
{
    static const wf_test tests[] = {{"counts in 64 bytes", counts_in_64},
                                    {"size classes", size_classes},
                                    {"kinds and peak", kinds_and_peak},
                                    {"the moment of the peak", moment_of_the_peak},
                                    {"limit", limit},
                                    {"serves again", serves_again},
                                    {"failing allocator", failing_allocator},
                                    {"absurd sizes", absurd_sizes},
                                    {"host memory", host_memory},
                                    {"host memory extends", host_memory_extends},
                                    {NULL, NULL}};

    return wf_test_main("memory", tests);
}
