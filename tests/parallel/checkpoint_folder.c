/* tests/parallel/checkpoint_folder.c - see the header. */
#include "tests/parallel/checkpoint_folder.h"
#include <fcntl.h>
#include <sys/stat.h>

const char *in(text path, const char *dir, const char *name)
{
    snprintf(path, sizeof(text), "%s/%s", dir, name);
    return path;
}

bool is_there(const char *dir, const char *name)
{
    struct stat s;
    text path;

    return lstat(in(path, dir, name), &s) == 0;
}

void litter(const char *dir, const char *name, size_t bytes)
{
    char *garbage = calloc(1, bytes + 1);
    text path;
    int fd = open(in(path, dir, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

    memset(garbage, 'x', bytes);
    if (fd >= 0 && write(fd, garbage, bytes) < 0)
        perror(path);
    close(fd);
    free(garbage);
}

const char *listed(const char *dir, int64_t i, wf_error *error)
{
    static text name;
    char **paths;
    int64_t count;

    *name = 0;
    *error = (wf_error){WF_OK, ""};
    wf_par_checkpoint_list(dir, &paths, &count, error);
    for (int64_t k = 0; k < count; k++) {
        if (k == i)
            snprintf(name, sizeof name, "%s", strrchr(paths[k], '/') + 1);
        free(paths[k]);
    }
    free(paths);
    return name;
}

bool whole(const char *dir, const char *name)
{
    wf_error error = {WF_OK, ""};
    text path;
    wf_par_checkpoint *c = wf_par_checkpoint_open(in(path, dir, name), &error);
    bool good = c && wf_par_checkpoint_verify(c, &error) == WF_OK;

    if (!good)
        printf("\n    %s\n", error.text);
    wf_par_checkpoint_close(c);
    return good;
}

wf_status save_steps(trial *t, wf_rank *rank, wf_par_saver *saver, int from, int to)
{
    (void)t;
    for (int step = from; step <= to; step++) {
        GOOD(wf_par_saver_save(saver, step, &rank->error));
        GOOD(wf_par_saver_finish(saver, &rank->error));
    }
    return barrier(rank);
}
