/* mesh/cluster/in_child.c - see the header. */
#include "mesh/cluster/in_child_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WALL_MS = 60000, MEMORY_MIB = 2048 };

/* The first bytes of what the child writes. */
typedef struct answer {
    uint64_t bytes; /* bytes that follow */
    int32_t status;
    char text[sizeof((wf_error){0}).text];
} answer;

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns the bytes of addresses that this process has mapped, terabytes with some sanitizers;
   0: not known. */
static rlim_t mapped(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file && fscanf(file, "%llu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Limits the child: no handler of the parent's runs here, nothing is printed, and no core is
   written. */
static void set_limits(void)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT};
    const struct rlimit seconds = {WF_CHILD_SECONDS, WF_CHILD_SECONDS + 1};
    const rlim_t memory = mapped() + ((rlim_t)MEMORY_MIB << 20);
    int nowhere = open("/dev/null", O_RDWR);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        signal(crashes[i], SIG_DFL);
    for (int fd = 0; nowhere >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(nowhere, fd);
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_AS, &(struct rlimit){memory, memory});
}

/* Runs the child's body, and ends the child without running any exit handler of the parent. */
static _Noreturn void run(int fd, wf_child_body *body, void *arg)
{
    wf_error error = {WF_OK, ""};
    char *written = NULL;
    size_t bytes = 0;
    FILE *memory, *out = fdopen(fd, "w");
    answer a = {.status = WF_ENOMEM, .text = "no memory in the process that reads"};

    set_limits();
    memory = open_memstream(&written, &bytes);
    if (memory) {
        a.status = (int32_t)body(arg, memory, &error);
        memcpy(a.text, error.text, sizeof a.text);
        if (fclose(memory) != 0)
            a.status = WF_ENOMEM;
    }
    a.bytes = a.status == WF_OK ? bytes : 0;
    if (out && fwrite(&a, sizeof a, 1, out) == 1 && a.bytes)
        fwrite(written, bytes, 1, out);
    if (out)
        fflush(out);
    _exit(0);
}

/* Reads what comes until the end. False: it takes too long, is too much, or there is no
   memory. */
static bool take(int fd, size_t most, char **all, size_t *bytes)
{
    int64_t until = now_ms() + WALL_MS;
    size_t room = 0;

    for (*bytes = 0;;) {
        struct pollfd set = {.fd = fd, .events = POLLIN};
        int64_t left = until - now_ms();
        ssize_t came;

        if (*bytes == room) {
            char *more = realloc(*all, room = room ? 2 * room : 1 << 16);

            if (!more)
                return false;
            *all = more;
        }
        if (left <= 0 || (poll(&set, 1, (int)left) < 0 && errno != EINTR))
            return false;
        if (!set.revents)
            continue;
        came = read(fd, *all + *bytes, room - *bytes);
        if (came == 0)
            return true;
        if (came < 0 && errno != EINTR)
            return false;
        *bytes += came > 0 ? (size_t)came : 0;
        if (*bytes > most)
            return false;
    }
}

static wf_status judge(const char *what, int ended, bool stopped, const char *all, size_t bytes,
                       wf_error *error)
{
    int by = WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
    answer a = {.bytes = UINT64_MAX};

    if (bytes >= sizeof a)
        memcpy(&a, all, sizeof a);
    a.text[sizeof a.text - 1] = '\0';
    if (!stopped && bytes >= sizeof a && a.bytes == bytes - sizeof a)
        return a.status == WF_OK
                   ? WF_OK
                   : wf_error_set(error, (wf_status)a.status, "%s",
                                  *a.text ? a.text : wf_status_name((wf_status)a.status));
    if (stopped || by == SIGXCPU)
        return wf_error_set(error, WF_EIO,
                            "%s: hwloc has not read it within %d s of processor time: it "
                            "describes too large a machine, or is damaged",
                            what, WF_CHILD_SECONDS);
    return wf_error_set(error, WF_EIO, "%s: hwloc %s%s%s: it is damaged", what,
                        by && by != SIGKILL ? "crashes on it (" : "gives up on it",
                        by && by != SIGKILL ? strsignal(by) : "",
                        by && by != SIGKILL ? ")" : "");
}

wf_status wf_in_child(const char *what, wf_child_body *body, void *arg, size_t most,
                      char **result, size_t *bytes, wf_error *error)
{
    int ends[2], ended = 0;
    wf_status status;
    char *all = NULL;
    size_t n = 0;
    pid_t child;
    bool whole;

    *result = NULL;
    *bytes = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return wf_error_set(error, WF_EIO, "no pipe to a process that reads %s: %s", what,
                            strerror(errno));
    child = fork();
    if (child < 0) {
        wf_error_set(error, WF_ENOMEM, "no process to read %s: %s", what, strerror(errno));
        close(ends[0]);
        close(ends[1]);
        return error->code;
    }
    if (child == 0) {
        close(ends[0]);
        run(ends[1], body, arg);
    }
    close(ends[1]);
    whole = take(ends[0], sizeof(answer) + most, &all, &n);
    close(ends[0]);
    if (!whole)
        kill(child, SIGKILL);
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR)
        ;
    status = judge(what, ended, !whole, all, n, error);
    if (status == WF_OK) {
        n -= sizeof(answer);
        memmove(all, all + sizeof(answer), n);
        *result = all;
        *bytes = n;
    } else {
        free(all);
    }
    return status;
}
