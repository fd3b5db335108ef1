/* kernels/devices.c - the devices by name: what each offers, and how it is opened for a
   rank. */
#include "kernels/devices.h"
#include <stdio.h>
#include <string.h>

enum { TF32 = 1, CUDA_GRAPH = 2, OFFERS = 2, LIST = 64 };

typedef struct row {
    const char *name;
    wf_device *(*open)(const wf_device_options *options, wf_error *error);
    unsigned offers; /* options that it takes */
} row;

static wf_device *open_cpu(const wf_device_options *options, wf_error *error)
{
    return wf_cpu_device(options->threads, error);
}

/* Ranks of a host sit side by side, and those of a process too: so they have a GPU each where
   there are as many, whether processes see all of the host's or only their own. */
static wf_device *open_cuda(const wf_device_options *options, wf_error *error)
{
    wf_device_location location = {.ranks = options->local_size};
    wf_cuda_options cuda = {.plan = options->plan, .tf32 = options->tf32};
    wf_device *device;

    if (options->plan)
        return wf_cuda_device(&cuda, error);
    location.devices = wf_cuda_count(false, error);
    if (location.devices == 0)
        return NULL;
    location.ordinal = options->local_rank % location.devices;
    cuda.ordinal = location.ordinal;
    if (options->in_place)
        cuda.readers = location.ranks < location.devices ? location.ranks : location.devices;
    device = wf_cuda_device(&cuda, error);
    if (device)
        device->location = location;
    return device;
}

static const row rows[] = {{"cpu", open_cpu, 0}, {"cuda", open_cuda, TF32 | CUDA_GRAPH}};
enum { ROWS = sizeof rows / sizeof *rows };

/* Lists the devices that offer something, or all of them: "cpu or cuda". */
static const char *list(unsigned offers, char text[LIST])
{
    size_t length = 0;

    text[0] = '\0';
    for (int i = 0; i < ROWS && length < LIST; i++)
        if ((rows[i].offers & offers) == offers)
            length += (size_t)snprintf(text + length, LIST - length, "%s%s",
                                       length ? " or " : "", rows[i].name);
    return text;
}

static wf_status check_offers(const row *r, const wf_device_options *options, wf_error *error)
{
    static const char *const names[OFFERS] = {"tf32", "cuda_graph"};
    unsigned asked = (options->tf32 ? TF32 : 0) | (options->cuda_graph ? CUDA_GRAPH : 0);
    char others[LIST];

    for (int i = 0; i < OFFERS; i++)
        if ((asked & ~r->offers) >> i & 1) {
            list(1u << i, others);
            return wf_error_set(error, WF_EINVAL,
                                "%s is of device %s, not of %s: use device %s, or leave %s off",
                                names[i], others, r->name, others, names[i]);
        }
    return WF_OK;
}

wf_device *wf_device_open(const char *name, const wf_device_options *options, wf_error *error)
{
    char all[LIST];

    for (int i = 0; i < ROWS; i++)
        if (!name || strcmp(name, rows[i].name) == 0)
            return check_offers(&rows[i], options, error) == WF_OK
                       ? rows[i].open(options, error)
                       : NULL;
    wf_error_set(error, WF_EINVAL, "there is no device %s: use %s", name, list(0, all));
    return NULL;
}
