/* mesh/cluster/launch_check.c - compares what the environment says of the processes with what
   they are. */
#include "mesh/cluster/launch_internal.h"
#include "mesh/transport/launcher_internal.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number in a process's environment; -1: none. And the transport's number. */
typedef struct said {
    int32_t process, local, local_process;
    int32_t host; /* the number of the first process there */
    char name[64];
} said;

static said say(const wf_processes *all)
{
    const wf_launcher l = wf_launcher_detected();
    said s = {.process = *l.name ? l.process : -1,
              .local = l.local > 0 ? l.local : -1,
              .local_process = l.local_process,
              .host = all->host};

    gethostname(s.name, sizeof s.name - 1);
    return s;
}

#define CHANGED                                                                                \
    "; what starts the program between the launcher and it has changed that: start it "        \
    "without, or leave the launcher's variables as they are"

/* Processes of a host have the numbers from 0 on, in any order. */
static wf_status check_local(const said *s, int n, int p, const char *const *variable,
                             wf_error *error)
{
    int here = 0, index = 0, twin = -1;

    for (int q = 0; q < n; q++) {
        bool together = s[q].host == s[p].host;

        here += together;
        index += together && q < p;
        if (together && q < p && s[q].local_process == s[p].local_process)
            twin = q;
    }
    if (s[p].local >= 0 && s[p].local != here)
        return wf_error_set(error, WF_EINVAL,
                            "process %d on %s has %s=%d in its environment, and there are %d "
                            "processes of this run on its host" CHANGED,
                            p, s[p].name, variable[1], (int)s[p].local, here);
    if (s[p].local >= 0 && s[p].local_process >= here)
        return wf_error_set(
            error, WF_EINVAL,
            "process %d on %s has %s=%d in its environment, and is number %d of "
            "the %d processes of its host" CHANGED,
            p, s[p].name, variable[2], (int)s[p].local_process, index, here);
    if (s[p].local >= 0 && twin >= 0)
        return wf_error_set(error, WF_EINVAL,
                            "process %d on %s has %s=%d in its environment, as process %d has, "
                            "and is number %d of the %d processes of its host" CHANGED,
                            p, s[p].name, variable[2], (int)s[p].local_process, twin, index,
                            here);
    return WF_OK;
}

static wf_status check_all(const said *s, int n, const char *transport, wf_error *error)
{
    const char *variable[3];

    if (!wf_launcher_variables(variable))
        variable[0] = variable[1] = variable[2] = "the launcher's number";
    for (int p = 0; p < n; p++)
        if (s[p].process != p && (s[p].process >= 0 || s[0].process >= 0))
            return s[p].process < 0
                       ? wf_error_set(error, WF_EINVAL,
                                      "process %d on %s has no variables of its launcher, and "
                                      "process 0 on %s has" CHANGED,
                                      p, s[p].name, s[0].name)
                       : wf_error_set(error, WF_EINVAL,
                                      "process %d on %s has %s=%d in its environment, and %s "
                                      "numbers it %d" CHANGED,
                                      p, s[p].name, variable[0], (int)s[p].process, transport,
                                      p);
    for (int p = 0; p < n; p++)
        if (check_local(s, n, p, variable, error) != WF_OK)
            return error->code;
    return WF_OK;
}

wf_status wf_launch_check(const wf_transport *t, void *world, const wf_processes *all,
                          wf_error *error)
{
    size_t n = (size_t)all->n, *begin;
    said mine = say(all), *s;
    char *bytes = NULL;
    wf_status status;

    if (all->n == 1 || !t->gather)
        return WF_OK;
    begin = malloc((n + 1) * sizeof *begin);
    s = malloc(n * sizeof *s);
    if (begin && s)
        status = t->gather(world, &mine, sizeof mine, &bytes, begin, error);
    else
        status = wf_error_set(error, WF_ENOMEM, "no memory to compare %d processes", all->n);
    if (status == WF_OK) {
        memcpy(s, bytes, n * sizeof *s);
        status = check_all(s, all->n, t->name, error);
    }
    free(bytes);
    free(begin);
    free(s);
    return status;
}
