/*
 * core/memory/guard.c - zones around blocks that nothing may write to, and a quarantine: what
 * is given back is filled with NaNs and reused late, so that a use after free reads no other
 * tensor's numbers. What is taken is filled with NaNs too, and the zones are large numbers: a
 * kernel that reads what it has not written, or beside its operands, shows in its results.
 */
#include "core/memory/guard_internal.h"
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 4096, ZONE_BYTE = 0x7F, POISON = 0xFF };

static const size_t most_bytes = (size_t)64 << 20;

struct wf_guard {
    void (*damaged)(void *self, const char *what, size_t bytes);
    void *self;
    wf_guarded entry[ENTRIES];
    int first, n;
    size_t bytes;
};

wf_guard *wf_guard_open(void (*damaged)(void *self, const char *what, size_t bytes), void *self)
{
    wf_guard *g = calloc(1, sizeof *g);

    if (g) {
        g->damaged = damaged;
        g->self = self;
    }
    return g;
}

void wf_guard_close(wf_guard *g)
{
    free(g);
}

static bool is_filled(const char *at, size_t bytes, int with)
{
    bool filled = true;

    for (size_t i = 0; i < bytes && filled; i++)
        filled = (unsigned char)at[i] == with;
    return filled;
}

void *wf_guard_take(char *taken, size_t bytes)
{
    memset(taken, ZONE_BYTE, WF_GUARD_ZONE);
    memset(taken + WF_GUARD_ZONE, POISON, bytes);
    memset(taken + WF_GUARD_ZONE + bytes, ZONE_BYTE, WF_GUARD_ZONE);
    return taken + WF_GUARD_ZONE;
}

bool wf_guard_is_intact(const char *block, size_t bytes)
{
    return is_filled(block - WF_GUARD_ZONE, WF_GUARD_ZONE, ZONE_BYTE) &&
           is_filled(block + bytes, WF_GUARD_ZONE, ZONE_BYTE);
}

void wf_guard_put(wf_guard *g, void *block, size_t bytes)
{
    if (!wf_guard_is_intact(block, bytes))
        g->damaged(g->self, "was written before its first byte or after its last", bytes);
    memset(block, POISON, bytes);
    g->entry[(g->first + g->n++) % ENTRIES] = (wf_guarded){block, bytes};
    g->bytes += bytes;
}

bool wf_guard_leave(wf_guard *g, wf_guarded *left)
{
    if (g->n < ENTRIES && g->bytes <= most_bytes)
        return false;
    *left = g->entry[g->first];
    if (!is_filled(left->block, left->bytes, POISON))
        g->damaged(g->self, "was written after it had been given back", left->bytes);
    g->first = (g->first + 1) % ENTRIES;
    g->n--;
    g->bytes -= left->bytes;
    return true;
}
