/*
 * tests/parallel/test_no_memory.c - memory runs out at every possible allocation of building a
 * model and training one step, on one rank of 2 x 2, with zero1, with full_shard, over
 * pipelines, with adapters on 4 bits, over ranks that split tokens and with experts that ranks
 * split: the launch says who lacked how much, every rank ends, and all memory is given back.
 * First what the pool asks the system for, then each block that is taken from the pool, then
 * the bookkeeping. The linker puts the test between callers and wf_blocks_take and
 * wf_ranges_take; malloc is in tests/allocations.h.
 *
 * ctest: links weft_allocations, wraps wf_blocks_take wf_ranges_take, cost 50
 * ctest: test test_no_memory_qlora, arguments qlora
 * ctest: test test_no_memory_context, arguments context
 * ctest: test test_no_memory_moe, arguments moe
 */
#include "core/memory/ranges_internal.h"
#include "tests/allocations.h"
#include "tests/mesh/ranks.h"
#include "tests/parallel/failing_run.h"
#include "tests/call_sites.h"

void *__real_wf_blocks_take(wf_blocks *blocks, size_t bytes);
void *__real_wf_ranges_take(wf_ranges *ranges, size_t bytes, bool last);
void *__wrap_wf_blocks_take(wf_blocks *blocks, size_t bytes);
void *__wrap_wf_ranges_take(wf_ranges *ranges, size_t bytes, bool last);

/* A shortage: of the victim's requests, numbers [first, first + length) are refused. */
typedef struct shortage {
    int victim;
    int64_t first, length;
    int64_t asked;  /* by the victim */
    size_t refused; /* bytes of the first refusal, 0 for none */
    _Atomic int64_t live;
} shortage;

static shortage regions, device, books;
static shortage *recorded; /* its requests are written down; NULL: none are */

/* A sanitizer's build tries every fifth of the requests, where there are many every eleventh,
   that for threads fewer: what a rank does when it fails, and the others then, is the same
   everywhere. */
static int64_t stride_of(int64_t requests)
{
    if (!UNDER_SANITIZER)
        return 1;
    if (requests <= 100)
        return 5;
    return UNDER_THREAD_SANITIZER ? 47 : 11;
}

static bool refuse(shortage *s, size_t bytes)
{
    bool no;

    if (this_rank != s->victim)
        return false;
    if (s == recorded) {
        recorded = NULL; /* recording a call may allocate, too */
        record_call(s->asked);
        recorded = s;
    }
    no = s->asked >= s->first && s->asked - s->first < s->length;
    s->asked++;
    if (no && !s->refused)
        s->refused = bytes;
    return no;
}

static void shortage_start(shortage *s, int victim, int64_t first, int64_t length)
{
    s->victim = victim;
    s->first = first;
    s->length = length;
    s->asked = 0;
    s->refused = 0;
    atomic_store(&s->live, 0);
}

static void *take(void *self, size_t bytes)
{
    void *block;

    if (refuse(self, bytes) || __real_posix_memalign(&block, 64, bytes) != 0)
        return NULL;
    atomic_fetch_add(&((shortage *)self)->live, (int64_t)bytes);
    return block;
}

static void give(void *self, void *block, size_t bytes)
{
    atomic_fetch_sub(&((shortage *)self)->live, (int64_t)bytes);
    __real_free(block);
}

static const wf_allocator counted = {.alloc = take, .release = give, .self = &regions};

static _Thread_local bool in_take; /* a small block may need a chunk: that is one request */

/* Not the memory that ranks share: who comes first takes it, now this rank and now another. */
static bool of_rank(const wf_ranges *ranges)
{
    return ranges->source.self == &regions;
}

void *__wrap_wf_ranges_take(wf_ranges *ranges, size_t bytes, bool last)
{
    return !in_take && of_rank(ranges) && refuse(&device, bytes)
               ? NULL
               : __real_wf_ranges_take(ranges, bytes, last);
}

/* Blocks over malloc are bookkeeping, others are of a pool. */
void *__wrap_wf_blocks_take(wf_blocks *blocks, size_t bytes)
{
    void *block;

    if ((!blocks->source.alloc || of_rank(blocks->source.self)) &&
        refuse(blocks->source.alloc ? &device : &books, bytes))
        return NULL;
    in_take = true;
    block = __real_wf_blocks_take(blocks, bytes);
    in_take = false;
    return block;
}

/* Refuses memory of the heap alone: what is aligned is for what ranks of the process share, and
   a pool that is refused much asks for less. */
static bool refuse_books(allocation_kind kind, size_t bytes)
{
    return kind == ALLOCATION_HEAP && refuse(&books, bytes);
}

static void books_changed(int blocks)
{
    atomic_fetch_add(&books.live, blocks);
}

#define COUNTED .steps = 1, .allocator = &counted, .victim = NOBODY

static const trial models[] = {
    {.tp = 2, .dp = 2, .strategy = "zero1", COUNTED},
    {.tp = 2,
     .dp = 2,
     .strategy = "full_shard",
     .prefetch = 1,
     COUNTED,
     .llama = true,
     .sequence_parallel = true},
    {.pp = 2,
     .tp = 1,
     .dp = 2,
     .schedule = "zb-v",
     .layers = 2,
     .strategy = "full_shard",
     COUNTED},
    {.pp = 2, .tp = 2, .dp = 1, .schedule = "1f1b", .layers = 2, .strategy = "zero1", COUNTED},
    {.tp = 2, .dp = 2, .strategy = "full_shard", COUNTED, .llama = true, .qlora = true},
    {.tp = 1,
     .dp = 2,
     .cp = 2,
     .cp_form = "heads",
     .strategy = "full_shard",
     COUNTED,
     .llama = true},
    {.tp = 2,
     .dp = 1,
     .cp = 2,
     .strategy = "zero1",
     COUNTED,
     .llama = true,
     .sequence_parallel = true},
    {.tp = 1, .dp = 4, .ep = 2, .strategy = "full_shard", COUNTED, .llama = true},
    {.tp = 2, .dp = 2, .ep = 4, .strategy = "zero1", COUNTED, .llama = true},
};

enum { QLORA = 4, CONTEXT, MIXTURE = CONTEXT + 2, MODELS = sizeof models / sizeof *models };

/* Run a model with a shortage on one rank; returns what the launch did. */
static wf_status run_short(shortage *of, int model, int victim, int64_t first, int64_t length,
                           trial *t)
{
    *t = models[model];
    shortage_start(&regions, NOBODY, 0, 0);
    shortage_start(&device, NOBODY, 0, 0);
    shortage_start(&books, NOBODY, 0, 0);
    shortage_start(of, victim, first, length);
    return run_trial(t);
}

static bool all_given_back(void)
{
    if (atomic_load(&regions.live) || atomic_load(&books.live))
        printf("\n    not given back: %lld bytes, %lld blocks\n",
               (long long)atomic_load(&regions.live), (long long)atomic_load(&books.live));
    return !atomic_load(&regions.live) && !atomic_load(&books.live);
}

/* Every other rank either had nothing more to do with the victim, or knows what happened to it.
 */
static bool others_know(const trial *t, int victim)
{
    char name[32];
    bool know = true;

    snprintf(name, sizeof name, "rank %d", victim);
    for (int r = 0; r < ranks_of(t); r++)
        if (r != victim && t->of[r].code != WF_OK)
            know &= says(&t->of[r], WF_ELOST, name, "bytes");
    return know;
}

/* Refuse a rank's k-th request and all after it. */
static void memory_sweep(shortage *of, int model, int victim, int64_t least)
{
    float loss;
    trial t;
    char name[32];
    int64_t requests, count, tried = 0;

    recorded = of;
    CU_ASSERT_EQUAL(run_short(of, model, victim, 0, 0, &t), WF_OK);
    recorded = NULL;
    loss = t.last_loss[victim];
    requests = of->asked;
    CU_ASSERT(requests >= least && requests < MOST_CALLS);
    count = choose_calls(requests);
    CU_ASSERT(all_given_back());
    snprintf(name, sizeof name, "rank %d", victim);
    for (int64_t k = 0; k < requests; k++) {
        size_t said;

        if (!chosen[k] || tried++ % stride_of(count))
            continue;

        CU_ASSERT_EQUAL(run_short(of, model, victim, k, INT64_MAX, &t), WF_ENOMEM);
        CU_ASSERT(says(&t.launch, WF_ENOMEM, name, "out of memory"));
        said = bytes_said(t.launch.text);
        CU_ASSERT(said <= of->refused && (of == &regions || of->refused < said + 64));
        CU_ASSERT(others_know(&t, victim));
        CU_ASSERT(all_given_back());
        CU_ASSERT(t.seconds < 5);
    }
    CU_ASSERT_EQUAL(run_short(of, model, victim, requests, INT64_MAX, &t), WF_OK);
    CU_ASSERT_EQUAL(t.last_loss[victim], loss);
    printf("(%lld of %lld) ", (long long)count, (long long)requests);
}

/* Flight recorders stay for the ranks of later launches (mesh/health/flight_recorder.c), and so
   do the addresses that plans count with. */
static void what_stays_is_made(void)
{
    trial t;

    for (int model = 0; model < QLORA; model++)
        CU_ASSERT_EQUAL(run_short(&regions, model, NOBODY, 0, 0, &t), WF_OK);
}

static void memory_of_the_system(void)
{
    for (int victim = 0; victim < 4; victim++)
        memory_sweep(&regions, victim % 4, victim, 1);
}

static void device_memory(void)
{
    for (int victim = 0; victim < 4; victim++)
        memory_sweep(&device, 0, victim, 100);
    memory_sweep(&device, 1, 3, 100);
    for (int victim = 0; victim < 4; victim++)
        memory_sweep(&device, 2 + victim % 2, victim, 100);
}

/* A single refusal: the pool asks for less, and nothing else happens. */
static void short_of_memory_for_a_moment(void)
{
    trial t;
    float loss;
    int64_t requests;

    CU_ASSERT_EQUAL(run_short(&regions, 1, 2, 0, 0, &t), WF_OK);
    loss = t.last_loss[0];
    requests = regions.asked;
    CU_ASSERT(requests > 0);
    for (int64_t k = 0; k < requests; k++) {
        CU_ASSERT_EQUAL(run_short(&regions, 1, 2, k, 1, &t), WF_OK);
        CU_ASSERT(regions.refused > 0);
        CU_ASSERT_EQUAL(t.last_loss[0], loss);
        CU_ASSERT(all_given_back());
    }
}

/*
 * The bookkeeping of one rank, or of the thread that launches them (-1): of its requests every
 * second fails alone, and of the others each with all that come after it. How much of it falls
 * to one rank depends a little on timing (the first one to come makes what a group or two ends
 * of messages share), so that the last few requests may not be reached.
 */
static void books_sweep(int model, int victim)
{
    int64_t requests, count, reached = 0, tried = 0, i = 0;
    trial t;

    recorded = &books;
    CU_ASSERT_EQUAL(run_short(&books, model, victim, 0, 0, &t), WF_OK);
    recorded = NULL;
    requests = books.asked;
    CU_ASSERT(all_given_back());
    CU_ASSERT(requests < MOST_CALLS);
    count = choose_calls(requests);
    for (int64_t k = 0; k < requests; k++) {
        wf_status status;

        if (!chosen[k] || tried++ % stride_of(count))
            continue;
        status = run_short(&books, model, victim, k, i++ % 2 ? 1 : INT64_MAX, &t);

        reached += books.refused > 0;
        if (books.refused)
            CU_ASSERT(says(&t.launch, WF_ENOMEM, "no memory", ""));
        CU_ASSERT_EQUAL(status == WF_OK, books.refused == 0);
        CU_ASSERT(all_given_back());
        CU_ASSERT(t.seconds < 5);
    }
    CU_ASSERT(reached > 3 && reached > i - 10 - i / 32);
    printf("(%lld of %lld) ", (long long)count, (long long)requests);
}

static void bookkeeping_of_a_rank(void)
{
    books_sweep(0, 1);
    books_sweep(1, 2);
    books_sweep(2, 0);
    books_sweep(3, 3);
}

static void bookkeeping_of_a_launch(void)
{
    books_sweep(0, -1);
    books_sweep(2, -1);
}

/* Adapters on 4 bits, with moments in 8. */
static void qlora(void)
{
    trial t;

    CU_ASSERT_EQUAL(run_short(&regions, QLORA, NOBODY, 0, 0, &t), WF_OK);
    memory_sweep(&regions, QLORA, 1, 1);
    memory_sweep(&device, QLORA, 2, 100);
    books_sweep(QLORA, 1);
}

static void models_sweep(int first, int end)
{
    trial t;

    for (int model = first; model < end; model++)
        CU_ASSERT_EQUAL(run_short(&regions, model, NOBODY, 0, 0, &t), WF_OK);
    for (int model = first; model < end; model++)
        memory_sweep(&device, model, (model + 1) % 4, 100);
    books_sweep(first, 3);
}

/* Ranks that split tokens, by heads and by gathered keys. */
static void context(void)
{
    models_sweep(CONTEXT, MIXTURE);
}

/* Ranks that split experts, in waves, and exchange tokens with their owners. */
static void mixtures(void)
{
    models_sweep(MIXTURE, MODELS);
    books_sweep(MIXTURE + 1, 0);
}

/* With an argument: one kind of model alone, as a test beside the others. */
int main(int argc, char **argv)
{
    static const wf_test adapted[] = {{"adapters on 4 bits", qlora}, {NULL, NULL}};
    static const wf_test split[] = {{"tokens that ranks split", context}, {NULL, NULL}};
    static const wf_test experts[] = {{"experts that ranks split", mixtures}, {NULL, NULL}};
    static const wf_test tests[] = {
        {"what stays is made", what_stays_is_made},
        {"the system's memory ends on one rank", memory_of_the_system},
        {"device memory ends on one rank", device_memory},
        {"short of memory for a moment", short_of_memory_for_a_moment},
        {"bookkeeping of a launch", bookkeeping_of_a_launch},
        {"bookkeeping of a rank", bookkeeping_of_a_rank},
        {NULL, NULL},
    };

    static const allocation_watch watch = {refuse_books, books_changed};

    allocations_watch(&watch);
    record_call(0); /* loads what it needs */
    return wf_test_main("no_memory", argc < 2                          ? tests
                                     : strcmp(argv[1], "context") == 0 ? split
                                     : strcmp(argv[1], "moe") == 0     ? experts
                                                                       : adapted);
}
