/*
 * tests/parallel/test_checkpoint_damage.c - what is damaged is refused: bits flip, files are
 * cut, lost, swapped and mixed.
 *
 * ctest: builds plain
 */
#include "core/numerics/bits.h"
#include "tests/parallel/checkpoint_trial.h"
#include <fcntl.h>

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

enum { DAMAGES = UNDER_SANITIZER ? 60 : 500 };

/* A bit flips, or the file ends early, in files by turns. */
static wf_status damage_files(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    char path[256], file[512], **names;
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir, .kind = t->kind});
    wf_folder folder;
    int64_t n;
    uint64_t random = 1;
    damage d;

    GOOD(wf_par_saver_save(saver, OLD, &rank->error));
    wf_par_saver_path(saver, OLD, path, sizeof path);
    wf_par_saver_close(saver);
    GOOD(wf_folder_open(&folder, &wf_system_files, path, &rank->error));
    GOOD(wf_folder_list(&folder, &names, &n, &rank->error));
    wf_folder_close(&folder);
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
    wf_folder_free_names(names, n);
    return WF_OK;
}

static void damaged_files(void)
{
    for (wf_par_checkpoint_kind kind = WF_PAR_SAVE_SHARDED; kind <= WF_PAR_SAVE_LOCAL; kind++) {
        char dir[64];
        trial t = {.dir = dir, .kind = kind};

        if (UNDER_SANITIZER && kind != WF_PAR_SAVE_SHARDED)
            continue;
        wf_test_new_folder(dir);
        run_trial(&t, damage_files);
        wf_test_remove(dir);
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

    /* a changed bit of a tensor's last byte is reported with file, tensor and rank */
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

    wf_test_new_folder(dir);
    run_trial(&t, named_damage);
    wf_test_remove(dir);
}

int main(void)
{
    static const wf_test tests[] = {
        {"flipped bits and cut files are refused", damaged_files},
        {"lost, swapped and mixed files; the damage is named", lost_swapped_mixed},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_damage", tests);
}
