/* tests/bench/options.c - the flags of all subcommands: one table gives parsing and help. */
#include "tests/bench/bench.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_kind { FLAG_BOOL, FLAG_COUNT, FLAG_SECONDS, FLAG_TEXT } flag_kind;

typedef struct flag {
    const char *name;
    flag_kind kind;
    size_t offset;
    const char *commands; /* NULL: all */
    const char *metavar, *help;
} flag;

#define AT(field) offsetof(bench_options, field)

static const flag flags[] = {
    {"--json", FLAG_BOOL, AT(json), NULL, "", "a line of JSON per row instead of tables"},
    {"--quick", FLAG_BOOL, AT(quick), NULL, "",
     "small sizes and few rounds: a try, no figures"},
    {"--threads", FLAG_COUNT, AT(threads), NULL, "N", "threads of a rank (default: see below)"},
    {"--seconds", FLAG_SECONDS, AT(seconds), NULL, "S", "time of one race (default: 2)"},
    {"--shapes", FLAG_TEXT, AT(shapes), "gemm decode cached attention experts", "LIST",
     "gemm: MxKxN; attention: SEQxDIM; experts: TxDxFxExK; by comma"},
    {"--forms", FLAG_TEXT, AT(forms), "gemm", "LIST", "of NN,NT,TN,TT (default: all)"},
    {"--dtype", FLAG_TEXT, AT(dtype), "gemm", "NAME", "fp32 (default), or bf16 beside it"},
    {"--model", FLAG_TEXT, AT(model), "step pipeline dispatch init", "NAME",
     "tiny, small, demo, wide, gpt2-256 or gpt2-1024"},
    {"--layouts", FLAG_TEXT, AT(layouts), "step", "LIST",
     "TPxDP, then any of tN (threads), sp (sequence parallel), off (exact off)"},
    {"--schedules", FLAG_TEXT, AT(layouts), "pipeline", "LIST",
     "schedules that schedule list names; behind one of them @PPxTPxDP, and b where blocks are "
     "recomputed"},
    {"--tp", FLAG_COUNT, AT(tp), "step", "N", "one more layout: tensor-parallel ranks"},
    {"--dp", FLAG_COUNT, AT(dp), "step", "N", "and its data-parallel ranks"},
    {"--sequence-parallel", FLAG_BOOL, AT(sequence_parallel), "step", "",
     "layouts with several tensor-parallel ranks have sequence parallelism"},
    {"--exact", FLAG_TEXT, AT(exact), "step", "WORD",
     "on, off, or both: each layout without exactness as well"},
    {"--libraries", FLAG_BOOL, AT(libraries), "step", "",
     "beside the products of a step by OpenBLAS, oneDNN and BLIS as well"},
    {"--device", FLAG_TEXT, AT(device), "memory attention gemm experts", "NAME",
     "cpu, or cuda: the first GPU (default: cpu)"},
    {"--ranks", FLAG_TEXT, AT(ranks), "comm", "LIST", "sizes of worlds (default: 2,4,8,32)"},
    {"--sizes", FLAG_TEXT, AT(sizes), "comm", "LIST",
     "bytes, with K or M (default: 4K to 64M by fours)"},
    {"--processes", FLAG_BOOL, AT(processes), "comm", "",
     "ranks are processes of mpirun: Weft over MPI beside MPI's own collectives"},
    {"--mpi-child", FLAG_BOOL, AT(mpi_child), "comm", NULL, NULL},
    {"--help", FLAG_BOOL, AT(help), NULL, "", "this text"},
};

enum { FLAGS = sizeof flags / sizeof *flags };

/* Returns true where a flag is one of this command's. */
static bool belongs(const flag *f, const bench_command *command)
{
    return !f->commands || strstr(f->commands, command->name);
}

static const flag *find(const bench_command *command, const char *name)
{
    for (int i = 0; i < FLAGS; i++) {
        if (strcmp(flags[i].name, name) == 0 && belongs(&flags[i], command))
            return &flags[i];
    }
    return NULL;
}

static wf_status set(const flag *f, const char *value, bench_options *o, wf_error *error)
{
    void *field = (char *)o + f->offset;
    char *end = NULL;
    double number;

    if (f->kind == FLAG_BOOL) {
        *(bool *)field = true;
        return WF_OK;
    }
    if (!value)
        return wf_error_set(error, WF_EINVAL, "%s needs a value: %s %s", f->name, f->name,
                            f->metavar);
    if (f->kind == FLAG_TEXT && !*value)
        return wf_error_set(error, WF_EINVAL, "%s '' is empty: %s %s", f->name, f->name,
                            f->metavar);
    if (f->kind == FLAG_TEXT) {
        *(const char **)field = value;
        return WF_OK;
    }
    errno = 0;
    number = strtod(value, &end);
    if (end == value || *end || errno || !(number > 0) || number > 4096 ||
        (f->kind == FLAG_COUNT && number != (double)(int64_t)number))
        return wf_error_set(error, WF_EINVAL, "%s %s: a %s in (0, 4096] is needed", f->name,
                            value, f->kind == FLAG_COUNT ? "whole number" : "number");
    if (f->kind == FLAG_COUNT)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return WF_OK;
}

wf_status bench_options_parse(const bench_command *command, int argc, char **argv,
                              bench_options *o, wf_error *error)
{
    for (int i = 0; i < argc; i++) {
        const flag *f = find(command, argv[i]);
        bool takes = f && f->kind != FLAG_BOOL;

        if (!f)
            return wf_error_set(error, WF_EINVAL, "%s has no flag %s: see bench %s --help",
                                command->name, argv[i], command->name);
        if (set(f, takes && i + 1 < argc ? argv[i + 1] : NULL, o, error) != WF_OK)
            return error->code;
        i += takes;
    }
    return WF_OK;
}

void bench_options_help(const bench_command *command)
{
    printf("usage: bench %s [FLAG...]\n\n%s\n\n", command->name, command->more);
    if (command->here)
        printf("%s\n\n", command->here());
    for (int i = 0; i < FLAGS; i++) {
        const flag *f = &flags[i];
        char left[64];

        if (!belongs(f, command) || !f->help)
            continue;
        snprintf(left, sizeof left, "%s %s", f->name, f->metavar);
        printf("  %-22s %s\n", left, f->help);
    }
}

bool bench_next_word(const char **list, char *word, size_t size)
{
    size_t length = strcspn(*list, ","), kept = length < size ? length : size - 1;

    if (!**list)
        return false;
    memcpy(word, *list, kept);
    word[kept] = '\0';
    *list += length + ((*list)[length] == ',');
    return true;
}

/* Reads a word as a shape. */
static bool read_shape(const char *word, const bench_shape_rule *rule, int64_t *shape)
{
    for (int i = 0; i < rule->numbers; i++) {
        char *end;

        shape[i] = strtoll(word, &end, 10);
        if (end == word || *end != (i + 1 < rule->numbers ? 'x' : '\0') || shape[i] < 1 ||
            shape[i] > rule->most[i])
            return false;
        word = end + 1;
    }
    return !rule->fits || rule->fits(shape);
}

int bench_shapes(const char *list, const bench_shape_rule *rule,
                 int64_t shapes[BENCH_SHAPES][BENCH_SHAPE], wf_error *error)
{
    char word[96];
    int count = 0;

    for (; bench_next_word(&list, word, sizeof word); count++) {
        if (count == BENCH_SHAPES)
            wf_error_set(error, WF_EINVAL, "more than %d shapes: give fewer at a time",
                         BENCH_SHAPES);
        else if (!read_shape(word, rule, shapes[count]))
            wf_error_set(error, WF_EINVAL, "shape %s is not %s", word, rule->text);
        if (error->code != WF_OK)
            return 0;
    }
    return count;
}
