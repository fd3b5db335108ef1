/* apps/gpt_train/signal_requests.c - signals as requests; see the header. */
#include "apps/gpt_train/signal_requests.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINGER_S = 3, OUTLAST_S = 20 };

static atomic_uint requests;

static void note(int number)
{
    atomic_fetch_or(&requests,
                    number == SIGUSR1 ? APP_SIGNAL_SAVE : APP_SIGNAL_SAVE | APP_SIGNAL_STOP);
}

/* What is ignored stays so: nohup, and shells that start a run in the background, mean it. */
static void note_from_now_on(int number, int flags)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | flags}, before;

    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void signal_requests_listen(void)
{
    note_from_now_on(SIGTERM, 0);
    note_from_now_on(SIGUSR1, 0);
    note_from_now_on(SIGHUP, 0);
    note_from_now_on(SIGINT, (int)SA_RESETHAND); /* who types it twice does not want to wait */
}

void signal_requests_write_errors(void)
{
    signal(SIGPIPE, SIG_IGN);
}

static void end_now(int number)
{
    (void)number;
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
}

static void end_later(int number)
{
    (void)number;
    alarm(LINGER_S);
}

void signal_requests_linger(void)
{
    struct sigaction later = {.sa_handler = end_later, .sa_flags = SA_RESTART};
    struct sigaction now = {.sa_handler = end_now};

    sigemptyset(&later.sa_mask);
    sigemptyset(&now.sa_mask);
    sigaction(SIGALRM, &now, NULL);
    sigaction(SIGTERM, &later, NULL);
}

static pthread_t first; /* the thread that ends the process itself */
static atomic_bool outlasts;

void signal_requests_outlast(bool now)
{
    first = pthread_self();
    atomic_store(&outlasts, now);
}

/* In front of libc's: the program's own symbols come first, for libraries too. */
__attribute__((visibility("default"))) void _exit(int status)
{
    for (int ms = 0; ms < 1000 * OUTLAST_S && atomic_load(&outlasts) &&
                     !pthread_equal(first, pthread_self());
         ms += 10)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    for (;;)
        syscall(SYS_exit_group, status);
}

void signal_requests_hold(void)
{
    signal(SIGTERM, SIG_IGN);
    alarm(0);
}

unsigned signal_requests_now(void)
{
    return atomic_load(&requests);
}

void signal_requests_honoured(unsigned honoured)
{
    atomic_fetch_and(&requests, ~honoured);
}
