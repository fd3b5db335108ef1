/*
 * parallel/plan/search_timed.c - a step of any model in time: its plan's ops and transfers,
 * each as long as the machine's figures say (parallel/simulate/paced.h). Of a pipeline each
 * stage is timed so, and its schedule simulated with these costs.
 *
 * A rank has a clock, which its ops move, and a lane for each group of ranks, on which its
 * collectives follow each other. Where the machine moves in the background, a rank waits for
 * what is left of a collective when it needs it; else for all of it.
 */
#include "core/dtype.h"
#include "core/op.h"
#include "parallel/plan/plan_internal.h"
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search_internal.h"
#include "parallel/simulate/paced.h"
#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT = 256, OTHER = -1 };

/* Actions that are timed of a stage. */
typedef enum timed_kind { FORWARD, BOTH, INPUTS, WEIGHTS, UPDATE, KINDS } timed_kind;

static const char *const kinds[KINDS] = {"F", "B", "I", "W", "OPT"};

typedef struct timed_stage {
    wf_sim_cost of[KINDS];
    int64_t count[KINDS];
    double send_forward, send_backward;
} timed_stage;

typedef struct timer {
    const wf_plan_request *request;
    wf_axis axes[WF_MAX_AXES + 1]; /* those of the mesh, the outermost first */
    wf_sim_paced paced;
    const wf_context *ctx;             /* the context of the last op */
    double shared;                     /* ranks of a host on each of its cores, at least 1 */
    double now, lane[WF_MAX_AXES + 1]; /* s; of each axis, and of the world */
    double end[IN_FLIGHT];             /* ends of collectives under way, by number .. */
    wf_sim_term term[IN_FLIGHT];
    double takes[IN_FLIGHT];
    uint64_t number;
    wf_sim_cost spent; /* in no action of a stage */
    timed_stage *stage;
    int stages;
    /* the last ones that were counted: two that alternate, at most */
    char action[2][32];
} timer;

/* Returns the stage and kind of an action as it is written, "F2.5"; OTHER: it is of no
   stage. */
static int stage_of(const timer *t, const char *action, timed_kind *kind)
{
    for (int k = 0; action && k < KINDS; k++) {
        size_t n = strlen(kinds[k]);
        char *end;
        long stage;

        if (strncmp(action, kinds[k], n) != 0)
            continue;
        stage = strtol(action + n, &end, 10);
        if (end == action + n || stage < 0 || stage >= t->stages)
            continue;
        *kind = (timed_kind)k;
        return (int)stage;
    }
    return OTHER;
}

/* Adds time to the action that runs. */
static void spend(timer *t, wf_sim_term term, double seconds)
{
    const char *action = t->ctx ? wf_context_action_now(t->ctx) : NULL;
    timed_kind kind = FORWARD;
    int s = stage_of(t, action, &kind);

    t->now += seconds;
    if (s == OTHER) {
        t->spent.of[term] += seconds;
        return;
    }
    t->stage[s].of[kind].of[term] += seconds;
    if (strcmp(t->action[0], action) != 0 && strcmp(t->action[1], action) != 0) {
        memcpy(t->action[1], t->action[0], sizeof t->action[1]);
        snprintf(t->action[0], sizeof t->action[0], "%s", action);
        t->stage[s].count[kind]++;
    }
}

static void note_op(void *self, const wf_call *call)
{
    timer *t = self;
    wf_sim_work work = wf_sim_work_of(call);
    double launch = t->paced.machine.launch;
    double seconds = t->paced.pace.op(t->paced.pace.self, call);
    const char *phase = wf_context_phase_now(call->ctx);
    wf_sim_term term = phase && strcmp(phase, "optimizer") == 0 ? WF_SIM_OPTIMIZER
                       : work.attention                         ? WF_SIM_ATTENTION
                       : work.flops > 0                         ? WF_SIM_PRODUCTS
                                                                : WF_SIM_ELEMENTS;

    t->ctx = call->ctx;
    spend(t, WF_SIM_LAUNCH, launch);
    spend(t, term, (seconds - launch) * t->shared);
}

/* Returns whether what begins moves activations, which the next op waits for: nothing delays it
   on a lane. */
static bool moves_activations(const timer *t)
{
    return t->ctx && wf_context_memory_kind_now(t->ctx) == WF_MEMORY_ACTIVATION;
}

static wf_sim_term term_of(const timer *t, const wf_oplog_move *what)
{
    if (strcmp(what->group, "tp") == 0)
        return WF_SIM_TENSOR;
    if (strcmp(what->group, "cp") == 0)
        return WF_SIM_CONTEXT;
    if (strcmp(what->group, "ep") == 0 && moves_activations(t))
        return WF_SIM_EXPERTS;
    if (strcmp(what->op, "all_gather") == 0 || strcmp(what->op, "broadcast") == 0)
        return WF_SIM_GATHER;
    return WF_SIM_REDUCE;
}

/* Returns the number of a group's axis; after them comes the world's. */
static int axis_of(const timer *t, const char *group)
{
    int axis = 0;

    while (t->axes[axis].name && strcmp(t->axes[axis].name, group) != 0)
        axis++;
    return axis;
}

/* Returns the distance of a group's neighbours in the order of the mesh: the ranks of the axes
   inside it; the world's: 1. */
static int stride_of(const wf_axis *axes, const char *group)
{
    int stride = 1;

    for (; axes->name && strcmp(axes->name, group) != 0; axes++)
        continue;
    for (axes += axes->name != NULL; axes->name; axes++)
        stride *= axes->size;
    return stride;
}

static uint64_t note_begin(void *self, const wf_oplog_move *what)
{
    timer *t = self;
    const wf_pace_machine *pace = &t->paced.pace;
    int members[2] = {0, stride_of(t->axes, what->group)};
    wf_pace_transfer transfer = {what->op, what->whole, members, what->size};
    bool message = strcmp(what->op, "send") == 0 || strcmp(what->op, "recv") == 0;
    uint64_t i = t->number % IN_FLIGHT;
    double *lane = &t->lane[axis_of(t, what->group)], latency = 0;

    if (message) /* the schedule's simulation has them */
        return 0;
    t->takes[i] = pace->transfer(pace->self, &transfer, &latency) + latency;
    t->term[i] = term_of(t, what);
    if (moves_activations(t)) {
        t->end[i] = t->now + t->takes[i];
        return ++t->number;
    }
    *lane = (*lane > t->now ? *lane : t->now) + t->takes[i];
    t->end[i] = *lane;
    return ++t->number;
}

static void note_end(void *self, uint64_t number)
{
    timer *t = self;
    uint64_t i = (number - 1) % IN_FLIGHT;
    double left = t->paced.machine.background ? t->end[i] - t->now : t->takes[i];

    if (left > 0)
        spend(t, t->term[i], left);
}

/* Times the step of the last rank of each pipeline coordinate, which has the largest parts;
   fills in the fullest of them. Returns model FLOPs of all ranks. */
static double time_ranks(timer *t, wf_planned *p, wf_search_found *found, wf_error *error)
{
    const wf_oplog oplog = {note_op, note_begin, note_end, t};
    int64_t each = wf_plan_ranks(t->request) / t->request->pp;
    const wf_par_report *report = &p->plan->report;
    double flops = 0;

    p->options.oplog = &oplog;
    for (int64_t pp = 0; pp < t->request->pp; pp++) {
        t->now = 0;
        memset(t->lane, 0, sizeof t->lane);
        t->ctx = NULL;
        t->number = 0;
        *t->action[0] = *t->action[1] = 0;
        if (wf_planned_rank(p, (int)((pp + 1) * each - 1), error) != WF_OK)
            break;
        flops += report->model_flops * (double)each;
        if (report->memory.peak > found->peak || pp == 0) {
            found->peak = report->memory.peak;
            found->rank = (int)pp;
        }
    }
    p->options.oplog = NULL;
    return flops;
}

static void add(wf_sim_cost *to, const wf_sim_cost *cost, double times)
{
    for (int k = 0; k < WF_SIM_TERMS; k++)
        to->of[k] += times * cost->of[k];
}

static wf_sim_cost mean(const timed_stage *s, timed_kind kind)
{
    wf_sim_cost cost = {{0}};

    if (s->count[kind])
        add(&cost, &s->of[kind], 1 / (double)s->count[kind]);
    return cost;
}

/* Converts the measured times of a stage to the costs of its actions. B is I and W, and
   `joined` what it takes beside them. */
static wf_sim_stage stage_cost(const timed_stage *s)
{
    wf_sim_stage cost = {.forward = mean(s, FORWARD),
                         .inputs = mean(s, INPUTS),
                         .weights = mean(s, WEIGHTS),
                         .update = wf_sim_total(&s->of[UPDATE])};
    wf_sim_cost both = mean(s, BOTH);

    if (!s->count[BOTH])
        return cost;
    if (!s->count[INPUTS] && !s->count[WEIGHTS]) {
        cost.inputs = both;
        return cost;
    }
    cost.joined = both;
    add(&cost.joined, &cost.inputs, -1);
    add(&cost.joined, &cost.weights, -1);
    return cost;
}

/* Returns the bytes of tensors that a step carries on, or of their gradients. */
static double carried_bytes(const timer *t, const wf_par_chain_step *row, bool gradients)
{
    double sum = 0;

    for (int k = 0; k < row->carried; k++) {
        const wf_par_carried *c = &row->border[k];
        double bytes = (double)wf_dtype_size(gradients ? c->gradient_dtype : c->dtype);

        for (int d = 0; d < c->ndim; d++)
            bytes *= (double)c->dim[d].size;
        sum += gradients && !c->wants_gradient ? 0 : bytes;
    }
    return t->request->sequence_parallel ? sum / (double)t->request->tp : sum;
}

/* Sets what messages out of the stages take, forward and back: both pass the border between two
   stages. */
static void add_messages(const timer *t, const wf_par_pipeline *pipeline, wf_sim_stage *stage)
{
    const wf_par_borders *b = wf_par_pipeline_borders(pipeline);
    int64_t inner = wf_plan_ranks(t->request) / t->request->pp;
    wf_sim_link link = wf_sim_link_of(&t->paced.machine, 2, inner);

    for (int s = 0; s + 1 < t->stages; s++) {
        int64_t last = wf_par_pipeline_first(pipeline, s + 1) - 1;
        const wf_par_chain_step *row = &b->step[last < 0 ? 0 : last];

        stage[s].send_forward = carried_bytes(t, row, false) / link.bandwidth;
        stage[s + 1].send_backward = carried_bytes(t, row, true) / link.bandwidth;
    }
}

/* Simulates the schedule of a pipeline with the times of its stages. */
static wf_status time_schedule(timer *t, const wf_par_pipeline *pipeline, int flags,
                               wf_search_found *found, wf_error *error)
{
    const wf_sim_machine *machine = &t->paced.machine;
    wf_sim_link link = wf_sim_link_of(machine, 2, wf_plan_ranks(t->request) / t->request->pp);
    wf_sim_stage *stage = calloc((size_t)t->stages, sizeof *stage);
    wf_sim_costs costs = {.stage = stage,
                          .latency = link.latency,
                          .norm = wf_sim_total(&t->spent) / (double)t->request->pp,
                          .background = machine->background};
    wf_sim_result result;

    if (!stage)
        return wf_error_set(error, WF_ENOMEM, "no memory to time %d stages", t->stages);
    for (int s = 0; s < t->stages; s++)
        stage[s] = stage_cost(&t->stage[s]);
    add_messages(t, pipeline, stage);
    if (wf_sim_run(wf_par_pipeline_table(pipeline), &costs, flags, &result, error) == WF_OK) {
        found->seconds = result.makespan;
        found->bubble = result.bubble;
        found->path = result.path;
        wf_sim_result_free(&result);
    }
    free(stage);
    return error->code;
}

/* Returns how many ranks of a host share a core, at least 1. */
static double share_of(const wf_sim_machine *m, int64_t ranks)
{
    double here = ranks < m->devices ? (double)ranks : m->devices;

    return m->cores > 0 && here > m->cores ? here / m->cores : 1;
}

static double peak_rate(const wf_plan_request *r, const wf_sim_machine *m)
{
    return m->rate[wf_dtype_find(r->compute)];
}

wf_status wf_search_time_plans(const wf_plan_request *r, const wf_sim_machine *machine,
                               int flags, wf_search_found *found, wf_error *error)
{
    timer *t = calloc(1, sizeof *t);
    wf_plan_job made;
    wf_plan plan;
    wf_planned p = {.job = wf_plan_request_job(r, &made), .plan = &plan};
    double flops = 0;

    if (!t)
        return wf_error_set(error, WF_ENOMEM, "no memory to time a step");
    p.steps = wf_planned_steps(p.job);
    t->request = r;
    wf_sim_pace(machine, 1, &t->paced);
    t->shared = share_of(machine, wf_plan_ranks(r));
    if (wf_par_mesh_axes(&p.job->mesh, t->axes, error) > 0 &&
        wf_par_job_pipeline(p.job, &p.pipeline, error) == WF_OK && p.pipeline) {
        t->stages = wf_par_pipeline_stages(p.pipeline);
        t->stage = calloc((size_t)t->stages, sizeof *t->stage);
        if (!t->stage)
            wf_error_set(error, WF_ENOMEM, "no memory to time %d stages", t->stages);
    }
    if (error->code == WF_OK)
        flops = time_ranks(t, &p, found, error);
    if (error->code == WF_OK && p.pipeline) {
        time_schedule(t, p.pipeline, flags, found, error);
    } else if (error->code == WF_OK) {
        found->seconds = t->now;
        found->path = t->spent;
    }
    if (error->code == WF_OK)
        found->utilisation =
            flops / ((double)wf_plan_ranks(r) * found->seconds * peak_rate(r, machine));
    wf_par_pipeline_free(p.pipeline);
    free(t->stage);
    free(t);
    return error->code;
}
