/* nn/optim/method.c - the table of optimizers, Weft's own and those that are registered. */
#include "nn/optim/method_internal.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const wf_nn_method_row *table[WF_NN_MOST_METHODS] = {
#define METHOD(number, row) [number] = &(row),
#include "nn/optim/methods.def"
};
static int count = WF_NN_METHODS;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int find(const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(table[i]->name, name) == 0)
            return i;
    return WF_NN_NO_METHOD;
}

wf_nn_method wf_nn_method_of(const wf_nn_method_row *row)
{
    int i = WF_NN_NO_METHOD;

    if (!row || !row->name)
        return WF_NN_NO_METHOD;
    pthread_mutex_lock(&lock);
    i = find(row->name);
    if (i < 0 && count < WF_NN_MOST_METHODS) {
        table[count] = row;
        i = count++;
    } else if (i >= 0 && table[i] != row) {
        i = WF_NN_NO_METHOD;
    }
    pthread_mutex_unlock(&lock);
    return (wf_nn_method)i;
}

wf_nn_method wf_nn_method_find(const char *name)
{
    int i;

    pthread_mutex_lock(&lock);
    i = find(name);
    pthread_mutex_unlock(&lock);
    return (wf_nn_method)i;
}

const wf_nn_method_row *wf_nn_method_row_of(wf_nn_method method)
{
    const wf_nn_method_row *row = NULL;

    pthread_mutex_lock(&lock);
    if ((int)method >= 0 && (int)method < count)
        row = table[method];
    pthread_mutex_unlock(&lock);
    return row;
}

char *wf_nn_method_names(char *text, size_t size)
{
    size_t used = 0;

    if (size)
        *text = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 i == 0          ? ""
                                 : i < count - 1 ? ", "
                                                 : " or ",
                                 table[i]->name);
    pthread_mutex_unlock(&lock);
    return text;
}

static const struct {
    const char *suffix, *words;
} kept[1 + WF_NN_KEPT] = {{"", "value"},
                          {"m", "first moment"},
                          {"v", "second moment"},
                          {"s", "third state"},
                          {"ema", "moving average"}};

const char *wf_nn_kept_suffix(int kind)
{
    return kept[kind].suffix;
}

const char *wf_nn_kept_words(int kind)
{
    return kept[kind].words;
}
