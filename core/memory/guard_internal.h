/* core/memory/guard_internal.h - zones around blocks, and a quarantine for what is given back.
   Not installed. */
#ifndef WF_CORE_MEMORY_GUARD_INTERNAL_H
#define WF_CORE_MEMORY_GUARD_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

enum { WF_GUARD_ZONE = 64 };

typedef struct wf_guard wf_guard;

/* A block of a pool, with its zones. */
typedef struct wf_guarded {
    char *block; /* the owner's memory */
    size_t bytes;
} wf_guarded;

/* Open the guard of a pool; NULL: no memory. */
wf_guard *wf_guard_open(void (*damaged)(void *self, const char *what, size_t bytes),
                        void *self);
void wf_guard_close(wf_guard *g);

/* Write the zones of what the pool has taken with 2 WF_GUARD_ZONE bytes more; returns what its
   owner gets. */
void *wf_guard_take(char *taken, size_t bytes);

bool wf_guard_is_intact(const char *block, size_t bytes);

/* Put a block into the quarantine. Call wf_guard_leave until it returns false: each is then to
   be given back. */
void wf_guard_put(wf_guard *g, void *block, size_t bytes);
bool wf_guard_leave(wf_guard *g, wf_guarded *left);

#endif
