/* parallel/plan/record.c - see the header. */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/record_internal.h"
#include "core/op.h"
#include "parallel/simulate/paced.h"
#include <stdlib.h>
#include <string.h>

/* A record as it is written: `front` are the nodes that are over and are not implied by others;
   what begins waits for them. */
typedef struct writer {
    wf_step_record *record;
    const wf_sim_paced *paced; /* NULL: no times */
    const wf_context *ctx;     /* the context of the last op */
    int64_t room, wait_room;
    int64_t *front, *seen; /* seen: [node] the front's version when a collective began */
    int fronts, front_room;
    int64_t version;
    int64_t last[WF_MAX_AXES + 1]; /* collectives of each axis's group, and the world's; -1 */
    bool full;                     /* no memory */
} writer;

/* Makes room for one more after `count`. */
static bool grow(writer *w, void **list, int64_t count, int64_t *room, size_t size)
{
    int64_t more = *room ? 2 * *room : 256;
    void *larger;

    if (count < *room)
        return true;
    larger = realloc(*list, (size_t)more * size);
    w->full = w->full || !larger;
    if (!larger)
        return false;
    *list = larger;
    *room = more;
    return true;
}

static bool grow_nodes(writer *w)
{
    wf_step_record *r = w->record;
    int64_t room = w->room;

    return grow(w, (void **)&w->seen, r->count, &room, sizeof *w->seen) &&
           grow(w, (void **)&r->node, r->count, &w->room, sizeof *r->node);
}

static void set_front(writer *w, int64_t node, bool alone)
{
    int64_t room = w->front_room;

    if (alone)
        w->fronts = 0;
    if (!grow(w, (void **)&w->front, w->fronts, &room, sizeof *w->front))
        return;
    w->front_room = (int)room;
    w->front[w->fronts++] = node;
    w->version++;
}

/* Returns what a transfer moves: activations of a module, by its path, or parameters,
   gradients, .. */
static const char *moved_of(const wf_context *ctx)
{
    wf_memory_kind kind = ctx ? wf_context_memory_kind_now(ctx) : WF_MEMORY_PARAMETER;
    const char *path = ctx ? wf_context_path(ctx) : NULL;

    if (kind != WF_MEMORY_ACTIVATION)
        return wf_memory_kind_name(kind);
    return path && *path ? path : "model";
}

static char *name_of(const wf_context *ctx, const char *op, const char *what, const char *where)
{
    const char *action = ctx ? wf_context_action_now(ctx) : NULL;
    char *name;

    if (asprintf(&name, "%s%s%s%s%s%s%s", action ? action : "", action ? " " : "", op,
                 what ? " " : "", what ? what : "", where ? " " : "", where ? where : "") < 0)
        return NULL;
    return name;
}

/* Appends a node after all that is over; NULL: no memory. */
static wf_step_node *add(writer *w, const char *op, const char *what, const char *where)
{
    wf_step_record *r = w->record;
    wf_step_node *n;

    if (w->full || !grow_nodes(w))
        return NULL;
    n = &r->node[r->count];
    *n = (wf_step_node){.name = name_of(w->ctx, op, what, where),
                        .first_wait = r->waits,
                        .axis = -1,
                        .peer = -1,
                        .after = -1};
    w->full = !n->name;
    w->seen[r->count++] = w->version;
    for (int i = 0; i < w->fronts; i++)
        if (grow(w, (void **)&r->wait, r->waits, &w->wait_room, sizeof *r->wait)) {
            r->wait[r->waits++] = w->front[i];
            n->waits++;
        }
    return w->full ? NULL : n;
}

/* An op that multiplies nothing has an operation for each of its results. */
static double operations_of(const wf_call *call, const wf_sim_work *work)
{
    int64_t elements = call->n_out ? 0 : wf_tensor_local_count(call->in[0]);

    for (int o = 0; o < call->n_out; o++)
        elements += call->out[o] ? wf_tensor_local_count(call->out[o]) : 0;
    return work->flops > 0 ? work->flops : (double)elements;
}

static void note_op(void *self, const wf_call *call)
{
    writer *w = self;
    wf_sim_work work = wf_sim_work_of(call);
    wf_step_node *n;

    w->ctx = call->ctx;
    n = add(w, call->op->name, NULL, wf_context_path(call->ctx));
    if (!n)
        return;
    n->kind = WF_STEP_OP;
    n->operations = operations_of(call, &work);
    n->bytes = work.bytes;
    if (w->paced)
        n->seconds = w->paced->pace.op(w->paced->pace.self, call);
    set_front(w, w->record->count - 1, true);
}

static int axis_of(const wf_step_record *r, const char *group)
{
    int axis = 0;

    while (axis < r->axes && strcmp(r->axis_name[axis], group) != 0)
        axis++;
    return axis;
}

static double time_of(const writer *w, const wf_oplog_move *what, const wf_step_node *n)
{
    const wf_step_record *r = w->record;
    int members[2], stride = 1, first = 0;
    wf_pace_transfer t = {what->op, what->whole, members, what->size};
    double latency, takes;

    if (!w->paced)
        return 0;
    wf_step_record_group(r, n->axis, r->rank, &first, &stride);
    members[0] = n->kind == WF_STEP_COLLECTIVE ? first : r->rank;
    members[1] = n->kind == WF_STEP_COLLECTIVE ? first + stride : n->peer;
    t.op = n->kind == WF_STEP_RECV ? "send" : what->op;
    takes = w->paced->pace.transfer(w->paced->pace.self, &t, &latency);
    return takes + latency;
}

static wf_step_node_kind kind_of(const wf_step_record *r, const wf_oplog_move *what)
{
    bool sends = strcmp(what->op, "send") == 0;

    if (!sends && strcmp(what->op, "recv") != 0)
        return WF_STEP_COLLECTIVE;
    if (axis_of(r, what->group) == r->axes)
        return WF_STEP_TREE;
    return sends ? WF_STEP_SEND : WF_STEP_RECV;
}

static uint64_t note_begin(void *self, const wf_oplog_move *what)
{
    writer *w = self;
    int64_t number = w->record->count;
    wf_step_node_kind kind = kind_of(w->record, what);
    wf_step_node *n;

    if (kind == WF_STEP_TREE && number && w->record->node[number - 1].kind == WF_STEP_TREE)
        return (uint64_t)number; /* one of the same tree */
    n = add(w, kind == WF_STEP_TREE ? "tree" : what->op,
            kind == WF_STEP_COLLECTIVE ? moved_of(w->ctx) : NULL, what->group);
    if (!n)
        return 0;
    n->op = what->op;
    n->kind = kind;
    n->axis = axis_of(w->record, what->group);
    n->peer = what->peer;
    n->brings = what->brings;
    n->element = what->element;
    n->receives = what->receives;
    n->tag = what->tag;
    n->seconds = time_of(w, what, n);
    if (n->kind == WF_STEP_COLLECTIVE) {
        n->after = w->last[n->axis];
        w->last[n->axis] = number;
    }
    return (uint64_t)number + 1;
}

/* Notes the end of a transfer. If nothing else ended since it began, it implies all that ended
   before. */
static void note_end(void *self, uint64_t number)
{
    writer *w = self;
    int64_t node = (int64_t)number - 1;

    if (w->fronts && w->front[w->fronts - 1] == node)
        return; /* another message of a tree */
    set_front(w, node, w->seen[node] == w->version);
}

/* The mesh is known when the plan is over, and collectives ask before: it is planned once for
   that. */
static wf_status note_mesh(const wf_plan_request *o, int rank, wf_step_record *r,
                           wf_error *error)
{
    wf_plan run;

    if (wf_plan_request_oplog(o, rank, NULL, &run, error) != WF_OK)
        return error->code;
    r->axes = run.report.n_traffic - 1;
    r->ranks = run.report.traffic[r->axes].ranks;
    for (int a = 0; a < r->axes; a++) {
        r->axis_size[a] = run.report.traffic[a].ranks;
        memcpy(r->axis_name[a], run.report.traffic[a].axis, WF_AXIS_NAME);
    }
    return WF_OK;
}

wf_status wf_step_record_make(const wf_plan_request *o, const wf_sim_machine *machine, int rank,
                              const wf_step_record *mesh, wf_step_record *record,
                              wf_error *error)
{
    wf_sim_paced paced;
    writer w = {.record = record, .paced = machine ? &paced : NULL};
    const wf_oplog oplog = {note_op, note_begin, note_end, &w};
    wf_plan run;

    *record = mesh->axes ? *mesh : (wf_step_record){.axes = 0};
    record->node = NULL;
    record->wait = NULL;
    record->count = record->waits = 0;
    record->rank = rank;
    if (!mesh->axes && note_mesh(o, rank, record, error) != WF_OK)
        return error->code;
    if (machine)
        wf_sim_pace(machine, 1, &paced);
    for (int a = 0; a <= WF_MAX_AXES; a++)
        w.last[a] = -1;
    wf_plan_request_oplog(o, rank, &oplog, &run, error);
    free(w.front);
    free(w.seen);
    if (error->code == WF_OK && w.full)
        wf_error_set(error, WF_ENOMEM, "no memory to write down the step of rank %d", rank);
    return error->code;
}

void wf_step_record_free(wf_step_record *r)
{
    for (int64_t i = 0; i < r->count; i++)
        free(r->node[i].name);
    free(r->node);
    free(r->wait);
    *r = (wf_step_record){.count = 0};
}

/* Returns the bytes that a rank receives. A broadcast reaches all but its root; members' shares
   of an all_reduce are whole cache lines, and may differ in their number. */
int64_t wf_step_record_received(const wf_step_record *r, const wf_step_node *n, int rank)
{
    int first, there, stride, size;
    int64_t count;

    if (n->kind != WF_STEP_COLLECTIVE)
        return n->receives;
    wf_step_record_group(r, n->axis, rank, &first, &stride);
    wf_step_record_group(r, n->axis, r->rank, &there, &stride);
    if (n->peer >= 0)
        return n->peer - there + first == rank ? 0 : n->brings;
    if (strcmp(n->op, "all_reduce") != 0)
        return n->receives;
    size = n->axis < r->axes ? r->axis_size[n->axis] : r->ranks;
    count = n->brings / (int64_t)n->element;
    return wf_all_reduce_received(count, size, (rank - first) / stride) * (int64_t)n->element;
}

/* Returns true where the other ends of messages are as far away, and roots have the same rank
   in their groups. */
static bool same_peer(const wf_step_record *a, const wf_step_node *x, const wf_step_record *b,
                      const wf_step_node *y)
{
    int first, there, stride;

    if (x->kind == WF_STEP_SEND || x->kind == WF_STEP_RECV)
        return x->peer - a->rank == y->peer - b->rank;
    if (x->kind != WF_STEP_COLLECTIVE || (x->peer < 0 && y->peer < 0))
        return true;
    wf_step_record_group(a, x->axis, a->rank, &first, &stride);
    wf_step_record_group(b, y->axis, b->rank, &there, &stride);
    return x->peer - first == y->peer - there;
}

static bool same_node(const wf_step_record *a, const wf_step_node *x, const wf_step_record *b,
                      const wf_step_node *y)
{
    if (x->kind != y->kind || x->axis != y->axis || strcmp(x->name, y->name) != 0)
        return false;
    return x->operations == y->operations && x->bytes == y->bytes && x->brings == y->brings &&
           x->element == y->element && x->tag == y->tag && x->waits == y->waits &&
           x->after == y->after && same_peer(a, x, b, y) &&
           (x->kind == WF_STEP_TREE || wf_step_record_received(a, x, b->rank) == y->receives);
}

bool wf_step_record_alike(const wf_step_record *a, const wf_step_record *b)
{
    bool same = a->count == b->count && a->waits == b->waits;

    for (int64_t i = 0; i < a->count && same; i++)
        same = same_node(a, &a->node[i], b, &b->node[i]);
    return same &&
           (a->waits == 0 || memcmp(a->wait, b->wait, (size_t)a->waits * sizeof *a->wait) == 0);
}

int wf_step_record_group(const wf_step_record *r, int axis, int rank, int *first, int *stride)
{
    int number = 1, inner = 1;

    *first = 0;
    *stride = 1;
    if (axis >= r->axes)
        return number; /* the world's; those of the axes follow */
    number++;
    for (int a = 0; a < axis; a++)
        number += r->ranks / r->axis_size[a];
    for (int a = axis + 1; a < r->axes; a++)
        inner *= r->axis_size[a];
    *stride = inner;
    *first = rank - rank / inner % r->axis_size[axis] * inner;
    return number + *first / (inner * r->axis_size[axis]) * inner + rank % inner;
}
