/* apps/gpt_train/elastic_files.c - see the header. */
#include "apps/gpt_train/elastic_files.h"
#include <dirent.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char suffix[] = ".safetensors", asks[] = "leave";
static const double LONGEST_WAIT = 1; /* seconds */

enum { JOB_NAME = 64 };

static double clock_at(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_file(const char *name)
{
    size_t n = strlen(name), end = sizeof suffix - 1;

    return n > end && strcmp(name + n - end, suffix) == 0;
}

/* Texts that were kept: of several processes, the last step of any. */
static void read_text(void *arg, const char *key, const char *value)
{
    app_elastic *e = arg;
    app_made_step made = {.step = 0};
    double lost_at;
    float best;

    if (strcmp(key, "made") == 0 &&
        sscanf(value, "%" SCNd64 " %a %la %a %la", &made.step, &made.result.loss,
               &made.result.grad_norm, &made.result.lr, &made.ms) == 5)
        app_elastic_made(e, &made);
    if (strcmp(key, "best") == 0 && sscanf(value, "%a", &best) == 1 && best < e->best_loss)
        e->best_loss = best;
    if (strcmp(key, "lost") == 0 && sscanf(value, "%la", &lost_at) == 1)
        e->lost_at = clock_at(CLOCK_MONOTONIC) - (clock_at(CLOCK_REALTIME) - lost_at);
}

wf_status elastic_files_load(app_elastic *e, const char *dir, wf_error *error)
{
    DIR *directory = opendir(dir);
    struct dirent *entry;
    char path[4096];

    if (!directory && errno != ENOENT)
        return wf_error_set(error, WF_EIO, "cannot read --recovery-dir %s: %s", dir,
                            strerror(errno));
    e->from = wf_par_snapshot_open(error);
    while (directory && e->from && error->code == WF_OK &&
           (entry = readdir(directory)) != NULL) {
        if (!is_file(entry->d_name))
            continue;
        snprintf(path, sizeof path, "%.3800s/%.250s", dir, entry->d_name);
        wf_par_snapshot_load(e->from, path, read_text, e, error);
    }
    if (directory)
        closedir(directory);
    if (error->code != WF_OK)
        return error->code;
    wf_par_snapshot_seal(e->from);
    return WF_OK;
}

/* Files of others than `mine`, and of nobody that is under way. */
static void remove_files(const char *dir, const char *mine)
{
    DIR *directory = opendir(dir);
    struct dirent *entry;

    while (directory && (entry = readdir(directory)) != NULL)
        if (is_file(entry->d_name) &&
            (!mine || strncmp(entry->d_name, mine, strlen(mine)) != 0))
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
}

/* How the names of this start's files begin. */
static const char *name_job(char job[JOB_NAME])
{
    snprintf(job, JOB_NAME, "%d-", elastic_files_restarts());
    return job;
}

wf_status elastic_files_save(app_elastic *e, const char *dir, wf_error *error)
{
    char path[4096], job[JOB_NAME], made[160], best[40], lost[40];
    const char *texts[] = {"made", made, "best", best, "lost", lost};

    if (wf_par_snapshot_seal(e->into) <= e->began)
        return WF_OK; /* what there was is as new */
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return wf_error_set(error, WF_EIO, "cannot make --recovery-dir %s: %s", dir,
                            strerror(errno));
    snprintf(path, sizeof path, "%.3800s/%s%d%s", dir, name_job(job),
             wf_launcher_detected().process, suffix);
    snprintf(made, sizeof made, "%" PRId64 " %a %a %a %a", e->made.step,
             (double)e->made.result.loss, e->made.result.grad_norm, (double)e->made.result.lr,
             e->made.ms);
    snprintf(best, sizeof best, "%a", (double)e->best_loss);
    snprintf(lost, sizeof lost, "%a",
             clock_at(CLOCK_REALTIME) - (clock_at(CLOCK_MONOTONIC) - e->lost_at));
    if (wf_par_snapshot_save(e->into, path, texts, 3, error) == WF_OK)
        remove_files(dir, job);
    return error->code;
}

static int count_files(const char *dir, const char *job)
{
    DIR *directory = opendir(dir);
    struct dirent *entry;
    int n = 0;

    while (directory && (entry = readdir(directory)) != NULL)
        n += is_file(entry->d_name) && strncmp(entry->d_name, job, strlen(job)) == 0;
    if (directory)
        closedir(directory);
    return n;
}

void elastic_files_wait(const char *dir)
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

bool elastic_files_leave(const char *dir)
{
    char path[4096];

    snprintf(path, sizeof path, "%.3800s/%s", dir, asks);
    return access(path, F_OK) == 0;
}

int elastic_files_restarts(void)
{
    const char *text = getenv("WEFT_RESTART_COUNT"); /* set by scripts/mpirun_hosts.sh */

    return text ? atoi(text) : 0;
}

void elastic_files_forget(const char *dir)
{
    remove_files(dir, NULL);
}

void elastic_files_remove(const char *dir)
{
    char path[4096];

    remove_files(dir, NULL);
    snprintf(path, sizeof path, "%.3800s/%s", dir, asks);
    unlink(path);
    rmdir(dir);
}
