/*
 * tests/mesh/test_private_names.c - names by which a host's processes find each other: which
 * folders they are in, who gets one that is taken, and what a killed process leaves.
 */
#include "mesh/health/private_names_internal.h"
#include "tests/harness.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[WF_TEST_FOLDER];

static const char *in_top(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", top, name);
    return path;
}

/* The folder of names is opened once in a process, so each case has one. Returns what `body`
   returns. */
static int in_a_child(int (*body)(void), const char *folder)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        unsetenv("PMIX_SERVER_TMPDIR");
        setenv("XDG_RUNTIME_DIR", in_top(folder), 1);
        _exit(body());
    }
    CU_ASSERT(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Returns 1 where a name is made in the folder, 2 where it is made elsewhere, 0 where it is
   not. */
static int where_it_goes(void)
{
    char why[128], path[256];
    int fd = wf_names_open(why, sizeof why) ? wf_names_listen("weft-test-where") : -1;
    struct stat s;
    int result;

    if (fd < 0)
        return 0;
    snprintf(path, sizeof path, "%s/weft-test-where", getenv("XDG_RUNTIME_DIR"));
    result = stat(path, &s) == 0 && S_ISSOCK(s.st_mode) ? 1 : 2;
    wf_names_remove("weft-test-where");
    return result;
}

static void folders(void)
{
    CU_ASSERT(mkdir(in_top("good"), 0700) == 0);
    CU_ASSERT(mkdir(in_top("open"), 0700) == 0 && chmod(in_top("open"), 0755) == 0);
    CU_ASSERT(symlink("good", in_top("link")) == 0);
    CU_ASSERT_EQUAL(in_a_child(where_it_goes, "good"), 1);
    CU_ASSERT_EQUAL(in_a_child(where_it_goes, "open"), 2);
    CU_ASSERT_EQUAL(in_a_child(where_it_goes, "link"), 2);
    CU_ASSERT_EQUAL(in_a_child(where_it_goes, "absent"), 2);
    if (geteuid() != 0)
        return;
    CU_ASSERT(mkdir(in_top("other"), 0700) == 0 && chown(in_top("other"), 65534, 0) == 0);
    CU_ASSERT_EQUAL(in_a_child(where_it_goes, "other"), 2);
}

/* Leaves a name as a killed process does. */
static int leave_a_name(void)
{
    char why[128];

    return wf_names_open(why, sizeof why) && wf_names_listen("weft-test") >= 0;
}

#define CHECK(condition)                                                                       \
    if (!(condition))                                                                          \
        return __LINE__ % 250 + 1;

static int take_names(void)
{
    char why[128], word = 0;
    pid_t pid;
    int fd, client, host;

    CHECK(wf_names_open(why, sizeof why));
    CHECK(wf_names_connect("weft-test", &pid) < 0 && errno == ECONNREFUSED);
    CHECK((fd = wf_names_listen("weft-test")) >= 0); /* in place of the killed one's */
    CHECK(wf_names_listen("weft-test") < 0 && errno == EADDRINUSE);
    CHECK((client = wf_names_connect("weft-test", &pid)) >= 0 && pid == getpid());
    CHECK((host = accept(fd, NULL, NULL)) >= 0 &&
          close(host) == 0); /* to see whether it is taken */
    CHECK((host = accept(fd, NULL, NULL)) >= 0 && wf_names_is_peer(host, &pid));
    CHECK(pid == getpid() && send(client, "w", 1, 0) == 1 && recv(host, &word, 1, 0) == 1);
    close(fd);
    CHECK(wf_names_connect("weft-test", &pid) < 0);
    return 0;
}

static int lock_names(void)
{
    char why[128];
    int fd, status;
    pid_t child;

    CHECK(wf_names_open(why, sizeof why));
    CHECK(!wf_names_is_locked("weft-lock"));
    CHECK((fd = wf_names_lock("weft-lock")) >= 0);
    child = fork();
    if (child == 0) { /* it has what its parent has opened; what it opens itself is another's */
        int mine;

        CHECK(wf_names_is_locked("weft-lock"));
        mine = wf_names_lock("weft-lock");
        _exit(mine < 0 && errno == EAGAIN ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(fd);
    CHECK(!wf_names_is_locked("weft-lock"));
    CHECK(wf_names_lock("weft-lock") >= 0);
    return 0;
}

static void names(void)
{
    CU_ASSERT(mkdir(in_top("names"), 0700) == 0);
    CU_ASSERT_EQUAL(in_a_child(leave_a_name, "names"), 1);
    CU_ASSERT_EQUAL(in_a_child(take_names, "names"), 0);
    CU_ASSERT_EQUAL(in_a_child(lock_names, "names"), 0);
}

int main(void)
{
    static const wf_test tests[] = {{"folders", folders}, {"names", names}, {NULL, NULL}};

    wf_test_new_folder(top);
    return wf_test_main("private_names", tests);
}
