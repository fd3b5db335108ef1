/*
 * tests/parallel/test_memory_limits.c - limits of memory as machines state them: groups of both
 * versions, those above, containers, page cache and swap, in folders made up here; and ulimit.
 */
#include "parallel/report/memory_limits.h"
#include "tests/harness.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GIB = 1 << 30 };

static char root[WF_TEST_FOLDER];

/* A file below the root, with its folders. */
static void put(const char *path, const char *text)
{
    char full[PATH_MAX];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(full, 0700);
        *at = '/';
    }
    f = fopen(full, "w");
    CU_ASSERT_FATAL(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void begin(void)
{
    wf_test_new_folder(root);
    put("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 33554432 kB\nSwapFree: 1048576 kB\n");
    put("/proc/self/status", "Name:\ta\nVmSize:\t1048576 kB\nVmData:\t524288 kB\n");
}

static void end(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -r %s", root);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* Room in GiB by name, -1 where there is no such limit. */
static double room(const char *name)
{
    wf_memory_limit limit[WF_MEMORY_LIMITS];
    int n = wf_memory_limits(root, limit);

    for (int i = 0; i < n; i++)
        if (strcmp(limit[i].name, name) == 0)
            return limit[i].room / GIB;
    return -1;
}

static const char both[] =
    "25 1 0:1 / / rw - ext4 /dev/sda rw\n"
    "31 25 0:29 / /groups/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "32 25 0:30 / /groups/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "41 25 0:38 / /groups/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";

static void second_version(void)
{
    begin();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/proc/self/mountinfo", both);
    put("/groups/unified/a/b/memory.max", "max\n");
    put("/groups/unified/a/memory.max", "8589934592\n"); /* 8 GiB, 3 in use, 2 of them cache */
    put("/groups/unified/a/memory.current", "3221225472\n");
    put("/groups/unified/a/memory.stat", "anon 1073741824\nfile 2147483648\nshmem 0\n");
    put("/groups/unified/a/memory.swap.max", "0\n");
    CU_ASSERT_EQUAL(room("memory.max of control group /a/b"), -1);
    CU_ASSERT_EQUAL(room("memory.max of control group /a"), 7);
    CU_ASSERT_EQUAL(room("this machine's available memory"), 33); /* swap included */
    put("/groups/unified/a/b/memory.max", "1073741824\n"); /* no word of what is in use; swap */
    CU_ASSERT_EQUAL(room("memory.max of control group /a/b"), 2);
    put("/groups/unified/a/memory.current", "11811160064\n"); /* more than it may */
    CU_ASSERT_EQUAL(room("memory.max of control group /a"), 0);
    end();
}

static void first_version(void)
{
    begin();
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/job\n3:cpu,cpuacct:/x\n0::/\n");
    put("/proc/self/mountinfo", both);
    put("/groups/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    put("/groups/memory/job/memory.limit_in_bytes", "4294967296\n");
    put("/groups/memory/job/memory.usage_in_bytes", "2147483648\n");
    put("/groups/memory/job/memory.stat",
        "cache 1\ntotal_cache 1073741824\ntotal_shmem 536870912\n");
    CU_ASSERT_EQUAL(room("memory.limit_in_bytes of control group /"), -1);
    CU_ASSERT_EQUAL(room("memory.limit_in_bytes of control group /job"), 3.5); /* 1 of swap */
    put("/groups/memory/job/memory.memsw.limit_in_bytes", "4294967296\n"); /* memory and swap */
    put("/groups/memory/job/memory.memsw.usage_in_bytes", "2147483648\n");
    CU_ASSERT_EQUAL(room("memory.limit_in_bytes of control group /job"), 2.5);
    end();
}

/* A container that sees its group by the host's name, one that is mounted elsewhere, and
   nothing. */
static void containers(void)
{
    begin();
    put("/proc/self/cgroup", "0::/docker/0123/inner\n");
    put("/proc/self/mountinfo", "9 1 0:1 /docker/0123 /sys/g rw - cgroup2 none rw\n");
    put("/sys/g/memory.max", "2147483648\n");
    put("/sys/g/inner/memory.max", "1073741824\n");
    CU_ASSERT_EQUAL(room("memory.max of control group /"), 3);
    CU_ASSERT_EQUAL(room("memory.max of control group /inner"), 2);
    put("/proc/self/cgroup", "0::/../elsewhere\n");
    CU_ASSERT_EQUAL(room("memory.max of control group /"), 3);
    put("/proc/self/mountinfo", "9 1 0:1 /docker/0 /sys/g rw - cgroup2 none rw\n");
    put("/proc/self/cgroup", "0::/docker/0123\n"); /* not below /docker/0 */
    CU_ASSERT_EQUAL(room("memory.max of control group /"), 3);
    put("/proc/self/mountinfo", "");
    CU_ASSERT_EQUAL(room("memory.max of control group /"), -1);
    put("/proc/self/cgroup", "nonsense\n::\n:\n\n");
    CU_ASSERT_EQUAL(room("this machine's available memory"), 33);
    put("/proc/meminfo", "MemTotal: 9 kB\n");
    CU_ASSERT_EQUAL(room("this machine's available memory"), -1);
    end();
}

/* 1: all that a launcher has started share the limit; 0: this process alone; -1: no such
   limit. */
static int shared(const char *name)
{
    wf_memory_limit limit[WF_MEMORY_LIMITS];
    int n = wf_memory_limits(root, limit);

    for (int i = 0; i < n; i++)
        if (strcmp(limit[i].name, name) == 0)
            return limit[i].shared;
    return -1;
}

/* A group that the launcher is in too, one of this process, and a launcher that cannot be
   seen. */
static void groups_of_several_processes(void)
{
    begin();
    put("/proc/self/status", "PPid:\t77\n");
    put("/proc/self/cgroup", "4:memory:/job/task_0\n0::/x\n");
    put("/proc/self/mountinfo", both);
    put("/groups/memory/job/memory.limit_in_bytes", "4294967296\n");
    put("/groups/memory/job/task_0/memory.limit_in_bytes", "4294967296\n");
    put("/groups/unified/x/memory.max", "4294967296\n");
    CU_ASSERT_EQUAL(shared("memory.limit_in_bytes of control group /job"), 0);
    put("/proc/77/cgroup", "4:memory:/job/step\n0::/xx\n");
    CU_ASSERT_EQUAL(shared("memory.limit_in_bytes of control group /job"), 1);
    CU_ASSERT_EQUAL(shared("memory.limit_in_bytes of control group /job/task_0"), 0);
    CU_ASSERT_EQUAL(shared("memory.max of control group /x"), 0);
    put("/proc/77/cgroup", "0::/x\n4:memory:/job/task_0\n");
    CU_ASSERT_EQUAL(shared("memory.limit_in_bytes of control group /job/task_0"), 1);
    CU_ASSERT_EQUAL(shared("memory.max of control group /x"), 1);
    CU_ASSERT_EQUAL(shared("this machine's available memory"), 1);
    end();
}

/* In a child, which keeps them. */
static void limits_of_the_process(void)
{
    int status = -1;
    pid_t child;

    begin();
    fflush(NULL);
    child = fork();
    if (child == 0) {
        struct rlimit l;
        bool good = getrlimit(RLIMIT_DATA, &l) == 0;

        l.rlim_cur = l.rlim_max < (rlim_t)8 * GIB ? l.rlim_max : (rlim_t)8 * GIB;
        good = good && setrlimit(RLIMIT_DATA, &l) == 0 &&
               room("RLIMIT_DATA (ulimit -d)") == (double)l.rlim_cur / GIB - 0.5;
        _exit(good ? 0 : 1);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    end();
}

static const wf_test tests[] = {{"version 2, groups above, cache and swap", second_version},
                                {"version 1", first_version},
                                {"containers, and what cannot be read", containers},
                                {"groups of several processes", groups_of_several_processes},
                                {"limits of the process", limits_of_the_process},
                                {NULL, NULL}};

int main(void)
{
    return wf_test_main("memory_limits", tests);
}
