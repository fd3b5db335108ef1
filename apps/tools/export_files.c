/* apps/tools/export_files.c - see the header. */
#include "apps/tools/export_files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/weft.h>

/* Without it a folder is no model for anybody, so it goes first and comes last. */
static bool is_config(const char *name)
{
    return strcmp(name, "config.json") == 0 || strcmp(name, "adapter_config.json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    int x = is_config((*a)->d_name), y = is_config((*b)->d_name);

    return x == y ? strcmp((*a)->d_name, (*b)->d_name) : x - y;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

int app_export_is_any(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* Returns true for files of a model: an old tokenizer, template or adapter beside new weights
   would be taken for theirs. */
int app_export_is_of_model(const struct dirent *entry)
{
    const char *name = entry->d_name, *of_model;

    for (int i = 0; (of_model = wf_par_pretrained_file(i)) != NULL; i++)
        if (strcmp(name, of_model) == 0)
            return 1;
    return is_config(name) || strcmp(name, WF_PAR_PRETRAINED_TEMPLATES) == 0 ||
           ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json");
}

/* The same, or what is left of a model that was being replaced. */
int app_export_is_to_be_kept(const struct dirent *entry)
{
    return app_export_is_of_model(entry) || strcmp(entry->d_name, APP_EXPORT_OLD) == 0;
}

app_export_names app_export_list(int folder, int (*wanted)(const struct dirent *))
{
    app_export_names found = {.count = -1};

    found.count = scandirat(folder, ".", &found.entry, wanted, by_name);
    return found;
}

void app_export_free_names(app_export_names *n)
{
    for (int i = 0; i < n->count; i++)
        free(n->entry[i]);
    free(n->entry);
}

int app_export_open(int in, const char *name, int flags)
{
    return openat(in, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
}

void app_export_shut(int folder)
{
    if (folder >= 0)
        close(folder);
}

/* A folder with all that is in it, or a link of that name; what is not there is fine. */
bool app_export_remove(int in, const char *name)
{
    int folder = app_export_open(in, name, O_NOFOLLOW);
    app_export_names all;
    bool good = true;

    if (folder < 0)
        return unlinkat(in, name, 0) == 0 || errno == ENOENT;
    all = app_export_list(folder, app_export_is_any);
    for (int i = 0; i < all.count; i++)
        good = app_export_remove(folder, all.entry[i]->d_name) && good;
    good = all.count >= 0 && good;
    app_export_free_names(&all);
    app_export_shut(folder);
    return good && unlinkat(in, name, AT_REMOVEDIR) == 0;
}

/* Bring files from one folder to another, configs first or last. If one cannot be, those before
   it go back. */
static bool move_all(const app_export_names *n, int from, int to, bool configs_first)
{
    for (int k = 0; k < n->count; k++) {
        const char *name = n->entry[configs_first ? n->count - 1 - k : k]->d_name;
        int reason;

        if (renameat(from, name, to, name) == 0)
            continue;
        reason = errno;
        while (k-- > 0) {
            name = n->entry[configs_first ? n->count - 1 - k : k]->d_name;
            renameat(to, name, from, name);
        }
        errno = reason;
        return false;
    }
    return true;
}

/* Renames files. The old ones are moved aside before the first new one: an export that is
   stopped in between leaves no mixture. */
bool app_export_replace(int folder, int part, const app_export_names *written,
                        const app_export_names *old)
{
    int aside = -1, reason;

    if (old->count > 0) {
        if (mkdirat(folder, APP_EXPORT_OLD, 0755) == 0 || errno == EEXIST)
            aside = app_export_open(folder, APP_EXPORT_OLD, O_NOFOLLOW);
        if (aside < 0 || !move_all(old, folder, aside, true)) {
            app_export_shut(aside);
            return false;
        }
    }
    if (fsync(folder) == 0 && move_all(written, part, folder, false)) {
        app_export_shut(aside);
        return fsync(folder) == 0;
    }
    reason = errno;
    if (aside >= 0)
        move_all(old, aside, folder, false);
    app_export_shut(aside);
    errno = reason;
    return false;
}
