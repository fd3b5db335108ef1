/* parallel/recovery/elastic_files.c - see the header. */
#include "parallel/recovery/elastic_files.h"
#include "core/files/output.h"
#include "mesh/transport/launcher.h"
#include "parallel/recovery/elastic_internal.h"
#include "parallel/recovery/elastic_job_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char suffix[] = ".safetensors", asks[] = "leave", digits[] = "0123456789";
static const double LONGEST_WAIT = 1; /* seconds */

enum { JOB_NAME = 64 };

static double clock_at(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* RESTARTS-PROCESS.safetensors: no other file is read or removed. */
static bool is_file(const char *name)
{
    size_t restarts = strspn(name, digits), process;

    if (!restarts || name[restarts] != '-')
        return false;
    name += restarts + 1;
    process = strspn(name, digits);
    return process && strcmp(name + process, suffix) == 0;
}

/* The folder, which no other user may have made or can write to. NULL: there is none, or an
   error. */
static DIR *open_own(const char *dir, bool make, wf_error *error)
{
    int fd = wf_own_folder_open(dir, make, error);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

    if (fd >= 0 && !directory) {
        close(fd);
        wf_error_set(error, WF_EIO, "cannot read .recovery_dir %s: %s", dir, strerror(errno));
    }
    return directory;
}

/* A file that is read: run and job are true once its texts of these have been checked. */
typedef struct reading {
    wf_elastic *elastic;
    char path[4096];
    bool run, job;
} reading;

/* Texts that were kept: of several processes, the last step of any. */
static wf_status read_text(void *arg, const char *key, const char *value, wf_error *error)
{
    reading *r = arg;
    wf_elastic *e = r->elastic;
    wf_elastic_step made = {.step = 0};
    double lost_at;
    float best;

    if (strcmp(key, "made") == 0 &&
        sscanf(value, "%" SCNd64 " %a %la %a %la", &made.step, &made.result.loss,
               &made.result.grad_norm, &made.result.lr, &made.ms) == 5)
        wf_elastic_made(e, &made);
    if (strcmp(key, "best") == 0 && sscanf(value, "%a", &best) == 1 && best < e->best_loss)
        e->best_loss = best;
    if (strcmp(key, "lost") == 0 && sscanf(value, "%la", &lost_at) == 1)
        e->lost_at = clock_at(CLOCK_MONOTONIC) - (clock_at(CLOCK_REALTIME) - lost_at);
    r->run = r->run || strcmp(key, "run") == 0;
    r->job = r->job || strcmp(key, "job") == 0;
    if (strcmp(key, "run") == 0)
        wf_elastic_check_run(r->path, e->run, value, error);
    else if (strcmp(key, "job") == 0)
        wf_elastic_check_job(r->path, e->job, value, error);
    return error->code;
}

static wf_status load_file(wf_elastic *e, const char *dir, int folder, const char *name,
                           wf_error *error)
{
    reading r = {.elastic = e};
    wf_error why = {WF_OK, ""};

    snprintf(r.path, sizeof r.path, "%.3800s/%.250s", dir, name);
    if (wf_par_snapshot_load(e->from, folder, name, read_text, &r, &why) != WF_OK)
        return wf_error_set(error, why.code, ".recovery_dir %.300s: %.1100s", dir, why.text);
    if (!r.run || !r.job)
        return wf_error_set(error, WF_EDATA,
                            "%s does not say which run and job it is of: remove it", r.path);
    return WF_OK;
}

wf_status wf_elastic_files_load(wf_elastic *e, char *job, wf_error *error)
{
    const char *dir = e->recovery_dir;
    DIR *directory = open_own(dir, false, error);
    struct dirent *entry;

    wf_elastic_run_name(e);
    e->job = job;
    e->from = error->code == WF_OK ? wf_par_snapshot_open(error) : NULL;
    while (directory && e->from && error->code == WF_OK && (entry = readdir(directory)) != NULL)
        if (is_file(entry->d_name))
            load_file(e, dir, dirfd(directory), entry->d_name, error);
    if (directory)
        closedir(directory);
    if (error->code == WF_OK)
        wf_par_snapshot_seal(e->from);
    return error->code;
}

/* Removes files of other starts than `mine`, and of no process that is writing. */
static void remove_files(DIR *directory, const char *mine)
{
    struct dirent *entry;

    rewinddir(directory);
    while ((entry = readdir(directory)) != NULL)
        if (is_file(entry->d_name) &&
            (!mine || strncmp(entry->d_name, mine, strlen(mine)) != 0))
            unlinkat(dirfd(directory), entry->d_name, 0);
}

/* Writes the prefix of the names of this start's files. */
static const char *name_job(char job[JOB_NAME])
{
    snprintf(job, JOB_NAME, "%d-", wf_elastic_files_restarts());
    return job;
}

wf_status wf_elastic_files_save(wf_elastic *e, wf_error *error)
{
    char name[JOB_NAME + 32], job[JOB_NAME], made[160], best[40], lost[40];
    const char *texts[] = {"made", made,  "best", best,  "lost",
                           lost,   "run", e->run, "job", e->job ? e->job : ""};
    DIR *directory;

    if (wf_par_snapshot_seal(e->into) <= e->began)
        return WF_OK; /* an older file has the same state */
    directory = open_own(e->recovery_dir, true, error);
    if (!directory)
        return error->code;
    snprintf(name, sizeof name, "%s%d%s", name_job(job), wf_launcher_detected().process,
             suffix);
    snprintf(made, sizeof made, "%" PRId64 " %a %a %a %a", e->made.step,
             (double)e->made.result.loss, e->made.result.grad_norm, (double)e->made.result.lr,
             e->made.ms);
    snprintf(best, sizeof best, "%a", (double)e->best_loss);
    snprintf(lost, sizeof lost, "%a",
             clock_at(CLOCK_REALTIME) - (clock_at(CLOCK_MONOTONIC) - e->lost_at));
    if (wf_par_snapshot_save(e->into, dirfd(directory), name, texts, 5, error) == WF_OK)
        remove_files(directory, job);
    closedir(directory);
    return error->code;
}

static int count_files(const char *dir, const char *job)
{
    wf_error ignored = {WF_OK, ""};
    DIR *directory = open_own(dir, false, &ignored);
    struct dirent *entry;
    int n = 0;

    while (directory && (entry = readdir(directory)) != NULL)
        n += is_file(entry->d_name) && strncmp(entry->d_name, job, strlen(job)) == 0;
    if (directory)
        closedir(directory);
    return n;
}

void wf_elastic_files_wait(const char *dir)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    double end = clock_at(CLOCK_MONOTONIC) + LONGEST_WAIT;
    char job[JOB_NAME];
    int n;

    name_job(job);
    while ((n = count_files(dir, job)) > 0 && n < wf_launcher_detected().local &&
           clock_at(CLOCK_MONOTONIC) < end)
        nanosleep(&pause, NULL);
}

bool wf_elastic_files_leave(const char *dir)
{
    wf_error ignored = {WF_OK, ""};
    int fd = wf_own_folder_open(dir, false, &ignored);
    bool asked = fd >= 0 && faccessat(fd, asks, F_OK, AT_SYMLINK_NOFOLLOW) == 0;

    if (fd >= 0)
        close(fd);
    return asked;
}

int wf_elastic_files_restarts(void)
{
    const char *text = getenv("WEFT_RESTART_COUNT"); /* set by scripts/mpirun_hosts.sh */

    return text ? atoi(text) : 0;
}

void wf_elastic_files_forget(const char *dir)
{
    wf_error ignored = {WF_OK, ""};
    DIR *directory = open_own(dir, false, &ignored);

    if (!directory)
        return;
    remove_files(directory, NULL);
    closedir(directory);
}

void wf_elastic_files_remove(const char *dir)
{
    wf_error ignored = {WF_OK, ""};
    DIR *directory = open_own(dir, false, &ignored);

    if (!directory)
        return;
    remove_files(directory, NULL);
    unlinkat(dirfd(directory), asks, 0);
    closedir(directory);
    rmdir(dir); /* fails where it has other files, which stay */
}
