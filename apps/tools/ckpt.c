/* apps/tools/ckpt.c - looks at checkpoints: ckpt list | verify | show | diff; see ckpt
   --help. */
#include "apps/tools/checkpoint_diff.h"
#include "apps/program.h"
#include "parallel/checkpoint/contents.h"
#include "core/files/input.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "ckpt - look at the checkpoints of gpt_train --save\n\n"
    "Usage: ckpt COMMAND [PATH]...\n\n"
    "  ckpt list DIR        the checkpoints in a directory, in the order in which a run tries "
    "them\n"
    "  ckpt verify PATH...  every byte against its checksums\n"
    "  ckpt show PATH       what it holds: tensors with shape, dtype and layout\n"
    "  ckpt diff A B        which tensors differ, bit by bit, whatever the layouts\n"
    "  ckpt --version       version, commit, compiler and what is built in\n\n"
    "PATH, A and B are checkpoints (DIR/step-00000100), or directories of them: then the one "
    "that\n"
    "a run would continue from.\n\n"
    "Exit status: 0 done, 1 they differ, 2 usage, 3 output that cannot be written, 8 damaged,\n"
    "or cannot be read\n";

enum { SAME = 0, DIFFERENT = 1, USAGE = 2, DAMAGED = 8 };

static int complain(const wf_error *error)
{
    fflush(stdout);
    app_program_error("ckpt", error);
    return DAMAGED;
}

static void refuse_path(const char *path, wf_error *error)
{
    const char *pointer = wf_input_pointer_at(path);

    wf_error_set(error, WF_EIO, "%s %s", path,
                 pointer ? pointer : "is no checkpoint, and has none in it");
}

static wf_par_checkpoint *open_path(const char *path, wf_error *error)
{
    char found[4096];

    if (app_checkpoint_find(path, found, error))
        return wf_par_checkpoint_open(found, error);
    refuse_path(path, error);
    return NULL;
}

static void print_mesh(const wf_par_checkpoint_summary *s)
{
    printf("%s", s->strategy);
    for (int a = 0; a < s->n_axes; a++)
        printf(" %s %d", s->axis_name[a], s->axis_size[a]);
}

static int list(const char *dir)
{
    char **paths;
    int64_t count;
    wf_error error = {WF_OK, ""};
    int result = SAME;

    if (wf_par_checkpoint_list(dir, &paths, &count, &error) != WF_OK)
        result = complain(&error); /* lists the readable ones all the same */
    for (int64_t i = 0; i < count; i++) {
        wf_error why = {WF_OK, ""};
        wf_par_checkpoint *c = wf_par_checkpoint_open(paths[i], &why);

        if (c) {
            wf_par_checkpoint_summary s = wf_par_checkpoint_describe(c);

            printf("%s  step %" PRId64 "  %s  %" PRId64 " files  %" PRId64
                   " bytes  digest %016" PRIx64 "  ",
                   paths[i], s.step, s.kind, s.files, s.bytes, s.digest);
            print_mesh(&s);
            putchar('\n');
        } else {
            result = complain(&why);
        }
        wf_par_checkpoint_close(c);
        free(paths[i]);
    }
    free(paths);
    if (!count && error.code == WF_OK) {
        wf_error_set(&error, WF_EIO, "there is no checkpoint in %s", dir);
        result = complain(&error);
    }
    return result;
}

static int verify(int n, char **paths)
{
    int result = SAME;

    for (int i = 0; i < n; i++) {
        wf_error error = {WF_OK, ""};
        wf_par_checkpoint *c = open_path(paths[i], &error);

        if (c && wf_par_checkpoint_verify(c, &error) == WF_OK) {
            wf_par_checkpoint_summary s = wf_par_checkpoint_describe(c);

            printf("%s is whole: %" PRId64 " bytes in %" PRId64 " files\n",
                   wf_par_checkpoint_path(c), s.bytes, s.files);
        } else {
            result = complain(&error);
        }
        wf_par_checkpoint_close(c);
    }
    return result;
}

/* The names of a path that the last one had not, each on a line, indented by its depth. */
static void print_branch(const char *last, const char *path)
{
    size_t same = 0;

    for (size_t i = 0; last[i] && last[i] == path[i]; i++)
        if (path[i] == '.')
            same = i + 1;
    for (const char *dot = path; (dot = strchr(dot, '.')); dot++) {
        int depth = 0;
        const char *name = path;

        if ((size_t)(dot - path) < same)
            continue;
        for (const char *c = path; c < dot; c++)
            if (*c == '.') {
                depth++;
                name = c + 1;
            }
        printf("%*s%.*s\n", 2 * depth, "", (int)(dot - name), name);
    }
}

static void print_tensor(const wf_par_checkpoint_summary *s, const wf_par_saved_tensor *t)
{
    const char *name = strrchr(t->path, '.') ? strrchr(t->path, '.') + 1 : t->path;
    int depth = 0;

    for (const char *c = t->path; *c; c++)
        depth += *c == '.';
    printf("%*s%-*s f32 [", 2 * depth, "", 24 - 2 * depth, name);
    for (int d = 0; d < t->ndim; d++)
        printf("%s%" PRId64, d ? "," : "", t->size[d]);
    printf("] [");
    for (int d = 0; d < t->ndim; d++) {
        printf("%s%s", d ? ", " : "", t->n_axes[d] ? "" : "*");
        for (int i = 0; i < t->n_axes[d]; i++)
            printf("%s%s", i ? "/" : "", s->axis_name[t->axis[d][i]]);
    }
    printf("]");
    for (int k = 1, n = 0; k < WF_PAR_SAVED_STATES; k++)
        if (t->states >> k & 1)
            printf("%s%s", n++ ? ", " : " with ", wf_nn_kept_suffix(k));
    if (t->pp >= 0)
        printf(" on pp %d", t->pp);
    printf("\n");
}

static void print_option(const wf_par_checkpoint *c, int64_t i)
{
    const char *key, *value;
    char *shown;

    wf_par_checkpoint_option_at(c, i, &key, &value);
    shown = strdup(value);
    printf("  %s = %s\n", key, shown ? wf_text_visible(shown) : "(no memory to show it)");
    free(shown);
}

static int show(const char *path)
{
    wf_error error = {WF_OK, ""};
    wf_par_checkpoint *c = open_path(path, &error);
    const char *last = "";
    wf_par_checkpoint_summary s;

    if (!c)
        return complain(&error);
    s = wf_par_checkpoint_describe(c);
    printf("%s: %s, step %" PRId64 ", %" PRId64 " sequences done, digest %016" PRIx64 "\n",
           wf_par_checkpoint_path(c), s.kind, s.step, s.sequences, s.digest);
    print_mesh(&s);
    printf("; %" PRId64 " files, %" PRId64 " bytes\n", s.files, s.bytes);
    for (int64_t i = 0; i < s.options; i++)
        print_option(c, i);
    for (int64_t i = 0; i < s.tensors; i++) {
        wf_par_saved_tensor tensor = wf_par_checkpoint_tensor(c, i);

        print_branch(last, tensor.path);
        print_tensor(&s, &tensor);
        last = tensor.path;
    }
    wf_par_checkpoint_close(c);
    return SAME;
}

static int diff(const char *path_a, const char *path_b)
{
    char a[4096], b[4096];
    wf_error error = {WF_OK, ""};
    bool same;

    if (!app_checkpoint_find(path_a, a, &error))
        refuse_path(path_a, &error);
    else if (!app_checkpoint_find(path_b, b, &error))
        refuse_path(path_b, &error);
    else if (app_checkpoint_diff(a, b, stdout, &same, &error) == WF_OK)
        return same ? SAME : DIFFERENT;
    return complain(&error);
}

/* The command's exit status, or USAGE where there is no such command. */
static int run(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "--help") == 0) {
        fputs(help, stdout);
        return SAME;
    }
    if (strcmp(what, "list") == 0 && argc == 3)
        return list(argv[2]);
    if (strcmp(what, "verify") == 0 && argc > 2)
        return verify(argc - 2, argv + 2);
    if (strcmp(what, "show") == 0 && argc == 3)
        return show(argv[2]);
    if (strcmp(what, "diff") == 0 && argc == 4)
        return diff(argv[2], argv[3]);
    fprintf(stderr, "ckpt: it takes list DIR, verify PATH..., show PATH or diff A B; see ckpt "
                    "--help\n");
    return USAGE;
}

int main(int argc, char **argv)
{
    int result;

    app_program_begin();
    result = app_program_version_asked("ckpt", argc, argv) ? SAME : run(argc, argv);
    return result <= DIFFERENT ? app_program_end("ckpt", result) : result;
}
