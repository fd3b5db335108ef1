/*
 * tests/cuda/emulator/hopper.c - barriers in shared memory, and boxes of tensor maps that are
 * copied while threads go on: every second load at once, all else as late as it may be, when
 * somebody waits for it.
 */
#include "hopper.h"
#include "emulator.h"
#include <string.h>

enum { LINE = 128, UNIT = 16, MOST = 256 };

/* As it lies in shared memory, in 8 bytes. */
typedef struct barrier {
    uint16_t arrivals;
    uint8_t pending, phase;
    int32_t bytes;
} barrier;

_Static_assert(sizeof(barrier) == 8, "a barrier has 8 bytes");

typedef struct load {
    const CUtensorMap *map;
    uint32_t to, barrier;
    unsigned block;
    int at[2];
} load;

typedef struct store {
    const CUtensorMap *map;
    uint32_t from;
    unsigned block, thread;
    int at[3];
    bool committed;
} store;

static load loads[MOST];
static store stores[MOST];
static unsigned n_loads, n_stores, copies;
static long groups;

void emulator_wgmma_count(void)
{
    groups++;
}

long emulator_wgmma_groups(void)
{
    return groups;
}

void emulator_copies_begin(void)
{
    n_loads = n_stores = 0;
}

void emulator_copies_end(void)
{
    if (n_loads || n_stores)
        emulator_die("a block has ended with %u loads and %u stores that nobody waited for",
                     n_loads, n_stores);
}

static barrier *barrier_at(uint32_t at, unsigned block)
{
    if (at % sizeof(barrier) || at > EMULATOR_SHARED - sizeof(barrier))
        emulator_die("a barrier at %u of shared memory", at);
    return (barrier *)(void *)(emulator_shared_of(block) + at);
}

void emulator_barrier_begin(uint32_t at, unsigned arrivals)
{
    *barrier_at(at, emulator_block_in_cluster()) =
        (barrier){.arrivals = (uint16_t)arrivals, .pending = (uint8_t)arrivals};
}

static void complete(barrier *b)
{
    if (b->pending || b->bytes)
        return;
    b->phase ^= 1;
    b->pending = (uint8_t)b->arrivals;
    emulator_moved();
}

void emulator_barrier_arrive(uint32_t at, unsigned block)
{
    barrier *b = barrier_at(at, block);

    if (b->pending == 0)
        emulator_die("more arrivals than the %u of a barrier", b->arrivals);
    b->pending--;
    complete(b);
}

void emulator_barrier_expect(uint32_t at, unsigned bytes)
{
    unsigned block = emulator_block_in_cluster();

    barrier_at(at, block)->bytes += (int32_t)bytes;
    emulator_barrier_arrive(at, block);
}

/* Returns where 16 bytes of a line lie, which is swizzled by the address. */
static char *unit_at(unsigned block, uint32_t box, unsigned line, unsigned unit)
{
    uint32_t at = box + line * LINE + unit * UNIT;

    if (box % LINE || at + UNIT > EMULATOR_SHARED)
        emulator_die("a box at %u of shared memory", box);
    return emulator_shared_of(block) + (at ^ ((at >> 7 & 7) << 4));
}

/* Returns where an element of a map lies; NULL: outside. */
static char *element_at(const CUtensorMap *map, const int64_t at[EMULATOR_MAP_DIMS])
{
    char *element = map->data;

    for (unsigned d = 0; d < map->dims; d++) {
        if (at[d] < 0 || at[d] >= (int64_t)map->size[d])
            return NULL;
        element += at[d] * (int64_t)map->stride[d];
    }
    return element;
}

/* Copies a box of two dims of a map, from or to shared memory. */
static void copy(const CUtensorMap *map, const int *first, unsigned block, uint32_t box,
                 bool to_map)
{
    unsigned per_unit = UNIT / map->element;

    for (unsigned line = 0; line < map->box[1]; line++)
        for (unsigned x = 0; x < map->box[0]; x++) {
            const int64_t at[EMULATOR_MAP_DIMS] = {
                first[0] + (int64_t)x, first[1] + (int64_t)line, map->dims > 2 ? first[2] : 0};
            char *shared =
                     unit_at(block, box, line, x / per_unit) + x % per_unit * map->element,
                 *element = element_at(map, at);

            if (to_map && element)
                memcpy(element, shared, map->element);
            else if (!to_map && element)
                memcpy(shared, element, map->element);
            else if (!to_map)
                memset(shared, 0, map->element);
        }
}

static void run_load(const load *l)
{
    barrier *b = barrier_at(l->barrier, l->block);

    copy(l->map, l->at, l->block, l->to, false);
    b->bytes -= (int32_t)(l->map->box[0] * l->map->box[1] * l->map->element);
    emulator_moved();
    complete(b);
}

/* Makes the loads that a barrier still waits for. */
static void run_loads_of(uint32_t at, unsigned block)
{
    unsigned left = 0;

    for (unsigned i = 0; i < n_loads; i++) {
        if (loads[i].barrier == at && loads[i].block == block)
            run_load(&loads[i]);
        else
            loads[left++] = loads[i];
    }
    n_loads = left;
}

void emulator_barrier_wait(uint32_t at, unsigned phase)
{
    unsigned block = emulator_block_in_cluster();
    const barrier *b = barrier_at(at, block);

    while (b->phase == phase) {
        run_loads_of(at, block);
        if (b->phase == phase)
            emulator_pass_on();
    }
}

void emulator_copy_box(uint32_t to, const CUtensorMap *map, uint32_t at, const int first[2],
                       unsigned blocks)
{
    for (unsigned block = 0; blocks >> block; block++) {
        const load l = {map, to, at, block, {first[0], first[1]}};

        if (!(blocks >> block & 1))
            continue;
        if (++copies % 2) {
            run_load(&l);
            continue;
        }
        if (n_loads == MOST)
            emulator_die("more than %d loads at once", MOST);
        loads[n_loads++] = l;
    }
}

void emulator_store_box(const CUtensorMap *map, uint32_t from, const int at[3])
{
    if (n_stores == MOST)
        emulator_die("more than %d stores at once", MOST);
    stores[n_stores++] = (store){.map = map,
                                 .from = from,
                                 .block = emulator_block_in_cluster(),
                                 .thread = emulator_thread(),
                                 .at = {at[0], at[1], at[2]}};
}

void emulator_stores_commit(void)
{
    for (unsigned i = 0; i < n_stores; i++)
        stores[i].committed = stores[i].committed || stores[i].thread == emulator_thread();
}

void emulator_stores_wait(void)
{
    unsigned left = 0;

    for (unsigned i = 0; i < n_stores; i++) {
        const store *s = &stores[i];

        if (s->committed && s->thread == emulator_thread())
            copy(s->map, s->at, s->block, s->from, true);
        else
            stores[left++] = *s;
    }
    n_stores = left;
}

/* As the driver's: what its documentation asks of a map is asked here. */
static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t dims, void *data,
                       const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
                       const cuuint32_t *step, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill)
{
    uint32_t element = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 2 : 4;

    (void)promotion;
    if ((uintptr_t)data % 16 || dims < 2 || dims > EMULATOR_MAP_DIMS ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
        fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || box[0] * element != LINE)
        return CUDA_ERROR_INVALID_VALUE;
    *map = (CUtensorMap){.data = data, .dims = dims, .element = element};
    for (cuuint32_t d = 0; d < dims; d++) {
        map->size[d] = size[d];
        map->stride[d] = d ? stride[d - 1] : element;
        map->box[d] = box[d];
        if (size[d] == 0 || size[d] > UINT64_C(1) << 32 || box[d] == 0 || box[d] > 256 ||
            step[d] != 1 || (d && map->stride[d] % 16))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                             unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    CUresult (*found)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                      const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                      const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = encode;
    bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;

    (void)version;
    (void)flags;
    if (known)
        memcpy(function, &found, sizeof found);
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
