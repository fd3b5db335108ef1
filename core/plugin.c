/* core/plugin.c - finds, loads and keeps plugins. */
#include "core/plugin.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, WHY_BYTES = 512 };

static struct loaded {
    struct loaded *next;
    const char *name;
    const void *given;
} * loaded; /* for the life of the process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Finds the folder of the library or program that this file is part of. */
static void own_folder(char *folder, size_t room)
{
    Dl_info info;
    char *slash;

    folder[0] = '\0';
    if (dladdr(&loaded, &info) && info.dli_fname)
        snprintf(folder, room, "%s", info.dli_fname);
    slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

/* Returns true where the text of dlerror is about a dependency of the plugin: a library with a
   version, or a symbol. */
static bool is_of_another(const char *why)
{
    return strstr(why, "undefined") || strstr(why, ".so.");
}

/* Opens a plugin: a folder that is named wins; one that lacks the plugin is skipped. */
static void *open_library(const char *name, char *why, size_t room)
{
    const char *named = getenv("WEFT_PLUGINS");
    char folder[PATH_BYTES], path[PATH_BYTES + 64];
    void *library = NULL;

    own_folder(folder, sizeof folder);
    why[0] = '\0';
    for (int i = 0; !library && i < 3; i++) {
        const char *from = i == 0 ? named : i == 1 ? folder : "";

        if (!from)
            continue;
        snprintf(path, sizeof path, "%s%slibweft_%s.so", from, *from ? "/" : "", name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        /* One that is there and cannot be loaded is what the user wants to hear of. */
        if (!library && !is_of_another(why))
            snprintf(why, room, "%s", dlerror());
    }
    return library;
}

static const void *load(const wf_plugin_ask *ask, wf_error *error)
{
    char why[WHY_BYTES];
    void *library = open_library(ask->name, why, sizeof why), *symbol;
    const void *given;

    if (!library && is_of_another(why)) {
        wf_error_set(error, WF_EUNSUPPORTED,
                     "%s cannot be loaded: %s; it was built with %s, whose libraries have to "
                     "be found here",
                     ask->what, why, ask->needs);
        return NULL;
    }
    if (!library) {
        wf_error_set(error, WF_EUNSUPPORTED,
                     "%s is not here: %s; scripts/build.sh --all builds it where CMake finds "
                     "%s, and it is looked for beside libweft and in $WEFT_PLUGINS",
                     ask->what, why, ask->needs);
        return NULL;
    }
    symbol = dlsym(library, "wf_plugin");
    given = symbol ? ask->enter(symbol) : NULL;
    if (!symbol)
        wf_error_set(error, WF_EUNSUPPORTED, "libweft_%s.so is no plugin of Weft", ask->name);
    if (!given) {
        wf_error_set(error, WF_EUNSUPPORTED,
                     "libweft_%s.so is not of this version of Weft (interface %d); build both "
                     "from the same sources",
                     ask->name, ask->version);
        dlclose(library);
    }
    return given;
}

static void keep(const char *name, const void *given)
{
    struct loaded *l = malloc(sizeof *l);

    if (!l)
        return; /* the next call looks for it once more */
    *l = (struct loaded){.next = loaded, .name = name, .given = given};
    loaded = l;
}

const void *wf_plugin_find(const wf_plugin_ask *ask, wf_error *error)
{
    const void *given = NULL;

    pthread_mutex_lock(&lock);
    for (struct loaded *l = loaded; l; l = l->next)
        if (strcmp(l->name, ask->name) == 0)
            given = l->given;
    if (!given && (given = load(ask, error)))
        keep(ask->name, given);
    pthread_mutex_unlock(&lock);
    return given;
}

bool wf_plugin_is_here(const char *name)
{
    char why[WHY_BYTES];

    return open_library(name, why, sizeof why) != NULL;
}
