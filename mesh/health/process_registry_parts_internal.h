/* mesh/health/process_registry_parts_internal.h - what the process registry's names and its
   looks share. Not installed. */
#ifndef WF_MESH_HEALTH_PROCESS_REGISTRY_PARTS_INTERNAL_H
#define WF_MESH_HEALTH_PROCESS_REGISTRY_PARTS_INTERNAL_H

#include "mesh/health/process_registry_internal.h"
#include "mesh/health/private_names_internal.h"
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/* This process among those of its host. */
typedef struct wf_registry_state {
    bool joins;  /* a world of several processes, which has limits for its start and its end; */
    bool named;  /* its processes have names; */
    bool active; /* this one can be reached, too */
    int local, n;              /* this process's number on its host, of how many */
    char base[WF_NAME_BYTES];  /* the beginning of all names of this world */
    char claim[WF_NAME_BYTES]; /* the name of the reporter */
    int listener;
    int processes;          /* those of all hosts */
    _Atomic bool met;       /* all processes have, as this one or the next one knows */
    _Atomic bool left;      /* the next process has sent its goodbye message */
    _Atomic bool reported;  /* another one has said that it reports to the user */
    _Atomic bool over;      /* MPI has ended */
    _Atomic int at_the_end; /* others that have said so, to the first; */
    pid_t *came;            /* [n] these */
    /* [n] those that this one could reach when all had met; it waits for no others: the first
       for all of its host, and they for the first */
    pid_t *here;
    bool noted;            /* `here` is */
    _Atomic bool first_is; /* the first is at the end */
    _Atomic bool all_are;  /* as the first says */
    int *rank;             /* [processes] the first of each; or NULL */
    pid_t next;            /* the next process; 0: it has not come */
    int next_process;
    bool warned;                  /* the long start was reported */
    int64_t begun, stopped, gone; /* since when, in milliseconds; 0: it is not */
    int64_t limit, end_limit;     /* in milliseconds */
    void (*exit_now)(wf_status status);
} wf_registry_state;

extern wf_registry_state wf_registry;

/* ---- process_registry.c ---- */

/* Returns a connection to a process of this host, by its number there; -1: it has not come, or
   is gone. */
int wf_registry_reach(int number, pid_t *pid);

/* Notes which of this host can be reached. */
void wf_registry_note_here(void);

/* Reads messages of others: that they end normally, or that they report. */
void wf_registry_hear(void);

/* Sends to the watching process that this one ends, and is not lost. Also from a signal. */
void wf_registry_say_goodbye(void);

/* Note that this one is at the end of the run, and return whether all of this host are, as the
   first of them hears and says. A message stays readable when its sender has ended. */
void wf_registry_come_to_the_end(void);
bool wf_registry_all_are_at_the_end(void);

/* Returns true where a process of this host has reached the end, as far as this one has to
   know: the first knows of all, the others of the first. */
bool wf_registry_is_at_the_end(int number, pid_t pid);

/* ---- process_registry_look.c ---- */

/* MPI has ended here: should the process itself not end, it says so and is ended. */
void wf_registry_watch_exit(void);

#endif
