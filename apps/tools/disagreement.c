/* apps/tools/disagreement.c - see the header. */
#include "apps/tools/disagreement.h"

static bool alike(const wf_event *a, const wf_event *b)
{
    if (a->op != b->op)
        return false;
    return a->op == WF_ALL_TO_ALL || a->bytes == b->bytes;
}

static const wf_event *collective(const wf_recording *r, int group, uint64_t sequence)
{
    const recorded_line line = {.group = group, .peer = -1};

    return group < 0 ? NULL : recording_find(r, &line, sequence, WF_EVENT_BEGIN);
}

/* Returns how many members have begun the same as e. */
static int supporters(const recordings *w, const wf_recorded_group *group, const wf_event *e)
{
    int n = 0;

    for (int i = 0; i < w->n; i++) {
        const wf_event *other =
            collective(w->of[i], recording_group(w->of[i], group), e->sequence);

        n += other && alike(e, other);
    }
    return n;
}

/* Returns true where a rank was blocked in an operation of another group. */
static bool hangs_elsewhere(const wf_recording *r, const wf_recorded_group *group)
{
    wf_recorded_wait in;

    return recording_hangs(r, &in) && in.group != recording_group(r, group);
}

/* The n-th collective of a group on all members: whether one has not begun it as all others
   have. The odd one is who has the fewest like it. */
static bool compare(const recordings *w, const wf_recorded_group *group, uint64_t sequence,
                    disagreement *f)
{
    int members = 0, fewest = w->n, odd = 0;

    *f = (disagreement){
        .group = group, .sequence = sequence, .time = UINT64_MAX, .from = -1, .to = -1};
    for (int i = 0; i < w->n; i++) {
        int g = recording_group(w->of[i], group), like_it;
        const wf_event *e = collective(w->of[i], g, sequence);

        if (g < 0)
            continue;
        members++;
        like_it = e ? supporters(w, group, e) : 0;
        if (e && e->time < f->time)
            f->time = e->time;
        if (like_it < fewest) {
            fewest = like_it;
            odd = i;
            f->not_begun = !e;
        }
    }
    f->odd = w->of[odd]->head.rank;
    f->follows = f->not_begun && hangs_elsewhere(w->of[odd], group);
    return f->time != UINT64_MAX && fewest < members;
}

/* The first disagreement of a group, from the oldest collective that all its members hold. */
static bool search_group(const recordings *w, const wf_recorded_group *group, disagreement *f)
{
    uint64_t from = 1, to = 0;
    int members = 0;

    for (int i = 0; i < w->n; i++) {
        const recorded_line line = {.group = recording_group(w->of[i], group), .peer = -1};
        uint64_t first, last;

        if (line.group < 0)
            continue;
        members++;
        recording_held(w->of[i], &line, &first, &last);
        from = recording_oldest(w->of[i]) && first > from ? first : from;
        to = last > to ? last : to;
    }
    for (uint64_t s = from; members > 1 && s <= to; s++)
        if (compare(w, group, s, f))
            return true;
    return false;
}

/* Returns true where a is reported instead of b. */
static bool comes_first(const disagreement *a, const disagreement *b)
{
    return a->follows != b->follows ? b->follows : a->time < b->time;
}

static void take(const recordings *w, const disagreement *f, disagreement *first, bool *any)
{
    if (f->follows && w->n < w->of[0]->head.ranks)
        return; /* the recording is missing, so it is unknown what the rank did */
    if (!*any || comes_first(f, first))
        *first = *f;
    *any = true;
}

/* The other end of a message that a rank has begun: whether it is there, and the same. */
static bool differs(const recordings *w, const wf_recording *r, const wf_event *e,
                    disagreement *f)
{
    const wf_recorded_group *group = &r->group[e->group];
    const wf_recording *other = recording_of(w, e->peer);
    const recorded_line line = {.group = other ? recording_group(other, group) : -1,
                                .op = e->op == WF_SEND ? WF_RECV : WF_SEND,
                                .peer = r->head.rank};
    wf_recorded_wait in;
    bool waits = recording_hangs(r, &in) && in.group == e->group && in.op == e->op &&
                 in.peer == e->peer && in.sequence == e->sequence;
    const wf_event *theirs;
    uint64_t first, last;

    if (line.group < 0)
        return false;
    theirs = recording_find(other, &line, e->sequence, WF_EVENT_BEGIN);
    *f = (disagreement){.group = group,
                        .sequence = e->sequence,
                        .time = e->time,
                        .from = e->op == WF_SEND ? r->head.rank : e->peer,
                        .to = e->op == WF_SEND ? e->peer : r->head.rank,
                        .odd = e->peer,
                        .not_begun = !theirs};
    if (theirs)
        return theirs->tag != e->tag || theirs->bytes != e->bytes;
    recording_held(other, &line, &first, &last);
    f->follows = recording_hangs(other, &in);
    return waits && e->sequence > last && (last > 0 || recording_oldest(other) == 0);
}

static void search_messages(const recordings *w, disagreement *first, bool *any)
{
    disagreement f;

    for (int i = 0; i < w->n; i++)
        for (uint64_t k = recording_oldest(w->of[i]); k < w->of[i]->head.count; k++) {
            const wf_event *e = recording_event(w->of[i], k);

            if (e->kind == WF_EVENT_BEGIN && recording_is_message(e) &&
                !recording_is_shared(e->group) && differs(w, w->of[i], e, &f))
                take(w, &f, first, any);
        }
}

bool disagreement_find(const recordings *w, disagreement *first)
{
    bool any = false;
    disagreement f = {.odd = 0};

    for (int i = 0; i < w->n; i++)
        for (int g = 0; g < w->of[i]->head.groups; g++) {
            const wf_recorded_group *group = &w->of[i]->group[g];
            bool seen = false;

            for (int k = 0; k < i && !seen; k++)
                seen = recording_group(w->of[k], group) >= 0;
            if (!seen && !recording_is_shared(g) && group->size > 1 &&
                search_group(w, group, &f))
                take(w, &f, first, &any);
        }
    search_messages(w, first, &any);
    return any;
}
