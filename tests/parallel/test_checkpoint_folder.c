/*
 * tests/parallel/test_checkpoint_folder.c - what else may lie in a directory of checkpoints:
 * links that lead elsewhere, what was left by runs that were killed, what was replaced, and
 * what cannot be read.
 *
 * ctest: builds address thread
 */
#include "tests/parallel/checkpoint_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- links ---- */

static wf_status save_among_links(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir, .keep = 2});
    const char *victim = t->own;
    text a, b;

    GOOD(save_steps(t, rank, saver, 1, 1));
    if (rank->index == 0) {
        NEED(rename(in(a, t->dir, "step-00000001"), in(b, victim, "archived")) == 0);
        NEED(symlink(b, a) == 0);
        in(b, victim, "folder");
        NEED(symlink(b, in(a, t->dir, "step-00000002.partial")) == 0);
        NEED(symlink(b, in(a, t->dir, "step-00000003.replaced")) == 0);
        NEED(symlink(b, in(a, t->dir, "step-00000009.partial")) == 0);
        NEED(symlink(in(b, victim, "precious"), in(a, t->dir, "latest.partial")) == 0);
    }
    GOOD(barrier(rank));
    GOOD(save_steps(t, rank, saver, 2, 4));
    wf_par_saver_close(saver);
    return WF_OK;
}

static void links_are_not_followed(void)
{
    char dir[64], victim[64];
    text folder, path, read = "";
    trial t = {.dir = dir, .own = victim};
    int fd;

    wf_test_new_folder(dir);
    wf_test_new_folder(victim);
    CU_ASSERT_EQUAL(mkdir(in(folder, victim, "folder"), 0755), 0);
    litter(folder, "model.safetensors", 100);
    litter(folder, "rank-00000.safetensors", 100);
    litter(victim, "precious", 5);
    run_trial(&t, save_among_links);
    CU_ASSERT(is_there(folder, "model.safetensors"));
    fd = open(in(path, victim, "precious"), O_RDONLY);
    CU_ASSERT(pread(fd, read, sizeof read - 1, 0) == 5 && strcmp(read, "xxxxx") == 0);
    close(fd);
    fd = open(in(path, folder, "rank-00000.safetensors"), O_RDONLY);
    CU_ASSERT_EQUAL(lseek(fd, 0, SEEK_END), 100);
    close(fd);
    CU_ASSERT(whole(victim, "archived"));
    CU_ASSERT(!is_there(dir, "step-00000001") && !is_there(dir, "step-00000002"));
    CU_ASSERT(!is_there(dir, "step-00000009.partial") && !is_there(dir, "latest.partial"));
    CU_ASSERT(whole(dir, "step-00000003") && whole(dir, "step-00000004"));
    wf_test_remove(dir);
    wf_test_remove(victim);
}

/* ---- what was left ---- */

static wf_status save_two(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver = wf_par_saver_open(
        trainer, &(wf_par_save_options){.dir = t->dir, .kind = t->kind, .async = t->async});

    GOOD(save_steps(t, rank, saver, 1, 2));
    wf_par_saver_close(saver);
    return WF_OK;
}

/* A larger model, with more ranks, was being saved by a run that was killed. */
static void leftovers_are_not_written_to(void)
{
    static const char *const names[] = {"step-00000001.partial", "step-00000002.replaced",
                                        "step-00000001.0123456789abcdef.partial"};

    for (wf_par_checkpoint_kind kind = WF_PAR_SAVE_SHARDED; kind <= WF_PAR_SAVE_LOCAL; kind++) {
        char dir[64];
        trial t = {.dir = dir, .kind = kind, .async = kind == WF_PAR_SAVE_FULL};

        wf_test_new_folder(dir);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            text folder;

            CU_ASSERT_EQUAL(mkdir(in(folder, dir, names[i]), 0755), 0);
            litter(folder, "model.safetensors", 4 << 20);
            litter(folder, "rank-00000.safetensors", 4 << 20);
            litter(folder, "rank-00007.safetensors", 4 << 20);
            litter(folder, "index.json", 1 << 20);
        }
        run_trial(&t, save_two);
        CU_ASSERT(whole(dir, "step-00000001") && whole(dir, "step-00000002"));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            CU_ASSERT(!is_there(dir, names[i]));
        wf_test_remove(dir);
    }
}

static void a_file_too_many_is_found(void)
{
    char dir[64];
    text folder;
    trial t = {.dir = dir};

    wf_test_new_folder(dir);
    run_trial(&t, save_two);
    litter(in(folder, dir, "step-00000001"), "rank-00004.safetensors", 10);
    litter(in(folder, dir, "step-00000002"), "notes.txt", 10);
    printf("(one of two is refused:)");
    CU_ASSERT(!whole(dir, "step-00000001") && whole(dir, "step-00000002"));
    wf_test_remove(dir);
}

/* The machine stopped between the two renames that replace a step. */
static wf_status save_one_more(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir, .keep = 2});

    GOOD(save_steps(t, rank, saver, 3, 3));
    wf_par_saver_close(saver);
    return WF_OK;
}

static void what_was_replaced_comes_back(void)
{
    char dir[64];
    text a, b;
    trial t = {.dir = dir};
    wf_error error;

    wf_test_new_folder(dir);
    run_trial(&t, save_two);
    CU_ASSERT_EQUAL(rename(in(a, dir, "step-00000002"), in(b, dir, "step-00000002.replaced")),
                    0);
    CU_ASSERT_STRING_EQUAL(listed(dir, 0, &error), "step-00000002.replaced");
    CU_ASSERT_EQUAL(error.code, WF_OK);
    CU_ASSERT_STRING_EQUAL(listed(dir, 1, &error), "step-00000001");
    CU_ASSERT(whole(dir, "step-00000002.replaced"));
    run_trial(&t, save_one_more);
    CU_ASSERT(whole(dir, "step-00000002") && whole(dir, "step-00000003"));
    CU_ASSERT(!is_there(dir, "step-00000002.replaced"));
    wf_test_remove(dir);
}

/* ---- what cannot be read ---- */

static void what_cannot_be_read_is_not_nothing(void)
{
    struct rlimit files, none;
    char dir[64];
    text path;
    trial t = {.dir = dir};
    wf_error error;

    wf_test_new_folder(dir);
    CU_ASSERT_STRING_EQUAL(listed("/tmp/weft-no-such-directory", 0, &error), "");
    CU_ASSERT_EQUAL(error.code, WF_OK);
    run_trial(&t, save_two);
    getrlimit(RLIMIT_NOFILE, &files);
    none = files;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    CU_ASSERT_STRING_EQUAL(listed(dir, 0, &error), "");
    setrlimit(RLIMIT_NOFILE, &files);
    CU_ASSERT_EQUAL(error.code, WF_EIO);
    litter(dir, "a file", 1);
    listed(in(path, dir, "a file"), 0, &error);
    CU_ASSERT_EQUAL(error.code, WF_EIO);
    wf_test_remove(dir);
}

static void latest_is_what_counts(void)
{
    char dir[64];
    text path;
    trial t = {.dir = dir};
    wf_error error;

    wf_test_new_folder(dir);
    run_trial(&t, save_two);
    CU_ASSERT_STRING_EQUAL(listed(dir, 0, &error), "step-00000002");
    litter(dir, "latest", 0);
    CU_ASSERT_STRING_EQUAL(listed(dir, 0, &error), "step-00000002");
    CU_ASSERT(error.code == WF_EDATA && strstr(error.text, "latest names no checkpoint"));
    remove(in(path, dir, "latest"));
    CU_ASSERT(symlink("step-00000001", path) == 0);
    listed(dir, 0, &error);
    CU_ASSERT_EQUAL(error.code, WF_EIO);
    remove(path);
    CU_ASSERT_STRING_EQUAL(listed(dir, 0, &error), "step-00000002");
    CU_ASSERT_EQUAL(error.code, WF_OK);
    for (int step = 1; step <= 3; step += 2) {
        FILE *latest = fopen(path, "w");

        fprintf(latest, "step-%08d\n", step);
        fclose(latest);
        CU_ASSERT_STRING_EQUAL(listed(dir, 0, &error),
                               step == 1 ? "step-00000001" : "step-00000002");
        CU_ASSERT_EQUAL(error.code, step == 1 ? WF_OK : WF_EDATA);
    }
    CU_ASSERT(strstr(error.text, "latest names step-00000003, which is not there") != NULL);
    wf_test_remove(dir);
}

/* ---- files of another checkpoint ---- */

/* All data files of step 1 are in step 2: each agrees with itself, and none with the index. */
static wf_status load_mixed(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir, .kind = t->kind});
    const wf_par_data data = {.read = count_up};
    wf_error error = {WF_OK, ""};
    wf_par_checkpoint *c;
    wf_par_step result;
    text a, b, one, two;

    GOOD(save_steps(t, rank, saver, 1, 1));
    GOOD(wf_par_train_step(trainer, 1, &data, &result));
    GOOD(save_steps(t, rank, saver, 2, 2));
    wf_par_saver_close(saver);
    in(one, t->dir, "step-00000001");
    in(two, t->dir, "step-00000002");
    for (int r = 0; r < 4 && rank->index == 0; r++) {
        char name[32] = "model.safetensors";

        if (t->kind != WF_PAR_SAVE_FULL)
            snprintf(name, sizeof name, "rank-%05d.safetensors", r);
        NEED(rename(in(a, one, name), in(b, two, name)) == 0 || t->kind == WF_PAR_SAVE_FULL);
    }
    GOOD(barrier(rank));
    c = wf_par_checkpoint_open(two, &rank->error);
    NEED(c && wf_par_checkpoint_load(trainer, c, &error) == WF_EDATA);
    NEED(strstr(error.text, "are not the ones that were saved with its index"));
    error = (wf_error){WF_OK, ""};
    NEED(wf_par_checkpoint_verify(c, &error) == WF_EDATA);
    NEED(strstr(error.text, "are not the ones that were saved with its index"));
    wf_par_checkpoint_close(c);
    return barrier(rank);
}

static void headers_belong_to_their_index(void)
{
    for (wf_par_checkpoint_kind kind = WF_PAR_SAVE_SHARDED; kind <= WF_PAR_SAVE_LOCAL; kind++) {
        char dir[64];
        trial t = {.dir = dir, .kind = kind};

        wf_test_new_folder(dir);
        run_trial(&t, load_mixed);
        wf_test_remove(dir);
    }
}

/* ---- a directory that moves ---- */

static wf_status count_remakes(void *arg, wf_error *error)
{
    (void)error;
    ++*(int *)arg;
    return WF_OK;
}

static wf_status move_and_remove(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    int remade = 0;
    wf_par_save_options options = {.dir = t->dir,
                                   .kind = t->kind,
                                   .async = t->async,
                                   .remake = count_remakes,
                                   .remake_arg = &remade};
    wf_par_saver *saver = wf_par_saver_open(trainer, &options);
    wf_error error = {WF_OK, ""};
    text moved, path;

    snprintf(moved, sizeof moved, "%s.moved", t->dir);
    NEED(rank->index != 0 || mkdir(in(path, t->dir, "step-00000007.replaced"), 0755) == 0);
    GOOD(barrier(rank));
    GOOD(wf_par_saver_check(saver, &rank->error));
    NEED(!is_there(t->dir, "latest") && wf_par_saver_saved(saver) == 0);
    GOOD(barrier(rank));
    /* a run that checks its saver may still have to load what a killed one has left */
    NEED(rank->index != 0 || (is_there(t->dir, "step-00000007.replaced") && rmdir(path) == 0));
    GOOD(barrier(rank));
    NEED(rank->index != 0 || (rename(t->dir, moved) == 0 && mkdir(t->dir, 0755) == 0));
    GOOD(barrier(rank));
    GOOD(save_steps(t, rank, saver, 1, 1));
    NEED(is_there(moved, "step-00000001") && !is_there(t->dir, "latest") && remade == 0);
    wf_par_saver_path(saver, 1, path, sizeof path);
    NEED(rank->index != 0 || strstr(path, ".moved/step-00000001"));
    GOOD(barrier(rank));
    if (rank->index == 0)
        wf_test_remove(moved);
    GOOD(barrier(rank));
    GOOD(save_steps(t, rank, saver, 2, 2));
    NEED(is_there(t->dir, "step-00000002") && access(moved, F_OK) != 0);
    NEED(remade == (rank->index == 0));
    wf_par_saver_close(saver);
    options.remake = NULL;
    saver = wf_par_saver_open(trainer, &options);
    GOOD(wf_par_saver_check(saver, &rank->error));
    GOOD(barrier(rank));
    if (rank->index == 0)
        wf_test_remove(t->dir);
    GOOD(barrier(rank));
    NEED(wf_par_saver_save(saver, 3, &error) == WF_EIO || t->async);
    NEED(wf_par_saver_finish(saver, &error) == WF_EIO || !t->async);
    NEED(strstr(error.text, "was removed or unmounted while the run saves there"));
    wf_par_saver_close(saver);
    return barrier(rank);
}

static void a_directory_is_followed(void)
{
    for (wf_par_checkpoint_kind kind = WF_PAR_SAVE_SHARDED; kind <= WF_PAR_SAVE_LOCAL; kind++) {
        char dir[64];
        trial t = {.dir = dir, .kind = kind, .async = kind == WF_PAR_SAVE_FULL};

        wf_test_new_folder(dir);
        run_trial(&t, move_and_remove);
        CU_ASSERT(access(dir, F_OK) != 0);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"a directory that moves is followed", a_directory_is_followed},
        {"links are not followed", links_are_not_followed},
        {"what was left is not written to", leftovers_are_not_written_to},
        {"a file too many is found", a_file_too_many_is_found},
        {"what was replaced comes back", what_was_replaced_comes_back},
        {"what cannot be read is not nothing", what_cannot_be_read_is_not_nothing},
        {"latest is what counts, and has to be there", latest_is_what_counts},
        {"headers belong to their index", headers_belong_to_their_index},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_folder", tests);
}
