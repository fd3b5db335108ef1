/* apps/program.c - see the header. */
#include "apps/program.h"
#include "apps/commit.h" /* made by cmake/commit.cmake */
#include "core/plugin.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { CANNOT_WRITE = 3 };

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

void app_program_begin(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) /* open takes the lowest that is free */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    signal(SIGXFSZ, SIG_IGN);
    app_program_flags();
}

/* Prints those that can be loaded here: a package or a wheel may lack what its build had. */
static void print_plugins(FILE *out)
{
    static const char *const plugins[] = {"mpi", "cuda", "nccl"};
    int found = 0;

    fprintf(out, "built in: threads, cpu; plugins here: ");
    for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
        if (wf_plugin_is_here(plugins[i]))
            fprintf(out, "%s%s", found++ ? ", " : "", plugins[i]);
    fprintf(out, "%s\n", found ? "" : "none");
}

void app_program_version(FILE *out, const char *name)
{
    fprintf(out, "%s of Weft %s, commit %s\n", name, WEFT_VERSION,
            *WEFT_COMMIT ? WEFT_COMMIT : "unknown");
    fprintf(out, "compiled by %s, %s%s%s\n", COMPILER, WEFT_BUILD_TYPE,
            *WEFT_SANITIZER ? " with sanitizers: " : "", WEFT_SANITIZER);
    print_plugins(out);
}

void app_program_job(wf_job *job)
{
    wf_job_add(job, "version", "%s, commit %s", WEFT_VERSION,
               *WEFT_COMMIT ? WEFT_COMMIT : "unknown");
    wf_job_add(job, "compiled by", "%s, %s", COMPILER, WEFT_BUILD_TYPE);
}

bool app_program_version_asked(const char *name, int argc, char **argv)
{
    bool asked = argc > 1 && strcmp(argv[1], "--version") == 0;

    if (asked)
        app_program_version(stdout, name);
    return asked;
}

int app_program_end(const char *name, int status)
{
    bool before = ferror(stdout) != 0, now = fflush(stdout) != 0;

    if (!before && !now)
        return status;
    if (!now || errno != EPIPE) /* a reader that has seen enough */
        fprintf(stderr, "%s: cannot write standard output%s%s\n", name, now ? ": " : "",
                now ? strerror(errno) : "");
    return CANNOT_WRITE;
}
