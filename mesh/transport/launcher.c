/* mesh/transport/launcher.c - reads what launchers put into the environment, and refuses
   contradictions. */
#include "mesh/transport/launcher_internal.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One that is set in full has started this process. An earlier row wins: a mpirun uses srun to
   reach its hosts, and what it starts has the variables of both. */
static const struct row {
    const char *kind, *name, *size, *rank;
    const char *also[2]; /* the first two alone would prove nothing */
    const char *local, *local_rank;
    /* Variables by which the process would reach its launcher: where one of these is missing
       too, the others were left by an earlier job. */
    const char *witness[3];
    const char *job[2]; /* they distinguish the jobs of a user */
} rows[] = {
    {"mpi",
     "OpenMPI's mpirun",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_RANK",
     {NULL},
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "PMIX_RANK", "OMPI_MCA_orte_hnp_uri"},
     {"PMIX_NAMESPACE"}},
    {"mpi",
     "a launcher of PMI",
     "PMI_SIZE",
     "PMI_RANK",
     {NULL},
     "MPI_LOCALNRANKS",
     "MPI_LOCALRANKID",
     {"PMI_FD", "PMI_PORT", "PMI_CONTROL_PORT"},
     {"PMI_PORT"}},
    {"mpi",
     "Slurm's srun",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_PROCID",
     {"SLURM_STEP_ID"},
     NULL,
     "SLURM_LOCALID",
     {"SLURM_STEP_ID"},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"torchrun",
     "torchrun",
     "WORLD_SIZE",
     "RANK",
     {"LOCAL_RANK", "MASTER_ADDR"},
     "LOCAL_WORLD_SIZE",
     "LOCAL_RANK",
     {"MASTER_ADDR"},
     {"MASTER_PORT", "TORCHELASTIC_RUN_ID"}},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* A whole number that is not negative; -1: none. */
static int number(const char *variable)
{
    const char *text = variable ? getenv(variable) : NULL;
    char *end;
    long value;

    if (!text || !*text)
        return -1;
    value = strtol(text, &end, 10);
    return *end || value < 0 || value > INT_MAX ? -1 : (int)value;
}

/* Returns this host's entry of Slurm's list of how many processes each host has, "2(x3),1"; -1:
   none. */
static int tasks_here(void)
{
    const char *list = getenv("SLURM_STEP_TASKS_PER_NODE");
    int host = number("SLURM_NODEID");

    while (list && *list && host >= 0) {
        char *end;
        long tasks = strtol(list, &end, 10), hosts = 1;

        if (end == list)
            return -1;
        if (strncmp(end, "(x", 2) == 0)
            hosts = strtol(end + 2, &end, 10);
        if (host < hosts)
            return tasks > 0 && tasks <= INT_MAX ? (int)tasks : -1;
        host -= (int)hosts;
        end += *end == ')';
        list = end + (*end == ',');
    }
    return -1;
}

/* All variables of the row are there, whatever they say. */
static bool is_there(const struct row *r)
{
    for (int i = 0; i < 2 && r->also[i]; i++)
        if (!getenv(r->also[i]))
            return false;
    return getenv(r->size) && getenv(r->rank);
}

static bool is_set(const struct row *r)
{
    int size = number(r->size), rank = number(r->rank);

    return is_there(r) && size >= 1 && rank >= 0 && rank < size;
}

static bool is_reachable(const struct row *r)
{
    for (int i = 0; i < 3 && r->witness[i]; i++)
        if (getenv(r->witness[i]))
            return true;
    return false;
}

static const struct row *find(void)
{
    for (int i = 0; i < ROWS; i++)
        if (is_set(&rows[i]))
            return &rows[i];
    return NULL;
}

wf_launcher wf_launcher_detected(void)
{
    const struct row *r = find();
    wf_launcher l = {"threads", "", "", 1, 0, 1, 0};
    int local, local_process;

    if (!r)
        return l;
    local = strncmp(r->size, "SLURM", 5) == 0 ? tasks_here() : number(r->local);
    local_process = number(r->local_rank);
    l = (wf_launcher){r->kind,
                      r->name,
                      r->size,
                      number(r->size),
                      number(r->rank),
                      local > 0 ? local : 0,
                      local_process > 0 ? local_process : 0};
    if (l.processes == 1)
        l.kind = "threads";
    return l;
}

/* Variables that number no process of a run: taken for none, each process would train by
   itself. */
static wf_status check_numbers(wf_error *error)
{
    for (int i = 0; i < ROWS; i++)
        if (is_there(&rows[i]) && !is_set(&rows[i]))
            return wf_error_set(
                error, WF_EINVAL,
                "%s=%.32s and %s=%.32s number no process that %s could have "
                "started: ranks are whole numbers from 0 to below the size; unset "
                "both where they are left from another job",
                rows[i].size, getenv(rows[i].size), rows[i].rank, getenv(rows[i].rank),
                rows[i].name);
    return WF_OK;
}

/* Two launchers that say different things: the inner one would be believed, and may be stale.
   srun below OpenMPI's mpirun starts one process a host and is no contradiction. */
static wf_status check_two(wf_error *error)
{
    const struct row *first = find();

    for (int i = 0; first && i < ROWS; i++)
        if (&rows[i] != first && is_set(&rows[i]) && strncmp(rows[i].size, "SLURM", 5) != 0 &&
            (number(rows[i].size) != number(first->size) ||
             number(rows[i].rank) != number(first->rank)))
            return wf_error_set(error, WF_EINVAL,
                                "%s=%d and %s=%d say that this is process %d of %d for %s and "
                                "process %d of %d for %s; unset the variables of the one that "
                                "did not start it",
                                first->size, number(first->size), rows[i].size,
                                number(rows[i].size), number(first->rank), number(first->size),
                                first->name, number(rows[i].rank), number(rows[i].size),
                                rows[i].name);
    return WF_OK;
}

static wf_status check_wanted(const char *wanted, const wf_launcher *l, wf_error *error)
{
    if (strcmp(wanted, "threads") == 0 && l->processes > 1)
        return wf_error_set(error, WF_EINVAL,
                            ".launcher threads, but %s=%d: %s started %d processes, and each "
                            "would train by itself; leave it out, or start one process",
                            l->variable, l->processes, l->name, l->processes);
    if (strcmp(wanted, "mpi") == 0 && !*l->name)
        return wf_error_set(error, WF_EINVAL,
                            ".launcher mpi, but nothing in the environment says that a "
                            "launcher started this process; use: mpirun -np N PROGRAM ...");
    if (strcmp(wanted, "mpi") == 0 && strcmp(l->kind, "torchrun") == 0)
        return wf_error_set(error, WF_EINVAL,
                            ".launcher mpi, but %s=%d: torchrun started this process; leave "
                            "it out, or use: mpirun -np %d PROGRAM ...",
                            l->variable, l->processes, l->processes);
    return WF_OK;
}

static wf_status check_transport(const char *transport, const wf_launcher *l, wf_error *error)
{
    bool mpi = strcmp(l->kind, "mpi") == 0;

    if (strcmp(transport, "mpi") == 0 && !mpi)
        return wf_error_set(error, WF_EINVAL,
                            ".transport mpi joins processes, and the launcher is %s; use: "
                            "mpirun -np N PROGRAM ..., or leave it out",
                            l->kind);
    if (strcmp(transport, "threads") == 0 && l->processes > 1)
        return wf_error_set(error, WF_EINVAL,
                            ".transport threads reaches the ranks of one process, but %s=%d: "
                            "%s started %d; leave it out, or start one process",
                            l->variable, l->processes, l->name, l->processes);
    return WF_OK;
}

bool wf_launcher_reports_elsewhere(void)
{
    const struct row *r = find();

    return r && is_reachable(r) && wf_launcher_detected().process > 0;
}

bool wf_launcher_variables(const char *name[3])
{
    const struct row *r = find();

    if (!r)
        return false;
    name[0] = r->rank;
    name[1] = r->local ? r->local : "SLURM_STEP_TASKS_PER_NODE";
    name[2] = r->local_rank;
    return true;
}

bool wf_launcher_job(char *text, size_t room)
{
    const struct row *r = find();
    uint64_t hash = 14695981039346656037u;
    bool any = false;

    for (int i = 0; r && i < 2 && r->job[i]; i++)
        for (const char *c = getenv(r->job[i]); c && *c; c++) {
            hash = (hash ^ (uint64_t)(unsigned char)*c) * 1099511628211u;
            any = true;
        }
    snprintf(text, room, "weft-%u-%016" PRIx64, (unsigned)geteuid(), hash);
    return any;
}

/* DIRECTORY/vader_segment.HOST.USER.JOB.NUMBER, where the job is written as a decimal number
   elsewhere, and host and user as in the folder of this user's jobs, .../ompi.HOST.USER
   (OpenMPI 4). */
bool wf_launcher_segment(char *path, size_t room)
{
    const char *directory = getenv("OMPI_MCA_btl_vader_backing_directory");
    const char *top = getenv("OMPI_MCA_orte_top_session_dir"), *job = getenv("PMIX_NAMESPACE");
    const char *owner = top ? strrchr(top, '/') : NULL;
    int local = number("OMPI_COMM_WORLD_LOCAL_RANK"), length;
    unsigned long value;
    char *end;

    if (!owner || strncmp(owner, "/ompi.", 6) != 0 || !job || local < 0)
        return false;
    value = strtoul(job, &end, 10);
    if (end == job || *end || value > UINT32_MAX)
        return false;
    length = snprintf(path, room, "%s/vader_segment.%s.%lx.%d",
                      directory ? directory : "/dev/shm", owner + 6, value, local);
    return length > 0 && (size_t)length < room;
}

int wf_launcher_process_of(int pid)
{
    const struct row *r = find();
    char path[32], *word = NULL;
    size_t room = 0, length = r ? strlen(r->rank) : 0;
    FILE *file;
    int process = -1;

    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    file = r ? fopen(path, "re") : NULL;
    while (file && process < 0 && getdelim(&word, &room, '\0', file) > 0)
        if (strncmp(word, r->rank, length) == 0 && word[length] == '=')
            process = atoi(word + length + 1);
    free(word);
    if (file)
        fclose(file);
    return process;
}

wf_status wf_launcher_choose(const char *wanted, const char *transport, int ranks,
                             wf_launcher *launcher, wf_error *error)
{
    wf_launcher l = *launcher = wf_launcher_detected();
    wf_status status;

    wanted = wanted ? wanted : "auto";
    transport = transport ? transport : "auto";
    status = check_numbers(error);
    if (status == WF_OK)
        status = check_two(error);
    if (status == WF_OK)
        status = check_wanted(wanted, &l, error);
    /* One process has the choice; it was not detected as "mpi". */
    if (status == WF_OK && *l.name &&
        (strcmp(wanted, "mpi") == 0 || strcmp(transport, "mpi") == 0) &&
        strcmp(l.kind, "torchrun") != 0)
        l.kind = "mpi";
    if (status == WF_OK)
        status = check_transport(transport, &l, error);
    if (status == WF_OK && ranks > 0 && ranks % l.processes)
        status =
            wf_error_set(error, WF_EINVAL,
                         "%d rank%s cannot be shared out evenly over the %d processes that "
                         "%s started (%s); start %d%s",
                         ranks, ranks == 1 ? "" : "s", l.processes, l.name, l.variable, ranks,
                         ranks == 1 ? "" : ", or a divisor of that");
    *launcher = l;
    return status;
}

const char *wf_launcher_transport(const wf_launcher *launcher)
{
    return strcmp(launcher->kind, "torchrun") == 0 ? "nccl" : launcher->kind;
}
