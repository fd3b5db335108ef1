/* apps/wish.c - signals as wishes; see the header. */
#include "apps/wish.h"
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { LINGER_S = 3 };

static atomic_uint wishes;

static void note(int number)
{
    atomic_fetch_or(&wishes, number == SIGTERM ? WF_WISH_SAVE | WF_WISH_STOP : WF_WISH_SAVE);
}

void wf_wish_listen(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
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

void wf_wish_linger(void)
{
    struct sigaction later = {.sa_handler = end_later, .sa_flags = SA_RESTART};
    struct sigaction now = {.sa_handler = end_now};

    sigemptyset(&later.sa_mask);
    sigemptyset(&now.sa_mask);
    sigaction(SIGALRM, &now, NULL);
    sigaction(SIGTERM, &later, NULL);
}

unsigned wf_wish_now(void)
{
    return atomic_load(&wishes);
}

void wf_wish_granted(unsigned granted)
{
    atomic_fetch_and(&wishes, ~granted);
}
