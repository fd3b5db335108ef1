/* tests/nccl/device_memory.h - devices for the tests of a transport between devices: their
   memory is the host's, which only they know. */
#ifndef WF_TESTS_NCCL_DEVICE_MEMORY_H
#define WF_TESTS_NCCL_DEVICE_MEMORY_H

#include "core/device.h"

/* Does at once what it is asked for; for a device without a queue. */
extern const wf_device_memory memory_at_once;

#endif
