/* tests/cuda/emulator/lock.c - the lock under which all that the emulated device does is
   done. */
#include "emulator.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Thread_local int held; /* times that the thread has taken it */

void emulator_lock(void)
{
    pthread_mutex_lock(&lock);
    held++;
}

void emulator_unlock(void)
{
    held--;
    pthread_mutex_unlock(&lock);
}

void emulator_nap(void)
{
    const struct timespec moment = {.tv_nsec = 100000};
    const int times = held;

    for (int i = 0; i < times; i++)
        emulator_unlock();
    nanosleep(&moment, NULL);
    for (int i = 0; i < times; i++)
        emulator_lock();
}

bool emulator_eager(void)
{
    static int known = -1;

    if (known < 0) {
        const char *said = getenv("WEFT_EMULATOR");

        known = said && strcmp(said, "eager") == 0;
    }
    return known != 0;
}
