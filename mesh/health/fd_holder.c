/*
 * mesh/health/fd_holder.c - connections that outlive their process for a moment. Who calls MPI
 * when a peer's connection has been reset is held up in there, or ended, and who has to report
 * a death may be among them. An fd holder is a process that shares this one's table of
 * descriptors and nothing else. When its parent is dead it hangs up the failure detector's
 * connections, by which all hear of it, and holds the others until no process calls MPI any
 * more. What MPI keeps for it in shared memory the launcher removes, and where that has been
 * killed with all its processes, the fd holder.
 */
#include "mesh/transport/launcher_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    HOLD_MS = 3000, /* launchers end all processes a second or two after one has died */
    LOOK_MS = 20,
    MOST_DESCRIPTORS = 65536,
    STACK_BYTES = 32 << 10
};

/* The memory that the two processes share. */
typedef struct held {
    _Atomic int count;
    _Atomic int lock; /* a file's that is kept open, too; -1: none */
    _Atomic int fd[]; /* the failure detector's */
} held;

static held *list;
static size_t list_bytes;
static int most; /* connections that have room in the list */
static pid_t parent, launcher, holder;
static char segment[256]; /* the parent's alone; "": none */

/* Files, devices and pipes end with the parent; so does what it printed to. */
static void close_all_but_connections(void)
{
    struct stat s;

    for (int fd = 0; fd < MOST_DESCRIPTORS; fd++)
        if (fd != atomic_load(&list->lock) && fstat(fd, &s) == 0 &&
            (fd <= STDERR_FILENO || !S_ISSOCK(s.st_mode)))
            close(fd);
}

/* Shows the process under this name in ps and pgrep; the arguments stay. */
static void show_as(const char *name)
{
    size_t room = strlen(program_invocation_name), length = strlen(name);

    prctl(PR_SET_NAME, name);
    memset(program_invocation_name, 0, room);
    memcpy(program_invocation_name, name, length < room ? length : room);
}

/* Holds the descriptors, in a copy of the parent's memory, made early, while that is little. */
static int hold(void *unused)
{
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    sigset_t set;
    int number;

    (void)unused;
    show_as("weft-fd-holder");
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    while (getppid() == parent) /* a launcher's SIGTERM is for the parent */
        sigwait(&set, &number);
    for (int i = 0, n = atomic_load(&list->count); i < n; i++)
        shutdown(atomic_load(&list->fd[i]), SHUT_RDWR);
    close_all_but_connections();
    for (int ms = 0; ms < HOLD_MS && (kill(launcher, 0) == 0 || errno == EPERM); ms += LOOK_MS)
        nanosleep(&nap, NULL);
    if (*segment)
        unlink(segment);
    return 0;
}

void wf_fd_holder_start(int connections)
{
    static char stack[STACK_BYTES] __attribute__((aligned(64)));
    sigset_t all, before;

    wf_fd_holder_stop();
    list_bytes = sizeof *list + (size_t)connections * sizeof list->fd[0];
    list = mmap(NULL, list_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED) {
        list = NULL;
        return;
    }
    atomic_store(&list->lock, -1);
    most = connections;
    parent = getpid();
    launcher = getppid();
    if (!wf_launcher_segment(segment, sizeof segment))
        *segment = '\0';
    sigfillset(&all); /* it inherits the mask: what is sent to the job is not for it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    holder = clone(hold, stack + sizeof stack, CLONE_FILES, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void wf_fd_holder_add(int fd)
{
    int at;

    if (!list)
        return;
    at = atomic_load(&list->count);
    if (at == most)
        return;
    atomic_store(&list->fd[at], fd);
    atomic_store(&list->count, at + 1);
}

void wf_fd_holder_drop(int fd)
{
    for (int i = 0; list && i < atomic_load(&list->count); i++)
        if (atomic_load(&list->fd[i]) == fd)
            atomic_store(&list->fd[i], -1);
}

void wf_fd_holder_keep(int lock)
{
    if (list)
        atomic_store(&list->lock, lock);
}

void wf_fd_holder_stop(void)
{
    if (!list)
        return;
    if (holder > 0) {
        kill(holder, SIGKILL);
        waitpid(holder, NULL, __WALL);
    }
    munmap(list, list_bytes);
    list = NULL;
}
