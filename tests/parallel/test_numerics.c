/*
 * tests/parallel/test_numerics.c - the numerics identity: the same whatever computes it,
 * another for other rules.
 *
 * ctest: builds plain address
 * ctest: test test_numerics_portable, environment WEFT_CPU_ISA=portable, builds plain
 */
#include "parallel/models/gpt/gpt.h"
#include "parallel/models/gpt/numerics.h"
#include "tests/harness.h"
#include <inttypes.h>
#include <string.h>

static uint64_t identity(wf_par_options options)
{
    wf_error error = {WF_OK, ""};
    uint64_t value = 0;

    CU_ASSERT_EQUAL_FATAL(wf_par_numerics(&options, NULL, &value, &error), WF_OK);
    return value;
}

/* It changes with the numbers of every run, and by nothing else: whoever means to change them
   writes the new ones here. */
static void known(void)
{
    uint64_t f32 = identity((wf_par_options){.threads = 1});
    uint64_t bf16 = identity((wf_par_options){.dtype = WF_BF16});
    uint64_t stored = identity((wf_par_options){.dtype = WF_BF16, .compute_fp32 = true});

    CU_ASSERT_EQUAL(f32, 0x25b891167bc6eef3);
    CU_ASSERT_EQUAL(bf16, 0x97431ccb6819dc0c);
    CU_ASSERT_EQUAL(stored, 0xf767cb36288ec0e0);
    if (f32 != 0x25b891167bc6eef3 || bf16 != 0x97431ccb6819dc0c || stored != 0xf767cb36288ec0e0)
        printf("\n    f32 %016" PRIx64 ", bf16 %016" PRIx64 ", stored as bf16 %016" PRIx64 "\n",
               f32, bf16, stored);
}

/* The layout, the threads and the seed of a run are not rules. */
static void what_counts(void)
{
    uint64_t f32 = identity((wf_par_options){.tp = 4, .dp = 2, .threads = 3, .seed = 7});

    CU_ASSERT_EQUAL(f32, identity((wf_par_options){.tp = 0}));
    CU_ASSERT_NOT_EQUAL(f32, identity((wf_par_options){.dtype = WF_BF16}));
    CU_ASSERT_NOT_EQUAL(f32, identity((wf_par_options){.param_dtype = WF_BF16}));
    CU_ASSERT_EQUAL(f32, identity((wf_par_options){.compute_fp32 = true}));
    CU_ASSERT_NOT_EQUAL(f32, identity((wf_par_options){.exact_off = true}));
}

/* Documents have rules of their own: blocks of keys count from where one begins. */
static void documents(void)
{
    static const wf_par_field fields[WF_PAR_FIELDS] = WF_PAR_GPT_DOCUMENT_FIELDS(100);
    static const wf_par_field plain[WF_PAR_FIELDS] = WF_PAR_GPT_FIELDS(100);
    const wf_par_options options = {.threads = 1};
    wf_error error = {WF_OK, ""};
    uint64_t value = 0;

    CU_ASSERT_EQUAL(wf_par_numerics(&options, fields, &value, &error), WF_OK);
    CU_ASSERT_EQUAL(value, 0x3954c44fc96600f6);
    if (value != 0x3954c44fc96600f6)
        printf("\n    documents %016" PRIx64 "\n", value);
    CU_ASSERT_EQUAL(wf_par_numerics(&options, plain, &value, &error), WF_OK);
    CU_ASSERT_EQUAL(value, identity(options));
}

/* Sums over 2,048 tokens and more are cut in more chunks; those of shorter runs are not. */
static void long_sequences(void)
{
    static const wf_par_field fields[][WF_PAR_FIELDS] = {
        WF_PAR_GPT_FIELDS(2047), WF_PAR_GPT_FIELDS(2048), WF_PAR_GPT_FIELDS(3000),
        WF_PAR_GPT_FIELDS(4096), WF_PAR_GPT_FIELDS(1 << 20)};
    const wf_par_options options = {.threads = 1}, off = {.exact_off = true};
    wf_error error = {WF_OK, ""};
    uint64_t value[5], plain = 0;

    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(wf_par_numerics(&options, fields[i], &value[i], &error), WF_OK);
    CU_ASSERT_EQUAL(value[0], identity(options));
    CU_ASSERT_NOT_EQUAL(value[1], value[0]);
    CU_ASSERT_EQUAL(value[2], value[1]);
    CU_ASSERT_NOT_EQUAL(value[3], value[2]);
    CU_ASSERT_NOT_EQUAL(value[4], value[3]);
    CU_ASSERT_EQUAL(wf_par_numerics(&off, fields[4], &plain, &error), WF_OK);
    CU_ASSERT_EQUAL(plain, identity(off)); /* nothing is cut there */
}

static void no_device(void)
{
    wf_error error = {WF_OK, ""};
    uint64_t value = 7;

    CU_ASSERT_EQUAL(
        wf_par_numerics(&(wf_par_options){.device = "abacus"}, NULL, &value, &error),
        WF_EINVAL);
    CU_ASSERT_EQUAL(value, 7);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "abacus"));
}

int main(void)
{
    static const wf_test tests[] = {{"known values", known},
                                    {"what counts", what_counts},
                                    {"documents", documents},
                                    {"long sequences", long_sequences},
                                    {"a device that there is not", no_device},
                                    {NULL, NULL}};

    return wf_test_main("the numerics identity", tests);
}
