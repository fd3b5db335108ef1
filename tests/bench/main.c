/*
 * tests/bench/main.c - bench: how close Weft comes to the limits of this machine and to the
 * libraries on it. `bench --help` lists the subcommands; each is a file of this folder.
 */
#include "tests/bench/bench.h"
#include "apps/program.h"
#include <stdio.h>
#include <string.h>

static const bench_command *const commands[] = {
    &bench_gemm,   &bench_decode,   &bench_cached,     &bench_attention,
    &bench_step,   &bench_pipeline, &bench_comm,       &bench_dispatch,
    &bench_memory, &bench_init,     &bench_checkpoint, &bench_experts,
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(void)
{
    printf("usage: bench COMMAND [--json] [--quick] [--threads N] [--seconds S] ...\n\n"
           "How close Weft comes to this machine's limits, and to other libraries, which\n"
           "are measured in the same run and take turns with it. Figures are medians.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf(
        "\nbench COMMAND --help says more, bench --version what is built in. For example:\n\n"
        "  bench gemm --shapes 1024x768x3072 --forms NN\n"
        "  bench step --model demo --layouts 1x1t2,2x1,1x2,8x4,8x4sp\n"
        "  bench comm --json > comm.jsonl\n");
}

static const bench_command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

/* Describes the machine and the settings of all figures. */
static wf_status describe(const bench_options *o, bench_report *report, wf_error *error)
{
    wf_topology machine;
    char text[256];

    if (wf_topology_read(NULL, &machine, error) != WF_OK)
        return error->code;
    bench_note(report, "%s; multiply-add in %s%s",
               wf_topology_print(&machine, text, sizeof text), bench_fma_name(),
               o->quick ? "; quick: a try, no figures" : "");
    return WF_OK;
}

int main(int argc, char **argv)
{
    const bench_command *command = argc > 1 ? find(argv[1]) : NULL;
    bench_options options = {.self = argv[0]};
    bench_report report = {.command = command ? command->name : ""};
    wf_error error = {WF_OK, ""};
    wf_topology machine;
    wf_status status;

    app_program_begin();
    if (app_program_version_asked("bench", argc, argv))
        return app_program_end("bench", 0);
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        help();
        return app_program_end("bench", 0);
    }
    if (!command) {
        fprintf(stderr, "bench: %s%s; bench --help lists them\n",
                argc > 1 ? "there is no command " : "it takes a command",
                argc > 1 ? argv[1] : "");
        return 2;
    }
    status = bench_options_parse(command, argc - 2, argv + 2, &options, &error);
    if (status == WF_OK && options.help) {
        bench_options_help(command);
        return app_program_end("bench", 0);
    }
    report.json = options.json;
    if (status == WF_OK)
        status = wf_topology_read(NULL, &machine, &error);
    options.cores = status == WF_OK ? machine.cores : 1;
    if (status == WF_OK && !options.mpi_child)
        status = describe(&options, &report, &error);
    if (status == WF_OK)
        status = command->run(&options, &report, &error);
    if (status != WF_OK)
        fprintf(stderr, "bench %s: %s\n", command->name, error.text);
    return status == WF_OK ? app_program_end("bench", 0) : status == WF_EINVAL ? 2 : 1;
}
