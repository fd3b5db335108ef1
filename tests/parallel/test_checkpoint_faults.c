/*
 * tests/parallel/test_checkpoint_faults.c - whatever a disk does to a checkpoint, an old or a new
 * one is there as a whole, and what is damaged is refused: the k-th file call fails, for every k;
 * bits flip, files are cut, lost, swapped and mixed.
 */
#include "core/bits.h"
#include "tests/parallel/checkpoint_harness.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum { OLD = 1, NEW = 2, BATCH = 4 };

/* What a table of file calls does at its call number `at` of some kind. */
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

static int faulty_open(void *self, const char *path, int flags)
{
    faults *f = self;

    if ((flags & O_ACCMODE) != O_RDONLY && fails(f, any(f), EIO))
        return -1;
    return wf_system_files.open(NULL, path, flags);
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
    int status = wf_system_files.close(NULL, fd);

    return fails(self, any(f) || f->fault == CLOSE_EIO, EIO) ? -1 : status;
}

static int faulty_rename(void *self, const char *from, const char *to)
{
    const faults *f = self;

    return fails(self, any(f) || f->fault == RENAME_EIO, EIO)
               ? -1
               : wf_system_files.rename(NULL, from, to);
}

static int faulty_make_directory(void *self, const char *path)
{
    return fails(self, any(self), EIO) ? -1 : wf_system_files.make_directory(NULL, path);
}

static int faulty_remove(void *self, const char *path)
{
    return fails(self, any(self), EIO) ? -1 : wf_system_files.remove(NULL, path);
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
                           .self = f};
}

/* A trainer on 2 x 2 ranks, and what is done with it. */
typedef struct trial {
    const char *dir;
    wf_par_checkpoint_kind kind;
    bool async;
    faults *faults;
    int64_t cases;
    wf_status (*run)(struct trial *t, wf_rank *rank, wf_par_trainer *trainer);
} trial;

static wf_status trial_rank(wf_rank *rank, void *arg)
{
    trial *t = arg;
    training what = new_training(WF_NN_GPT2, HEADS, BATCH);
    wf_par *par;
    wf_nn_module *model;
    wf_par_trainer *trainer;
    wf_status status;

    what.model.layers = 1;
    what.layout.tp = what.layout.dp = 2;
    what.layout.strategy = t->kind == WF_PAR_SAVE_LOCAL ? "zero1" : "full_shard";
    par = wf_par_open(rank, &what.layout, &rank->error);
    if (!par)
        return rank->error.code;
    model = (wf_nn_module *)wf_nn_gpt_new(wf_par_context(par), &what.model);
    wf_par_plan(par, model, wf_par_gpt_plan);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &what.options);
    status = trainer ? t->run(t, rank, trainer) : WF_EINTERNAL;
    if (wf_context_status(wf_par_context(par)) != WF_OK)
        wf_error_set(&rank->error, WF_EINTERNAL, "%s",
                     wf_context_error(wf_par_context(par))->text);
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    wf_par_close(par);
    return status;
}

static void run_trial(trial *t, wf_status (*run)(trial *, wf_rank *, wf_par_trainer *))
{
    wf_error error = {WF_OK, ""};

    t->run = run;
    wf_launch(&(wf_launch_options){.ranks = 4}, trial_rank, t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
}

static wf_status barrier(wf_rank *rank)
{
    return wf_barrier(rank->world, &rank->error);
}

/* The step of the checkpoint that a run would go on from, every byte of it checked; -1: none. */
static int64_t usable(const char *dir)
{
    wf_error error = {WF_OK, ""};
    wf_par_checkpoint *c;
    char **paths;
    int64_t count, step = -1;

    if (wf_par_checkpoint_list(dir, &paths, &count, &error) != WF_OK)
        return -1;
    c = count ? wf_par_checkpoint_open(paths[0], &error) : NULL;
    if (c && wf_par_checkpoint_verify(c, &error) == WF_OK)
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

    snprintf(path, sizeof path, "%s/step-%08d", dir, (int)step);
    wf_files_remove_tree(&wf_system_files, path, NULL);
}

static bool left_over(const char *dir)
{
    char path[256];
    struct stat s;

    snprintf(path, sizeof path, "%s/step-%08d.partial", dir, NEW);
    return stat(path, &s) == 0;
}

/* Save with the k-th call failing; whether there was a k-th call. */
static wf_status fail_once(trial *t, wf_rank *rank, wf_par_saver *saver, int64_t k, bool *fired)
{
    wf_error error = {WF_OK, ""};
    wf_status status;

    if (rank->index == 0) {
        t->faults->calls = 0;
        t->faults->fired = false;
        t->faults->at = k;
    }
    GOOD(barrier(rank));
    status = wf_par_saver_save(saver, NEW, &error);
    if (status == WF_OK)
        status = wf_par_saver_finish(saver, &error);
    GOOD(barrier(rank));
    *fired = atomic_load(&t->faults->fired);
    NEED(status == error.code);
    NEED(status == WF_OK || *fired);
    if (rank->index == 0) {
        int64_t step = usable(t->dir);

        t->faults->at = -1;
        t->cases++;
        NEED(step == (status == WF_OK ? NEW : OLD) || (status != WF_OK && step == NEW));
        NEED(status == WF_OK || strstr(error.text, "cannot ") != NULL);
        NEED(status == WF_OK || t->faults->fault != WRITE_ENOSPC ||
             strstr(error.text, " bytes are needed in all, and ") != NULL);
        NEED(!left_over(t->dir) || status == WF_OK);
        if (step == NEW)
            forget(t->dir, NEW);
    }
    return barrier(rank);
}

static wf_status every_call_fails(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_file_calls calls = faulty_files(t->faults);
    wf_par_save_options plain = {.dir = t->dir, .kind = t->kind}, faulty = {.dir = t->dir,
                                                                            .kind = t->kind,
                                                                            .async = t->async,
                                                                            .keep = 2,
                                                                            .calls = &calls};
    wf_par_saver *saver = wf_par_saver_open(trainer, &plain);
    wf_status status;
    bool fired = true;

    GOOD(wf_par_saver_save(saver, OLD, &rank->error));
    wf_par_saver_close(saver);
    saver = wf_par_saver_open(trainer, &faulty);
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
        trial t = {.dir = dir, .kind = kind, .async = async, .faults = &broken};

        if (UNDER_SANITIZER && f == ANY_EIO)
            continue;
        fresh_directory(dir);
        run_trial(&t, every_call_fails);
        CU_ASSERT(t.cases > (f == RENAME_EIO ? 2 : 5));
        remove_directory(dir);
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

/* Damage is done to a file in place, and undone from its copy. */
typedef struct damage {
    char path[512];
    char *bytes;
    int64_t n;
} damage;

static bool keep_copy(damage *d, const char *path)
{
    wf_file file;
    wf_error error = {WF_OK, ""};
    bool good;

    snprintf(d->path, sizeof d->path, "%s", path);
    if (wf_file_open(&file, &wf_system_files, path, WF_FILE_READ, &error) != WF_OK)
        return false;
    d->n = file.bytes;
    d->bytes = malloc((size_t)d->n + 1);
    good = d->bytes && wf_file_read(&file, d->bytes, (size_t)d->n, 0, &error) == WF_OK;
    wf_file_close(&file, NULL);
    return good;
}

static void put_back(damage *d)
{
    int fd = open(d->path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    CU_ASSERT(fd >= 0 && write(fd, d->bytes, (size_t)d->n) == d->n);
    close(fd);
    free(d->bytes);
}

static void flip(const damage *d, uint64_t random)
{
    int64_t at = (int64_t)(random / 8 % (uint64_t)d->n);
    char byte = (char)(d->bytes[at] ^ (1 << random % 8));
    int fd = open(d->path, O_WRONLY);

    CU_ASSERT(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* All ranks try to load; none may, and all for the same reason. */
static wf_status load_fails(trial *t, wf_rank *rank, wf_par_trainer *trainer, const char *path)
{
    wf_error error = {WF_OK, ""};
    wf_par_checkpoint *c = wf_par_checkpoint_open(path, &error);

    (void)t;
    if (c)
        wf_par_checkpoint_load(trainer, c, &error);
    wf_par_checkpoint_close(c);
    NEED(error.code == WF_EDATA || error.code == WF_EIO);
    NEED(strstr(error.text, path) != NULL);
    return barrier(rank);
}

enum { DAMAGES = UNDER_SANITIZER ? 60 : 1000 };

/* A bit flips, or the file ends early, in files by turns. */
static wf_status damage_files(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    char path[256], file[512], **names;
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir, .kind = t->kind});
    int64_t n;
    uint64_t random = 1;
    damage d;

    GOOD(wf_par_saver_save(saver, OLD, &rank->error));
    wf_par_saver_path(saver, OLD, path, sizeof path);
    wf_par_saver_close(saver);
    n = wf_files_list(path, &names);
    NEED(n >= 2);
    for (int i = 0; i < 2 * (t->kind == WF_PAR_SAVE_SHARDED ? DAMAGES : DAMAGES / 10); i++) {
        random = wf_mix64(random);
        snprintf(file, sizeof file, "%s/%s", path, names[random % (uint64_t)n]);
        random = wf_mix64(random);
        if (rank->index == 0) {
            NEED(keep_copy(&d, file));
            if (i % 2)
                NEED(truncate(file, (int64_t)(random % (uint64_t)d.n)) == 0);
            else
                flip(&d, random);
        }
        GOOD(barrier(rank));
        if (load_fails(t, rank, trainer, path) != WF_OK)
            return wf_error_set(&rank->error, WF_EINTERNAL, "%s case %d: %s", file, i,
                                rank->error.text);
        if (rank->index == 0)
            put_back(&d);
        GOOD(barrier(rank));
    }
    for (int64_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return WF_OK;
}

static void damaged_files(void)
{
    for (wf_par_checkpoint_kind kind = WF_PAR_SAVE_SHARDED; kind <= WF_PAR_SAVE_LOCAL; kind++) {
        char dir[64];
        trial t = {.dir = dir, .kind = kind};

        if (UNDER_SANITIZER && kind != WF_PAR_SAVE_SHARDED)
            continue;
        fresh_directory(dir);
        run_trial(&t, damage_files);
        remove_directory(dir);
    }
}

static wf_status named_damage(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver = wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir});
    char one[256], two[256], a[300], b[300], aside[300];
    const wf_par_data data = {.read = count_up};
    wf_error error = {WF_OK, ""};
    wf_par_checkpoint *c;
    wf_par_step result;
    damage d;

    GOOD(wf_par_saver_save(saver, 1, &rank->error));
    GOOD(wf_par_train_step(trainer, 1, &data, &result));
    GOOD(wf_par_saver_save(saver, 2, &rank->error));
    wf_par_saver_path(saver, 1, one, sizeof one);
    wf_par_saver_path(saver, 2, two, sizeof two);
    wf_par_saver_close(saver);
    snprintf(a, sizeof a, "%s/rank-00001.safetensors", one);
    snprintf(b, sizeof b, "%s/rank-00003.safetensors", one);
    snprintf(aside, sizeof aside, "%s/aside", t->dir);

    /* lost */
    GOOD(barrier(rank));
    if (rank->index == 0)
        NEED(rename(a, aside) == 0);
    GOOD(barrier(rank));
    GOOD(load_fails(t, rank, trainer, one));
    /* swapped: that of another rank in its place */
    if (rank->index == 0)
        NEED(rename(b, a) == 0 && rename(aside, b) == 0);
    GOOD(barrier(rank));
    GOOD(load_fails(t, rank, trainer, one));
    /* mixed: that of another step */
    snprintf(b, sizeof b, "%s/rank-00001.safetensors", two);
    if (rank->index == 0)
        NEED(rename(a, b) == 0);
    GOOD(barrier(rank));
    GOOD(load_fails(t, rank, trainer, two));

    /* and a bit of a tensor's last byte is told with file, tensor and rank */
    snprintf(a, sizeof a, "%s/rank-00002.safetensors", two);
    snprintf(b, sizeof b, "%s/rank-00001.safetensors", two);
    if (rank->index == 0) {
        NEED(keep_copy(&d, a));
        flip(&d, 8 * (uint64_t)(d.n - 2));
        free(d.bytes);
        c = wf_par_checkpoint_open(two, &error);
        NEED(c && wf_checkpoint_contents(c, 2, &error) == WF_EDATA);
        NEED(strstr(error.text, "rank-00002.safetensors is damaged: tensor \"") &&
             strstr(error.text, "the part that rank 2 wrote"));
        wf_par_checkpoint_close(c);
    }
    return barrier(rank);
}

static void lost_swapped_mixed(void)
{
    char dir[64];
    trial t = {.dir = dir};

    fresh_directory(dir);
    run_trial(&t, named_damage);
    remove_directory(dir);
}

int main(void)
{
    static const wf_test tests[] = {
        {"the k-th file call fails: sharded, and asynchronous", sharded_calls_fail},
        {"the k-th file call fails: full, and local", other_calls_fail},
        {"flipped bits and cut files are refused", damaged_files},
        {"lost, swapped and mixed files; the damage is named", lost_swapped_mixed},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_faults", tests);
}
