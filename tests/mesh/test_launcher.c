/*
 * tests/mesh/test_launcher.c - what started this process, by the environment; and
 * contradictions, which are reported with both sides by name.
 *
 * ctest: environment ASAN_OPTIONS=detect_leaks=0
 */
#include "mesh/cluster/launch.h"
#include "mesh/transport/launcher_internal.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const variables[] = {
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
    "PMI_SIZE",
    "PMI_RANK",
    "MPI_LOCALNRANKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_STEP_ID",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NODEID",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "LOCAL_WORLD_SIZE",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "OMPI_MCA_orte_hnp_uri",
    "PMI_FD",
    "OMPI_MCA_orte_top_session_dir",
    "OMPI_MCA_btl_vader_backing_directory",
};

/* "A=1 B=2", and nothing else that launchers set. */
static void environment(const char *settings)
{
    char copy[512];

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');

        *value = '\0';
        setenv(word, value + 1, 1);
    }
}

/* Process 0 speaks for all, and whoever is alone for itself. */
static void who_reports(void)
{
    static const struct {
        const char *settings;
        bool elsewhere;
    } cases[] = {
        {"", false},
        {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1", false}, /* left from another job */
        {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 PMIX_RANK=1", true},
        {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0", false},
        {"PMI_SIZE=2 PMI_RANK=1", false},
        {"PMI_SIZE=2 PMI_RANK=1 PMI_FD=7", true},
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=7 SLURM_STEP_ID=0", true},
        {"WORLD_SIZE=2 RANK=1 LOCAL_RANK=1 MASTER_ADDR=a", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        environment(cases[i].settings);
        CU_ASSERT_EQUAL(wf_launcher_reports_elsewhere(), cases[i].elsewhere);
    }
}

/* As OpenMPI 4.1 names it; a name that it might not have is none. */
static void segment(void)
{
    static const struct {
        const char *settings, *path;
    } cases[] = {
        {"OMPI_COMM_WORLD_LOCAL_RANK=3 PMIX_NAMESPACE=1478688769 "
         "OMPI_MCA_orte_top_session_dir=/tmp/ompi.node7.1000",
         "/dev/shm/vader_segment.node7.1000.58230001.3"},
        {"OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_NAMESPACE=1 "
         "OMPI_MCA_orte_top_session_dir=/t/ompi.a.0 "
         "OMPI_MCA_btl_vader_backing_directory=/shm",
         "/shm/vader_segment.a.0.1.0"},
        {"", NULL},
        {"OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_NAMESPACE=1", NULL},
        {"OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_NAMESPACE=1 OMPI_MCA_orte_top_session_dir=/t/other",
         NULL},
        {"OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_NAMESPACE=prterun-node7-9@1 "
         "OMPI_MCA_orte_top_session_dir=/t/ompi.a.0",
         NULL},
        {"PMIX_NAMESPACE=1 OMPI_MCA_orte_top_session_dir=/t/ompi.a.0", NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[128] = "";
        bool known;

        environment(cases[i].settings);
        known = wf_launcher_segment(path, sizeof path);
        CU_ASSERT_EQUAL(known, cases[i].path != NULL);
        if (known && cases[i].path)
            CU_ASSERT_STRING_EQUAL(path, cases[i].path);
        CU_ASSERT_FALSE(wf_launcher_segment(path, 8));
    }
}

static void detected(void)
{
    static const struct {
        const char *settings, *kind, *name;
        int processes, process, local, local_process;
    } cases[] = {
        {"", "threads", "", 1, 0, 1, 0},
        {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=2", "mpi",
         "OpenMPI's mpirun", 4, 3, 2, 0},
        {"PMI_SIZE=2 PMI_RANK=1", "mpi", "a launcher of PMI", 2, 1, 0, 0},
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=7 SLURM_STEP_ID=0", "mpi", "Slurm's srun", 8, 7,
         0, 0},
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=7 SLURM_STEP_ID=0 SLURM_NODEID=3 "
         "SLURM_STEP_TASKS_PER_NODE=3,2(x2),1",
         "mpi", "Slurm's srun", 8, 7, 1, 0},
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=3 SLURM_STEP_ID=0 SLURM_NODEID=1 "
         "SLURM_STEP_TASKS_PER_NODE=3,2(x2),1",
         "mpi", "Slurm's srun", 8, 3, 2, 0},
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=3 SLURM_STEP_ID=0 SLURM_NODEID=4 "
         "SLURM_STEP_TASKS_PER_NODE=3,2(x2),1",
         "mpi", "Slurm's srun", 8, 3, 0, 0},
        /* sbatch's script itself: no step yet */
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0", "threads", "", 1, 0, 1, 0},
        {"WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=a", "torchrun", "torchrun", 2, 0, 0, 0},
        {"WORLD_SIZE=8 RANK=6 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a", "torchrun",
         "torchrun", 8, 6, 4, 2},
        {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1", "mpi",
         "OpenMPI's mpirun", 4, 3, 0, 1},
        {"PMI_SIZE=4 PMI_RANK=3 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1", "mpi",
         "a launcher of PMI", 4, 3, 2, 1},
        {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=7 SLURM_STEP_ID=0 SLURM_LOCALID=3", "mpi",
         "Slurm's srun", 8, 7, 0, 3},
        {"WORLD_SIZE=2 RANK=0", "threads", "", 1, 0, 1, 0}, /* anybody's variables */
        /* mpirun reaches its hosts by srun */
        {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "
         "SLURM_STEP_ID=0",
         "mpi", "OpenMPI's mpirun", 4, 3, 0, 0},
        {"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", "threads", "OpenMPI's mpirun", 1, 0,
         0, 0},
        {"OMPI_COMM_WORLD_SIZE=x OMPI_COMM_WORLD_RANK=0", "threads", "", 1, 0, 1, 0},
        {"PMI_SIZE=2 PMI_RANK=2", "threads", "", 1, 0, 1, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wf_launcher l;

        environment(cases[i].settings);
        l = wf_launcher_detected();
        CU_ASSERT_STRING_EQUAL(l.kind, cases[i].kind);
        CU_ASSERT_STRING_EQUAL(l.name, cases[i].name);
        CU_ASSERT_EQUAL(l.processes, cases[i].processes);
        CU_ASSERT_EQUAL(l.process, cases[i].process);
        CU_ASSERT_EQUAL(l.local, cases[i].local);
        CU_ASSERT_EQUAL(l.local_process, cases[i].local_process);
    }
    environment("");
}

/* Settings of the environment and flags, and the choice or error that follows. */
static const struct {
    const char *settings, *wanted, *transport;
    int ranks;
    const char *kind; /* NULL: an error with these words */
    const char *words[2];
} choices[] = {
    {"", NULL, NULL, 8, "threads", {NULL}},
    {"", "threads", "threads", 8, "threads", {NULL}},
    {"", "mpi", NULL, 8, NULL, {".launcher mpi", "mpirun -np N"}},
    {"", "auto", "mpi", 8, NULL, {".transport mpi", "the launcher is threads"}},
    {"PMI_SIZE=2 PMI_RANK=0", NULL, NULL, 8, "mpi", {NULL}},
    {"PMI_SIZE=2 PMI_RANK=0", "threads", NULL, 8, NULL, {".launcher threads", "PMI_SIZE=2"}},
    {"PMI_SIZE=2 PMI_RANK=0", NULL, "threads", 8, NULL, {".transport threads", "PMI_SIZE=2"}},
    {"PMI_SIZE=3 PMI_RANK=0", NULL, NULL, 8, NULL, {"8 ranks", "3 processes"}},
    {"PMI_SIZE=3 PMI_RANK=0",
     NULL,
     NULL,
     8,
     NULL,
     {"(PMI_SIZE)", "; start 8, or a divisor of that"}},
    {"PMI_SIZE=2 PMI_RANK=0", NULL, NULL, 1, NULL, {"1 rank cannot", "; start 1"}},
    {"PMI_SIZE=1 PMI_RANK=0", NULL, NULL, 8, "threads", {NULL}},
    {"PMI_SIZE=1 PMI_RANK=0", "mpi", NULL, 8, "mpi", {NULL}},
    {"PMI_SIZE=1 PMI_RANK=0", NULL, "mpi", 8, "mpi", {NULL}},
    {"PMI_SIZE=2 PMI_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0",
     NULL,
     NULL,
     8,
     NULL,
     {"OMPI_COMM_WORLD_SIZE=4", "PMI_SIZE=2"}},
    {"WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=a", NULL, NULL, 8, "torchrun", {NULL}},
    {"WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=a", NULL, "nccl", 2, "torchrun", {NULL}},
    {"WORLD_SIZE=1 RANK=0 LOCAL_RANK=0 MASTER_ADDR=a", NULL, NULL, 8, "threads", {NULL}},
    {"WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=a",
     "mpi",
     NULL,
     8,
     NULL,
     {".launcher mpi", "mpirun -np 2"}},
    {"WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=a",
     NULL,
     "mpi",
     8,
     NULL,
     {".transport mpi", "the launcher is torchrun"}},
    {"WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=a",
     NULL,
     "threads",
     8,
     NULL,
     {".transport threads", "WORLD_SIZE=2"}},
    {"PMI_SIZE=2 PMI_RANK=0", NULL, "nccl", 8, "mpi", {NULL}},
    {"", NULL, "nccl", 8, "threads", {NULL}},
    /* a process that takes them for none would train by itself beside the others */
    {"PMI_SIZE=2 PMI_RANK=2", NULL, NULL, 8, NULL, {"PMI_SIZE=2", "PMI_RANK=2"}},
    {"PMI_SIZE=2 PMI_RANK=-1", "threads", NULL, 8, NULL, {"PMI_SIZE=2", "PMI_RANK=-1"}},
    {"OMPI_COMM_WORLD_SIZE=x OMPI_COMM_WORLD_RANK=0",
     NULL,
     NULL,
     8,
     NULL,
     {"_SIZE=x", "_RANK=0"}},
    {"WORLD_SIZE=2 RANK=99999999999 LOCAL_RANK=0 MASTER_ADDR=a",
     NULL,
     NULL,
     8,
     NULL,
     {"WORLD_SIZE=2", "RANK=99999999999"}},
    {"WORLD_SIZE=0 RANK=0", NULL, NULL, 8, "threads", {NULL}},
};

static void chosen(void)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        wf_error error = {WF_OK, ""};
        wf_launcher l;
        wf_status status;

        environment(choices[i].settings);
        status = wf_launcher_choose(choices[i].wanted, choices[i].transport, choices[i].ranks,
                                    &l, &error);
        CU_ASSERT_EQUAL(status == WF_OK, choices[i].kind != NULL);
        if (choices[i].kind) {
            CU_ASSERT_STRING_EQUAL(l.kind, choices[i].kind);
        } else {
            CU_ASSERT(strstr(error.text, choices[i].words[0]) != NULL);
            CU_ASSERT(strstr(error.text, choices[i].words[1]) != NULL);
            CU_ASSERT(strstr(error.text, "1, 1") == NULL && strstr(error.text, "of 1") == NULL);
        }
    }
    environment("");
}

static wf_status nothing(wf_rank *rank, void *arg)
{
    (void)rank, (void)arg;
    return WF_OK;
}

/* A launch asks the same; what moves nothing takes no part in it. */
static void launched(void)
{
    wf_error error = {WF_OK, ""};

    environment("PMI_SIZE=3 PMI_RANK=0");
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 8}, nothing, NULL, &error),
                    WF_EINVAL);
    CU_ASSERT(strstr(error.text, "3 processes") != NULL);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(
        wf_launch(&(wf_launch_options){.ranks = 8, .transport = "fake"}, nothing, NULL, &error),
        WF_OK);
    environment("");
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 8}, nothing, NULL, &error), WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {
        {"what the environment says", detected},
        {"who tells", who_reports},
        {"what is to be removed", segment},
        {"what is chosen, and what contradicts", chosen},
        {"a launch", launched},
        {NULL, NULL},
    };

    return wf_test_main("launcher", tests);
}
