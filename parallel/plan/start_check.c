/* parallel/plan/start_check.c - a run's plan before it starts: what it is refused for, and its
   memory beside the limits of its process; see request.h. */
#include "parallel/plan/print_internal.h"
#include "parallel/plan/request_internal.h"
#include "parallel/report/layout.h"
#include "parallel/report/memory_limits.h"
#include <pthread.h>
#include <string.h>

enum { MOST_PLANS = 64 }; /* most ranks that are planned one by one */

/* Bytes of a rank beside its tensors, as measured on worlds of 512 to 2048 ranks: the recorder
   and state of collectives, a part of which grows with the number of members. */
enum { OF_RANK = 640 << 10, OF_MEMBER = 1 << 10 };

/* Returns the bytes of a process with a number of ranks beside tensors. Stacks reserve
   addresses, and use hardly any memory. */
static double beside(const wf_plan_request *o, int ranks, bool reserved)
{
    double members = (double)wf_plan_ranks(o), all = ranks * (OF_RANK + OF_MEMBER * members);
    pthread_attr_t attributes;
    size_t stack = 0;

    if (reserved && pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
        all += ranks * (WF_RANK_STACK + (double)(o->threads_per_rank - 1) * (double)stack);
    }
    return all;
}

/* Returns the bytes that a limit leaves for the tensors of this process: all processes that
   were started here may share it. Negative: not even the ranks have room. */
static double room_of(const wf_plan_request *o, const wf_memory_limit *limit, int ranks,
                      int local)
{
    return limit->room / (limit->shared ? local : 1) - beside(o, ranks, limit->reserved);
}

static const wf_memory_limit *tightest(const wf_plan_request *o, const wf_memory_limit *limit,
                                       int n, int ranks, int local)
{
    const wf_memory_limit *least = NULL;

    for (int i = 0; i < n; i++)
        if (!least || room_of(o, &limit[i], ranks, local) < room_of(o, least, ranks, local))
            least = &limit[i];
    return least;
}

/* The same of a pipeline, of which a rank of each coordinate is planned, and *last is the one
   that needs most. */
static wf_status need_of_stages(const wf_plan_request *o, int ranks, double *bytes,
                                wf_plan *last, wf_error *error)
{
    int each = (int)(wf_plan_ranks(o) / o->pp);

    for (int pp = 0; pp < (int)o->pp; pp++) {
        wf_plan other;

        if (wf_plan_request_start(o, (pp + 1) * each - 1, &other, error) != WF_OK)
            return error->code;
        *bytes += (double)ranks / (double)o->pp * (double)other.report.memory.peak;
        if (pp == 0 || other.report.memory.peak > last->report.memory.peak)
            *last = other;
    }
    return WF_OK;
}

/* Bytes of all ranks of this process. Parts grow with the rank's number, so the first has least
   and the last most: where those of the last would do, or it is not known which ranks these
   are, one plan is enough. */
static wf_status need(const wf_plan_request *o, int ranks, bool all, double room, double *bytes,
                      wf_plan *last, wf_error *error)
{
    wf_plan other;
    double first;

    *bytes = 0;
    if (o->pp > 1)
        return need_of_stages(o, ranks, bytes, last, error);
    if (wf_plan_request_start(o, (int)wf_plan_ranks(o) - 1, last, error) != WF_OK ||
        ranks * (double)last->report.memory.peak <= room ||
        wf_plan_request_start(o, 0, &other, error) != WF_OK)
        return error->code;
    first = (double)other.report.memory.peak;
    *bytes = ranks * first;
    for (int rank = 1; all && ranks <= MOST_PLANS && rank < ranks; rank++) {
        if (wf_plan_request_start(o, rank, &other, error) != WF_OK)
            return error->code;
        *bytes += (double)other.report.memory.peak - first;
    }
    return WF_OK;
}

static wf_status no_room_for_ranks(const wf_plan_request *o, const wf_memory_limit *least,
                                   int ranks, int local, wf_error *error)
{
    char of_ranks[32], most[32], left[32];

    return wf_error_set(
        error, WF_ENOMEM,
        "this run does not fit: %d rank%s of %lld thread%s take %s in this process without "
        "their tensors, and %s (%s) leaves %s%s; start fewer ranks in a process, or fewer "
        ".threads_per_rank, or allow more; .memory_check off starts it all the same",
        ranks, ranks == 1 ? "" : "s", (long long)o->threads_per_rank,
        o->threads_per_rank == 1 ? "" : "s",
        wf_size_text(of_ranks, beside(o, ranks, least->reserved)), least->name,
        wf_size_text(most, least->most), wf_size_text(left, least->room),
        least->shared && local > 1 ? " for all of its processes here" : "");
}

/* The error of a run that needs too much, with what would fit. */
static wf_status no_room(const wf_plan_request *o, const wf_memory_limit *least, int ranks,
                         int local, double needed, const wf_plan *last, wf_error *error)
{
    double room = room_of(o, least, ranks, local);
    const wf_plan_advice_limits limits = {
        .room = room / ranks, .start = true, .seconds = WF_PLAN_EXPLAIN_SECONDS};
    char bytes[32], most[32], left[32], of_ranks[32], phrase[WF_ERROR_TEXT / 2];
    wf_plan_advice advice;

    wf_plan_advice_find(o, last, &limits, &advice);
    wf_plan_advice_phrase(phrase, sizeof phrase, &advice, &limits);
    return wf_error_set(
        error, WF_ENOMEM,
        "this run does not fit: the tensors of the %d rank%s of this process take %s, most for "
        "%s, and %s (%s) leaves %s%s, beside %s for the ranks themselves; %s; "
        "or allow more; .memory_check off starts it all the same",
        ranks, ranks == 1 ? "" : "s", wf_size_text(bytes, needed),
        wf_memory_kind_name(wf_plan_largest_kind(&last->report.memory)), least->name,
        wf_size_text(most, least->most), wf_size_text(left, room),
        least->shared && local > 1 ? " for each of its processes here" : "",
        wf_size_text(of_ranks, beside(o, ranks, least->reserved)), phrase);
}

/* Passes on why a plan is refused. It says as the run would what does not fit into a limit of
   tensors, and the run has more to say of that. */
static wf_status refusal(wf_error *error)
{
    if (error->code == WF_ENOMEM)
        *error = (wf_error){WF_OK, ""};
    return error->code;
}

/* Compares with the limits of the process. */
static wf_status check_memory(const wf_plan_request *o, const wf_launcher *launcher,
                              const wf_memory_limit *least, int ranks, wf_error *error)
{
    int local = launcher->local > 0 ? launcher->local : 1;
    double room = room_of(o, least, ranks, local), needed;
    wf_plan last;

    if (room < 0)
        return no_room_for_ranks(o, least, ranks, local, error);
    if (need(o, ranks, launcher->processes == 1, room, &needed, &last, error) != WF_OK)
        return refusal(error);
    return needed <= room ? WF_OK : no_room(o, least, ranks, local, needed, &last, error);
}

wf_status wf_plan_start_check(const wf_plan_request *o, const wf_launcher *launcher,
                              bool memory, wf_error *error)
{
    const bool of_host = !o->job.mesh.device || strcmp(o->job.mesh.device, "cuda") != 0;
    int local = launcher->local > 0 ? launcher->local : 1;
    int ranks = (int)wf_plan_ranks(o) / launcher->processes;
    wf_memory_limit limit[WF_MEMORY_LIMITS];
    const wf_memory_limit *least = NULL;
    wf_plan plan;

    if (!o->job.steps && !o->job.after)
        return WF_OK;
    if (memory && of_host)
        least = tightest(o, limit, wf_memory_limits("", limit), ranks, local);
    if (least)
        return check_memory(o, launcher, least, ranks, error);
    wf_plan_request_start(o, (int)wf_plan_ranks(o) - 1, &plan, error);
    return refusal(error);
}
