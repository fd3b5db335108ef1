/*
 * tests/parallel/test_checkpoint_faults.c - whatever call fails, an old checkpoint or a new one
 * is there as a whole: the k-th file call of a save fails, for every k.
 *
 * ctest: builds plain, cost 50
 */
#include "parallel/checkpoint/saver_internal.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "parallel/checkpoint/commit_internal.h"
#include "parallel/train/train.h"
#include "tests/parallel/checkpoint_trial.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* A fault of a table of file calls, at its call number `at` of some kind. */
typedef enum fault { ANY_EIO, WRITE_ENOSPC, SYNC_EIO, RENAME_EIO, CLOSE_EIO, FAULTS } fault;

typedef struct faults {
    fault fault;
    int64_t at; /* -1: never */
    bool short_writes;
    _Atomic int64_t calls;
    _Atomic bool fired;
} faults;

static bool fails(faults *f, bool counts, int error)
{
    if (!counts || f->at < 0 || atomic_fetch_add(&f->calls, 1) != f->at)
        return false;
    atomic_store(&f->fired, true);
    errno = error;
    return true;
}

static bool any(const faults *f)
{
    return f->fault == ANY_EIO;
}

static int faulty_open(void *self, int in, const char *name, int flags)
{
    return fails(self, any(self), EIO) ? -1 : wf_system_files.open(NULL, in, name, flags);
}

static int64_t faulty_write(void *self, int fd, const void *data, size_t bytes, int64_t at)
{
    faults *f = self;

    if (fails(f, any(f) || f->fault == WRITE_ENOSPC, f->fault == WRITE_ENOSPC ? ENOSPC : EIO))
        return -1;
    return wf_system_files.write(NULL, fd, data, f->short_writes ? bytes / 3 + 1 : bytes, at);
}

static int faulty_resize(void *self, int fd, int64_t bytes)
{
    return fails(self, any(self), EIO) ? -1 : wf_system_files.resize(NULL, fd, bytes);
}

static int faulty_sync(void *self, int fd)
{
    const faults *f = self;

    return fails(self, any(f) || f->fault == SYNC_EIO, EIO) ? -1
                                                            : wf_system_files.sync(NULL, fd);
}

static int faulty_close(void *self, int fd)
{
    const faults *f = self;
    struct stat s;
    bool file = fstat(fd, &s) == 0 && S_ISREG(s.st_mode); /* a directory is no such file */
    int status = wf_system_files.close(NULL, fd);

    return fails(self, file && (any(f) || f->fault == CLOSE_EIO), EIO) ? -1 : status;
}

static int faulty_rename(void *self, int in, const char *from, const char *to)
{
    const faults *f = self;

    return fails(self, any(f) || f->fault == RENAME_EIO, EIO)
               ? -1
               : wf_system_files.rename(NULL, in, from, to);
}

static int faulty_make_directory(void *self, int in, const char *name)
{
    return fails(self, any(self), EIO) ? -1 : wf_system_files.make_directory(NULL, in, name);
}

static int faulty_remove(void *self, int in, const char *name, bool directory)
{
    return fails(self, any(self), EIO) ? -1 : wf_system_files.remove(NULL, in, name, directory);
}

static int faulty_next(void *self, DIR *directory, char name[WF_FILES_NAME])
{
    return fails(self, any(self), EIO) ? -1 : wf_system_files.next(NULL, directory, name);
}

static int64_t plain_read(void *self, int fd, void *data, size_t bytes, int64_t at)
{
    (void)self;
    return wf_system_files.read(NULL, fd, data, bytes, at);
}

static wf_file_calls faulty_files(faults *f)
{
    return (wf_file_calls){.open = faulty_open,
                           .read = plain_read,
                           .write = faulty_write,
                           .resize = faulty_resize,
                           .sync = faulty_sync,
                           .close = faulty_close,
                           .rename = faulty_rename,
                           .make_directory = faulty_make_directory,
                           .remove = faulty_remove,
                           .next = faulty_next,
                           .self = f};
}

/* The step of the checkpoint that a run would go on from, every byte of it checked; -1: none.
   It is in its place, and not what a save has put aside. */
static int64_t usable(const char *dir)
{
    wf_error error = {WF_OK, ""};
    wf_par_checkpoint *c;
    char **paths;
    int64_t count, step = -1;

    if (wf_par_checkpoint_list(dir, &paths, &count, &error) != WF_OK)
        return -1;
    c = count ? wf_par_checkpoint_open(paths[0], &error) : NULL;
    if (c && !strstr(paths[0], ".replaced") && wf_par_checkpoint_verify(c, &error) == WF_OK)
        step = wf_par_checkpoint_step(c);
    else
        printf("\n    %s\n", error.text);
    wf_par_checkpoint_close(c);
    for (int64_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    return step;
}

static void forget(const char *dir, int64_t step)
{
    char path[256];
    FILE *latest;

    snprintf(path, sizeof path, "%s/step-%08d", dir, (int)step);
    wf_test_remove(path);
    snprintf(path, sizeof path, "%s/latest", dir);
    latest = fopen(path, "w");
    fprintf(latest, "step-%08d\n", OLD);
    fclose(latest);
}

static bool left_over(const char *dir)
{
    wf_error error = {WF_OK, ""};
    wf_folder folder;
    char **names;
    int64_t n;
    bool left = false;

    if (wf_folder_open(&folder, &wf_system_files, dir, &error) != WF_OK ||
        wf_folder_list(&folder, &names, &n, &error) != WF_OK)
        return true;
    for (int64_t i = 0; i < n; i++)
        left = left || (strncmp(names[i], "step-", 5) == 0 && strstr(names[i], ".partial"));
    wf_folder_free_names(names, n);
    wf_folder_close(&folder);
    return left;
}

/* Returns true where a text asks for as many bytes as all files of the existing checkpoint
   have. */
static bool asks_enough(const char *dir, const char *text)
{
    const char *number = strstr(text, " bytes are needed in all");
    char path[256], name[WF_CKPT_NAME];
    int64_t bytes = 0, asked;
    struct stat s;

    while (number > text && number[-1] >= '0' && number[-1] <= '9')
        number--;
    asked = number ? strtoll(number, NULL, 10) : 0;
    for (int rank = -1; rank < 4; rank++) {
        snprintf(path, sizeof path, "%s/step-%08d/%s", dir, OLD, wf_ckpt_file(name, rank));
        bytes += stat(path, &s) == 0 ? s.st_size : 0;
    }
    snprintf(path, sizeof path, "%s/step-%08d/index.json", dir, OLD);
    bytes += stat(path, &s) == 0 ? s.st_size : 0;
    return bytes > 0 && asked >= bytes;
}

/* Save with the k-th call failing; whether there was a k-th call. */
static wf_status fail_once(trial *t, wf_rank *rank, wf_par_saver *saver, int64_t k, bool *fired)
{
    faults *broken = t->own;
    wf_error error = {WF_OK, ""};
    wf_status status;

    if (rank->index == 0) {
        broken->calls = 0;
        broken->fired = false;
        broken->at = k;
    }
    GOOD(barrier(rank));
    status = wf_par_saver_save(saver, NEW, &error);
    if (status == WF_OK)
        status = wf_par_saver_finish(saver, &error);
    GOOD(barrier(rank));
    *fired = atomic_load(&broken->fired);
    NEED(status == error.code);
    NEED(status == WF_OK || *fired);
    if (rank->index == 0) {
        int64_t step = usable(t->dir);

        broken->at = -1;
        t->cases++;
        NEED(step == (status == WF_OK || t->again ? NEW : OLD) ||
             (status != WF_OK && step == NEW));
        NEED(status == WF_OK || strstr(error.text, "cannot ") != NULL);
        NEED(status == WF_OK || broken->fault != WRITE_ENOSPC ||
             strstr(error.text, " bytes are needed in all, and ") != NULL);
        NEED(status == WF_OK || broken->fault != WRITE_ENOSPC ||
             asks_enough(t->dir, error.text));
        NEED(!left_over(t->dir) || status == WF_OK);
        if (step == NEW && !t->again)
            forget(t->dir, NEW);
    }
    return barrier(rank);
}

static wf_status every_call_fails(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_file_calls calls = faulty_files(t->own);
    wf_par_save_options plain = {.dir = t->dir, .kind = t->kind},
                        faulty = {.dir = t->dir, .kind = t->kind, .async = t->async, .keep = 2};
    wf_par_saver *saver = wf_par_saver_open(trainer, &plain);
    wf_status status;
    bool fired = true;

    GOOD(wf_par_saver_save(saver, t->again ? NEW : OLD, &rank->error));
    wf_par_saver_close(saver);
    if (t->again) /* the same step, and other values */
        GOOD(wf_init_fill(wf_par_trainer_state(trainer).parameter[0]->tensor, 1));
    saver = wf_par_saver_open(trainer, &faulty);
    NEED(saver);
    saver->calls = &calls;
    for (int64_t k = 0; fired; k++) {
        status = fail_once(t, rank, saver, k, &fired);
        if (status != WF_OK)
            return wf_error_set(&rank->error, status, "call %d", (int)k);
    }
    wf_par_saver_close(saver);
    return WF_OK;
}

static void calls_fail(wf_par_checkpoint_kind kind, bool async)
{
    for (fault f = ANY_EIO; f < FAULTS; f++) {
        char dir[64];
        faults broken = {.fault = f, .at = -1, .short_writes = f == SYNC_EIO};
        trial t = {.dir = dir, .kind = kind, .async = async, .own = &broken};

        if (UNDER_SANITIZER && f == ANY_EIO)
            continue;
        wf_test_new_folder(dir);
        run_trial(&t, every_call_fails);
        CU_ASSERT(t.cases > (f == RENAME_EIO ? 2 : 5));
        wf_test_remove(dir);
    }
}

static int no_descriptors(void *self, int in, const char *name, int flags)
{
    (void)self;
    (void)in;
    (void)name;
    (void)flags;
    errno = EMFILE;
    return -1;
}

/* A rank that cannot open the directory of checkpoints says why, and not that it is another one
   than rank 0's. */
static wf_status out_of_descriptors(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    const wf_par_save_options options = {.dir = t->dir};
    wf_file_calls calls = wf_system_files;
    wf_par_saver *saver = wf_par_saver_open(trainer, &options);
    wf_error error = {WF_OK, ""};

    NEED(saver);
    if (rank->index == 2) {
        calls.open = no_descriptors;
        saver->calls = &calls;
    }
    NEED(wf_par_saver_check(saver, &error) == WF_EIO);
    NEED(strstr(error.text, "cannot open directory") && strstr(error.text, strerror(EMFILE)));
    NEED(!strstr(error.text, "as rank 0 sees it"));
    wf_par_saver_close(saver);
    return barrier(rank);
}

static void why_a_check_fails(void)
{
    char dir[64];
    trial t = {.dir = dir};

    wf_test_new_folder(dir);
    run_trial(&t, out_of_descriptors);
    wf_test_remove(dir);
}

/* A step that is there already is replaced, or stays where it is. */
static void replacing_fails(void)
{
    for (fault f = SYNC_EIO; f <= RENAME_EIO; f++) {
        char dir[64];
        faults broken = {.fault = f, .at = -1};
        trial t = {.dir = dir, .again = true, .own = &broken};

        wf_test_new_folder(dir);
        run_trial(&t, every_call_fails);
        CU_ASSERT(t.cases > 2);
        wf_test_remove(dir);
    }
}

static void sharded_calls_fail(void)
{
    calls_fail(WF_PAR_SAVE_SHARDED, false);
    calls_fail(WF_PAR_SAVE_SHARDED, true);
}

static void other_calls_fail(void)
{
    calls_fail(WF_PAR_SAVE_FULL, false);
    calls_fail(WF_PAR_SAVE_LOCAL, true);
}

/* A parameter that is not finite is no state to go on from. */
static wf_status save_spoiled(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver = wf_par_saver_open(
        trainer,
        &(wf_par_save_options){.dir = t->dir, .kind = t->kind, .async = t->async, .keep = 2});
    wf_error error = {WF_OK, ""};
    wf_status status;

    GOOD(wf_par_saver_save(saver, OLD, &rank->error));
    GOOD(wf_par_saver_finish(saver, &rank->error));
    GOOD(wf_init_fill(wf_par_trainer_state(trainer).parameter[0]->tensor, INFINITY));
    status = wf_par_saver_save(saver, NEW, &error);
    if (status == WF_OK)
        status = wf_par_saver_finish(saver, &error);
    NEED(status == WF_ENONFINITE);
    NEED(strstr(error.text, "parameter embed.table has values that are not finite"));
    NEED(rank->index != 0 || (usable(t->dir) == OLD && !left_over(t->dir)));
    wf_par_saver_close(saver);
    return WF_OK;
}

static void spoiled_parameters(void)
{
    for (wf_par_checkpoint_kind kind = WF_PAR_SAVE_SHARDED; kind <= WF_PAR_SAVE_LOCAL; kind++) {
        char dir[64];
        trial t = {.dir = dir, .kind = kind, .async = kind == WF_PAR_SAVE_LOCAL};

        wf_test_new_folder(dir);
        run_trial(&t, save_spoiled);
        wf_test_remove(dir);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"the k-th file call fails: sharded, and asynchronous", sharded_calls_fail},
        {"the k-th file call fails: full, and local", other_calls_fail},
        {"the k-th file call fails where a step is replaced", replacing_fails},
        {"a parameter that is not finite", spoiled_parameters},
        {"no more descriptors on one rank", why_a_check_fails},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_faults", tests);
}
