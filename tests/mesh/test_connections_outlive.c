/*
 * tests/mesh/test_connections_outlive.c - what becomes of a process's connections when it is killed: those of the failure
 * detector stay open for as long as the failure cause takes, and no others.
 */
#include "tests/mesh/market.h"
#include <sys/wait.h>

/* A process with a connection of the failure detector and another one is killed. */
static pid_t kill_a_child(int *held, int *other)
{
    int w[2], o[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, w) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, o) != 0 || (child = fork()) < 0)
        return -1;
    if (child == 0) {
        close(w[0]);
        close(o[0]);
        wf_fd_holder_start(1);
        wf_fd_holder_add(w[1]);
        raise(SIGKILL);
    }
    close(w[1]);
    close(o[1]);
    *held = w[0];
    *other = o[0];
    return child;
}

/* Of a dead process the failure detector hears at once; what else was connected to it, later. */
static void connections_outlive(void)
{
    int held = -1, other = -1;
    pid_t child = kill_a_child(&held, &other);
    double start;
    char none;

    CU_ASSERT(child > 0);
    waitpid(child, NULL, 0);
    start = wf_test_clock(CLOCK_MONOTONIC);
    CU_ASSERT_EQUAL(read(held, &none, 1), 0);
    CU_ASSERT(wf_test_clock(CLOCK_MONOTONIC) - start < 1);
    CU_ASSERT_EQUAL(read(other, &none, 1), 0);
    CU_ASSERT(wf_test_clock(CLOCK_MONOTONIC) - start > 1 &&
              wf_test_clock(CLOCK_MONOTONIC) - start < 6);
    close(held);
    close(other);
}

int main(void)
{
    static const wf_test tests[] = {{"connections outlive their process", connections_outlive},
                                    {NULL, NULL}};

    return wf_test_main("connections_outlive", tests);
}
