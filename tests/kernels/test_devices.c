/* tests/kernels/test_devices.c - devices by name: what there is, and what each is asked for in
   vain. */
#include "core/context.h"
#include "kernels/devices.h"
#include "tests/harness.h"
#include <string.h>

static void by_name(void)
{
    static const char *const names[] = {"cpu", NULL};
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < 2; i++) {
        wf_device *device =
            wf_device_open(names[i], &(wf_device_options){.threads = 2}, &error);

        CU_ASSERT_PTR_NOT_NULL_FATAL(device);
        CU_ASSERT_STRING_EQUAL(device->name, "cpu");
        CU_ASSERT_EQUAL(device->location.devices, 0);
        device->close(device);
    }
}

static void refused_by_name(void)
{
    static const struct {
        const char *name;
        wf_device_options options;
        const char *says;
    } rows[] = {
        {"abacus", {.threads = 1}, "there is no device abacus: use cpu or cuda"},
        {"", {.threads = 1}, "there is no device : use cpu or cuda"},
        {"cpu", {.threads = 0}, "a CPU device needs at least one thread"},
        {"cpu",
         {.threads = 1, .tf32 = true},
         "tf32 is of device cuda, not of cpu: use device cuda, or leave tf32 off"},
        {NULL,
         {.threads = 1, .cuda_graph = true},
         "cuda_graph is of device cuda, not of cpu: use device cuda, or leave cuda_graph off"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wf_error error = {WF_OK, ""};

        CU_ASSERT_PTR_NULL(wf_device_open(rows[i].name, &rows[i].options, &error));
        CU_ASSERT_EQUAL(error.code, WF_EINVAL);
        CU_ASSERT_STRING_EQUAL(error.text, rows[i].says);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"devices by name", by_name}, {"refused by name", refused_by_name}, {NULL, NULL}};

    return wf_test_main("devices", tests);
}
