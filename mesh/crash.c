/*
 * mesh/crash.c - signals that end the process: recordings are written, and the rank is named, by
 * plain system calls alone. What the signal did before, it then does: a core, a sanitizer's report.
 */
#include "mesh/crash.h"
#include "mesh/recorder_parts.h"
#include "mesh/watch.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 700 };

static const struct {
    int number;
    const char *name;
} deadly[] = {{SIGSEGV, "SIGSEGV, an invalid memory reference"},
              {SIGBUS, "SIGBUS, memory that cannot be had"},
              {SIGFPE, "SIGFPE, an invalid arithmetic operation"},
              {SIGILL, "SIGILL, an invalid instruction"},
              {SIGABRT, "SIGABRT, the program gave up"}};

enum { DEADLY = sizeof deadly / sizeof deadly[0] };

static struct sigaction before[DEADLY];
static int told = -1;
static atomic_flag crashed = ATOMIC_FLAG_INIT;
static _Thread_local wf_recorder *mine;

void wf_crash_rank(wf_comm *world)
{
    mine = wf_recorder_of(world);
}

static void add(char *line, const char *text)
{
    size_t used = strlen(line);

    for (; *text && used + 2 < LINE_BYTES; text++)
        line[used++] = *text;
    line[used] = '\0';
}

static void add_number(char *line, int number)
{
    char digits[16], *at = digits + sizeof digits;
    unsigned left = number < 0 ? 0 : (unsigned)number;

    *--at = '\0';
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    add(line, at);
}

static void tell(const char *signal)
{
    char line[LINE_BYTES] = "", where[256] = "";
    const char *text;

    add(line, program_invocation_short_name);
    add(line, ": ");
    text = line + strlen(line);
    if (mine) {
        wf_recorder_where(mine, where, sizeof where);
        add(line, "rank ");
        add_number(line, wf_recorder_rank(mine));
    } else {
        add(line, "a thread of process ");
        add_number(line, (int)getpid());
    }
    add(line, ": ");
    add(line, signal);
    add(line, mine ? "; it was " : "");
    add(line, where);
    wf_watch_last_words(mine ? wf_recorder_rank(mine) : -1, text);
    if (mine)
        wf_recorder_cause(mine, text);
    wf_recorder_write_all();
    add(line, "\n");
    if (told >= 0 && write(told, line, strlen(line)) < 0)
        return;
}

/* The first crash is told; the signal comes again when the handler has returned. */
static void on_crash(int number)
{
    int keep = errno;

    for (int i = 0; i < DEADLY; i++)
        if (deadly[i].number == number) {
            if (!atomic_flag_test_and_set(&crashed))
                tell(deadly[i].name);
            sigaction(number, &before[i], NULL);
        }
    raise(number);
    errno = keep;
}

void wf_recorder_crashes(int fd)
{
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};

    told = fd;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < DEADLY; i++) {
        struct sigaction now;

        if (sigaction(deadly[i].number, NULL, &now) == 0 && now.sa_handler != on_crash) {
            before[i] = now;
            sigaction(deadly[i].number, &action, NULL);
        }
    }
}
