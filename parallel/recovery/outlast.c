/* parallel/recovery/outlast.c - _exit in front of libc's, for ranks that end the process and
 * for libraries that do so too early; see flight_recorder.h and signal_requests.h. */
#include "mesh/health/flight_recorder.h"
#include "parallel/recovery/signal_requests.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OUTLAST_S = 20 };

static pthread_t first; /* the thread that ends the process itself */
static atomic_bool outlasts;

void wf_signal_requests_outlast(bool now)
{
    first = pthread_self();
    atomic_store(&outlasts, now);
}

/* In front of libc's: the program's own symbols come first, for libraries too. */
__attribute__((visibility("default"))) void _exit(int status)
{
    status = wf_recorder_exit_status(status);
    for (int ms = 0; ms < 1000 * OUTLAST_S && atomic_load(&outlasts) &&
                     !pthread_equal(first, pthread_self());
         ms += 10)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    for (;;)
        syscall(SYS_exit_group, status);
}

__attribute__((visibility("default"), alias("_exit"))) void _Exit(int status);
