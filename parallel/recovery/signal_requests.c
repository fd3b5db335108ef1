/* parallel/recovery/signal_requests.c - signals as requests; see the header. */
#include "parallel/recovery/signal_requests.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { LINGER_S = 3 };

static atomic_uint requests;

static void note(int number)
{
    atomic_fetch_or(&requests,
                    number == SIGUSR1 ? WF_SIGNAL_SAVE : WF_SIGNAL_SAVE | WF_SIGNAL_STOP);
}

/* Notes a signal from now on. One that is ignored stays so: nohup, and shells that start a run
   in the background, mean it. */
static void note_from_now_on(int number, int flags)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | flags}, before;

    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void wf_signal_requests_listen(void)
{
    note_from_now_on(SIGTERM, 0);
    note_from_now_on(SIGUSR1, 0);
    note_from_now_on(SIGHUP, 0);
    note_from_now_on(SIGINT, (int)SA_RESETHAND); /* who types it twice does not want to wait */
}

void wf_signal_requests_write_errors(void)
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

void wf_signal_requests_linger(void)
{
    struct sigaction later = {.sa_handler = end_later, .sa_flags = SA_RESTART};
    struct sigaction now = {.sa_handler = end_now};

    sigemptyset(&later.sa_mask);
    sigemptyset(&now.sa_mask);
    sigaction(SIGALRM, &now, NULL);
    sigaction(SIGTERM, &later, NULL);
}

void wf_signal_requests_hold(void)
{
    signal(SIGTERM, SIG_IGN);
    alarm(0);
}

unsigned wf_signal_requests_now(void)
{
    return atomic_load(&requests);
}

void wf_signal_requests_honoured(unsigned honoured)
{
    atomic_fetch_and(&requests, ~honoured);
}
