/* mesh/comm/fingerprint.c - what members say about an exchange: compared, and a difference
   reported. */
#include "mesh/comm/transport_internal.h"
#include <stdio.h>
#include <string.h>

bool wf_fingerprint_same(const wf_fingerprint *a, const wf_fingerprint *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->detail, b->detail) == 0 &&
           a->element == b->element && a->buffers == b->buffers && a->bytes == b->bytes &&
           a->root == b->root && a->shape == b->shape;
}

bool wf_fingerprint_meets(const wf_fingerprint *a, const wf_fingerprint *b)
{
    return a->element == b->element && a->bytes == b->bytes && a->shape == b->shape;
}

static bool is_message(const wf_fingerprint *p)
{
    return strcmp(p->op, "send") == 0 || strcmp(p->op, "recv") == 0;
}

static void describe(const wf_fingerprint *p, char *text, size_t room)
{
    bool detail = p->detail[0] != '\0';
    int used = snprintf(text, room, "%s%s%s%s", p->op, detail ? "(" : "", p->detail,
                        detail ? ")" : "");

    if (p->bytes >= 0 && p->buffers > 0)
        used +=
            snprintf(text + used, room - (size_t)used, " of %lld bytes", (long long)p->bytes);
    if (p->root >= 0)
        used += snprintf(text + used, room - (size_t)used, " from %d", p->root);
    if (p->buffers > 0)
        used +=
            snprintf(text + used, room - (size_t)used, " in %lld buffer%s of %zu-byte elements",
                     (long long)p->buffers, p->buffers > 1 ? "s" : "", p->element);
    if (is_message(p) && p->shape)
        snprintf(text + used, room - (size_t)used, " with tag %llx",
                 (unsigned long long)p->shape);
}

void wf_fingerprint_differ(const wf_comm *comm, uint64_t call, const wf_fingerprint *mine,
                           int other, const wf_fingerprint *theirs, char *text, size_t room)
{
    char mine_text[256], their_text[256];

    describe(mine, mine_text, sizeof mine_text);
    describe(theirs, their_text, sizeof their_text);
    snprintf(text, room,
             "over %s, call %llu of rank %d is %s, that of rank %d is %s%s; all members of a "
             "group make the same collectives with the same sizes, in the same order",
             comm->name, (unsigned long long)call + 1, wf_comm_world_rank(comm, comm->rank),
             mine_text, wf_comm_world_rank(comm, other), their_text,
             strcmp(mine_text, their_text) == 0 ? ", counted or cut differently" : "");
}
