/*
 * tests/nn/test_dataset_memory.c - every allocation of opening, reading and writing data fails
 * once: each is reported.
 *
 * ctest: links weft_allocations
 */
#include "tests/allocations.h"
#include "tests/nn/dataset_files.h"

enum { SEQ = 8 };

/* Open, read, count: the first thing that fails. */
static wf_status use_data(wf_error *error)
{
    char sources[2][300];
    char *data[] = {sources[0], sources[1]}, *val[] = {path_of("v.idx")};
    const wf_dataset_options options = {.data = data,
                                        .data_count = 2,
                                        .val_data = val,
                                        .val_data_count = 1,
                                        .validates = true,
                                        .every_window = true,
                                        .seq_len = SEQ,
                                        .global_batch = 4,
                                        .vocabulary = {9999, true}};
    int32_t tokens[SEQ], targets[SEQ];
    int64_t count;
    wf_dataset *set;

    snprintf(sources[0], sizeof sources[0], "a=1:%s,%s", path_of("a.idx"), path_of("b.idx"));
    snprintf(sources[1], sizeof sources[1], "b=2:%s", path_of("c.bin"));
    if (wf_dataset_open(&options, &set, error) == WF_OK &&
        wf_dataset_read(set, WF_DATASET_TRAIN, 1, 0, 1, tokens, targets, error) == WF_OK)
        wf_dataset_counted(set, WF_DATASET_VALIDATION, 0, &count, error);
    wf_dataset_close(set);
    return error->code;
}

static wf_status write_data(wf_error *error)
{
    wf_megatron_writer *w;

    if (wf_megatron_writer_open(path_of("w"), 300, &w, error) != WF_OK)
        return error->code;
    wf_megatron_writer_add(w, (int32_t[]){1, 2}, 2, error);
    return wf_megatron_writer_finish(w, NULL, error);
}

static void reading(void)
{
    write_pair("a", 9999, 0, 100);
    write_pair("b", 9999, 100, 100);
    write_mask(path_of("v.loss"), 100, 0);
    write_pair("c", 9999, 300, 100);
    write_pair("v", 9999, 500, 100);
    each_allocation_fails(use_data, 30);
}

static void writing(void)
{
    each_allocation_fails(write_data, 5);
}

static const wf_test tests[] = {{"reading", reading}, {"writing", writing}, {NULL, NULL}};

int main(void)
{
    return data_main("data_memory", tests);
}
