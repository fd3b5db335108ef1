/*
 * tests/parallel/test_output.c - files are written under names that cannot be guessed, and
 * replace names, never what these lead to (core/files/output.h).
 */
#include "core/files/output_internal.h"
#include "tests/harness.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[WF_TEST_FOLDER];

static const char *path_of(const char *name)
{
    static char paths[8][160];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static bool has(const char *name, const char *text)
{
    char read[64] = "";
    FILE *file = fopen(path_of(name), "r");
    size_t n = file ? fread(read, 1, sizeof read - 1, file) : 0;

    if (file)
        fclose(file);
    return n == strlen(text) && strcmp(read, text) == 0;
}

/* Counts the names in the folder. */
static int count(void)
{
    DIR *directory = opendir(folder);
    int n = -2; /* . and .. */

    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n;
}

static wf_status write_it(const char *name, const char *text, wf_error *error)
{
    *error = (wf_error){WF_OK, ""};
    return wf_output_write(path_of(name), text, strlen(text), error);
}

/* The file of that name stays until the new one is whole. */
static void replaced_whole(void)
{
    wf_error error = {WF_OK, ""};
    wf_output *o;
    struct stat s;

    put("a", "old");
    chmod(path_of("a"), 0640);
    o = wf_output_open(path_of("a"), &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    fputs("new", wf_output_stream(o));
    fflush(wf_output_stream(o));
    CU_ASSERT(has("a", "old") && count() == 2);
    CU_ASSERT_EQUAL(wf_output_publish(o, &error), WF_OK);
    CU_ASSERT(has("a", "new") && count() == 1);
    CU_ASSERT(stat(path_of("a"), &s) == 0 && (s.st_mode & 0777) == 0640);
    o = wf_output_open(path_of("a"), &error);
    fputs("never", wf_output_stream(o));
    wf_output_discard(o);
    CU_ASSERT(has("a", "new") && count() == 1);
}

static void links_are_not_followed(void)
{
    wf_error error;
    struct stat s;

    put("victim", "precious");
    CU_ASSERT_EQUAL(symlink("victim", path_of("a")), 0);
    CU_ASSERT_EQUAL(link(path_of("victim"), path_of("b")), 0);
    CU_ASSERT_EQUAL(symlink("nowhere", path_of("c")), 0);
    for (int i = 0; i < 3; i++) {
        const char name[] = {(char)('a' + i), 0};

        CU_ASSERT_EQUAL(write_it(name, "new", &error), WF_OK);
        CU_ASSERT(has(name, "new"));
        CU_ASSERT(lstat(path_of(name), &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 1);
    }
    CU_ASSERT(has("victim", "precious") && access(path_of("nowhere"), F_OK) != 0);
}

static void names_of_other_kinds(void)
{
    wf_error error, other = {WF_OK, ""};
    wf_output_folder *in;
    int reader;
    char text[8] = "";

    mkdir(path_of("a"), 0755);
    CU_ASSERT_EQUAL(write_it("a", "x", &error), WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "it is a directory"));
    CU_ASSERT_EQUAL(write_it("none/a", "x", &error), WF_EIO);
    CU_ASSERT_EQUAL(write_it("a/", "x", &error), WF_EINVAL);
    mkfifo(path_of("pipe"), 0600); /* without a reader it does not wait */
    CU_ASSERT_EQUAL(write_it("pipe", "x", &error), WF_EIO);
    CU_ASSERT_EQUAL(mknod(path_of("socket"), S_IFSOCK | 0600, 0), 0);
    CU_ASSERT_EQUAL(write_it("socket", "x", &error), WF_EIO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "socket"));
    in = wf_output_folder_open(folder, &other);
    CU_ASSERT_PTR_NOT_NULL_FATAL(in);
    for (int i = 0; i < 2; i++) {
        error = (wf_error){WF_OK, ""};
        CU_ASSERT_PTR_NULL(wf_output_open_in(in, i ? "socket" : "pipe", &error));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "it is no regular file"));
    }
    wf_output_folder_close(in);
    CU_ASSERT(unlink(path_of("socket")) == 0 && count() == 2); /* nothing took its name */
    reader = open(path_of("pipe"), O_RDONLY | O_NONBLOCK);
    CU_ASSERT_EQUAL(write_it("pipe", "through", &error), WF_OK);
    CU_ASSERT(read(reader, text, sizeof text) == 7 && memcmp(text, "through", 7) == 0);
    close(reader);
    error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_output_write("/dev/null", "x", 1, &error), WF_OK);
    CU_ASSERT_EQUAL(count(), 2);
}

/* A descriptor's name in /dev is written to where it stands, and nothing of that name is
   made. */
static void descriptors(void)
{
    wf_error error = {WF_OK, ""};
    int fd = open(path_of("a"), O_RDWR | O_CREAT, 0600);
    char name[32];

    CU_ASSERT_EQUAL(write(fd, "one ", 4), 4);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    CU_ASSERT_EQUAL(wf_output_write(name, "two", 3, &error), WF_OK);
    close(fd);
    CU_ASSERT(has("a", "one two") && count() == 1);
    CU_ASSERT_EQUAL(wf_output_write(name, "three", 5, &error), WF_EIO); /* it is closed */
}

/* Those of killed programs go, those of living ones and of other files stay. */
static void partial_files_of_killed_programs(void)
{
    wf_error error = {WF_OK, ""};
    wf_output *alive = wf_output_open(path_of("a"), &error);
    int status;
    pid_t child = fork();

    if (child == 0) {
        wf_output_open(path_of("a"), &error);
        wf_output_open(path_of("b"), &error);
        _exit(0);
    }
    waitpid(child, &status, 0);
    put(".a.0123456789abcde.partial", "a digit is missing");
    CU_ASSERT_EQUAL(count(), 4);
    CU_ASSERT_EQUAL(write_it("a", "x", &error), WF_OK);
    CU_ASSERT_EQUAL(count(), 4); /* one of a is dead, and a is there */
    wf_output_folder_close(wf_output_folder_open(folder, &error));
    CU_ASSERT_EQUAL(count(), 3);
    CU_ASSERT_EQUAL(wf_output_publish(alive, &error), WF_OK);
    CU_ASSERT(has("a", "") && count() == 2);
}

/* Links under names of partial files, and another user's, are left alone. */
static void planted_partial_files(void)
{
    wf_error error;

    put("victim", "precious");
    CU_ASSERT_EQUAL(symlink("victim", path_of(".a.0123456789abcdef.partial")), 0);
    mkdir(path_of(".a.0123456789abcdee.partial"), 0700);
    mkfifo(path_of(".a.0123456789abcded.partial"), 0600);
    CU_ASSERT_EQUAL(write_it("a", "new", &error), WF_OK);
    CU_ASSERT(has("a", "new") && has("victim", "precious"));
    CU_ASSERT_EQUAL(count(), 5);
}

/* A folder like /tmp: another user's file cannot be replaced there, which is said at the
   start. */
static void another_users_file(void)
{
    wf_error error;
    int status;
    pid_t child;

    if (geteuid() != 0) {
        printf("(skipped: this test is run by root alone) ");
        return;
    }
    chmod(folder, 01777);
    put("a", "root's");
    child = fork();
    if (child == 0) {
        bool good = setuid(65534) == 0 && write_it("a", "mine", &error) == WF_EIO &&
                    strstr(error.text, "another user's") != NULL &&
                    write_it("b", "mine", &error) == WF_OK;

        _exit(good ? 0 : 1);
    }
    waitpid(child, &status, 0);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CU_ASSERT(has("a", "root's") && has("b", "mine"));
    chmod(folder, 0700);
}

static void sets(void)
{
    static const char *const stale[] = {"old", "none"};
    wf_error error = {WF_OK, ""};
    wf_output *o[2];

    put("a", "1");
    put("b", "1");
    put("old", "1");
    for (int i = 0; i < 2; i++) {
        o[i] = wf_output_open(path_of(i ? "b" : "a"), &error);
        fputs("2", wf_output_stream(o[i]));
    }
    CU_ASSERT_EQUAL(wf_output_publish_set(o, 2, stale, 2, &error), WF_OK);
    CU_ASSERT(has("a", "2") && has("b", "2") && count() == 2);
    o[0] = wf_output_open(path_of("a"), &error);
    o[1] = wf_output_open(path_of("b"), &error);
    CU_ASSERT_PTR_NOT_NULL(freopen("/dev/full", "w", wf_output_stream(o[0])));
    fputs("3", wf_output_stream(o[0]));
    CU_ASSERT_EQUAL(wf_output_publish_set(o, 2, NULL, 0, &error), WF_EIO);
    CU_ASSERT(has("a", "2") && has("b", "2") && count() == 2);
}

static void fingerprints(void)
{
    static char block[1 << 16];
    wf_error error = {WF_OK, ""};
    uint64_t first, again, other;
    int fd = open(path_of("a"), O_RDWR | O_CREAT, 0600);

    for (int i = 0; i < 100; i++)
        CU_ASSERT_EQUAL(write(fd, block, sizeof block), sizeof block);
    CU_ASSERT_EQUAL(wf_output_fingerprint(fd, "a", &first, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_output_fingerprint(fd, "a", &again, &error), WF_OK);
    CU_ASSERT_EQUAL(first, again);
    for (int i = 0; i < 2; i++) { /* the first byte, and the last */
        CU_ASSERT_EQUAL(pwrite(fd, "x", 1, i ? 100 * (1 << 16) - 1 : 0), 1);
        CU_ASSERT_EQUAL(wf_output_fingerprint(fd, "a", &other, &error), WF_OK);
        CU_ASSERT_NOT_EQUAL(first, other);
        first = other;
    }
    CU_ASSERT_EQUAL(ftruncate(fd, 100 * (1 << 16) - 1), 0);
    CU_ASSERT_EQUAL(wf_output_fingerprint(fd, "a", &other, &error), WF_OK);
    CU_ASSERT_NOT_EQUAL(first, other);
    close(fd);
}

/* Returns true where a folder is trusted, or an error of these words says why it is not. */
static bool trusts(const char *name, const char *words)
{
    wf_error error = {WF_OK, ""};
    int fd = wf_own_folder_open(path_of(name), false, &error);

    if (fd >= 0)
        close(fd);
    if (words && !strstr(error.text, words))
        printf("\n    \"%s\", which should say \"%s\"\n", error.text, words);
    return words ? fd < 0 && error.code == WF_EIO && strstr(error.text, words) : fd >= 0;
}

static void folders_that_are_not_trusted(void)
{
    wf_error error = {WF_OK, ""};
    struct stat s;
    int fd;

    CU_ASSERT_EQUAL(wf_own_folder_open(path_of("a"), false, &error), -1);
    CU_ASSERT_EQUAL(error.code, WF_OK); /* there is none */
    fd = wf_own_folder_open(path_of("a"), true, &error);
    CU_ASSERT(fd >= 0 && fstat(fd, &s) == 0 && (s.st_mode & 0777) == 0700);
    close(fd);
    CU_ASSERT(trusts("a", NULL));
    CU_ASSERT_EQUAL(symlink("a", path_of("b")), 0);
    CU_ASSERT(trusts("b", "it is a symbolic link, and is not followed"));
    CU_ASSERT_EQUAL(wf_own_folder_open(path_of("b"), true, &error), -1);
    chmod(path_of("a"), 0770);
    CU_ASSERT(trusts("a", "it is writable for other users"));
    chmod(path_of("a"), 01777);
    CU_ASSERT(trusts("a", "it is writable for other users"));
    chmod(path_of("a"), 0755);
    CU_ASSERT(trusts("a", NULL));
    put("file", "x");
    CU_ASSERT(trusts("file", "Not a directory"));
    if (geteuid() == 0) {
        CU_ASSERT_EQUAL(chown(path_of("a"), 65534, 65534), 0);
        CU_ASSERT(trusts("a", "it is another user's"));
    } else {
        printf("(another user's: skipped, which root alone can make) ");
    }
}

static bool trusts_file(const char *name, const char *words)
{
    wf_error error = {WF_OK, ""};
    wf_file file;
    wf_status status =
        wf_file_open(&file, &wf_system_files, path_of(name), WF_FILE_READ_OWN, &error);

    if (status == WF_OK)
        wf_file_close(&file, NULL);
    if (words && !strstr(error.text, words))
        printf("\n    \"%s\", which should say \"%s\"\n", error.text, words);
    return words ? status == WF_EIO && strstr(error.text, words) : status == WF_OK;
}

static void files_that_are_not_trusted(void)
{
    put("a", "x");
    CU_ASSERT(trusts_file("a", NULL));
    CU_ASSERT_EQUAL(symlink("a", path_of("b")), 0);
    CU_ASSERT(trusts_file("b", "cannot open"));
    CU_ASSERT_EQUAL(link(path_of("a"), path_of("c")), 0);
    CU_ASSERT(trusts_file("a", "it is a file that has other names too"));
    unlink(path_of("c"));
    chmod(path_of("a"), 0646);
    CU_ASSERT(trusts_file("a", "it is writable for other users"));
    chmod(path_of("a"), 0644);
    mkfifo(path_of("pipe"), 0600);
    CU_ASSERT(trusts_file("pipe", "it is no regular file"));
    if (geteuid() == 0) {
        CU_ASSERT_EQUAL(chown(path_of("a"), 65534, 65534), 0);
        CU_ASSERT(trusts_file("a", "it is another user's"));
    } else {
        printf("(another user's: skipped, which root alone can make) ");
    }
}

static void (*body)(void);

/* Each test has a folder of its own. */
#define IN_A_FOLDER(test)                                                                      \
    static void in_##test(void)                                                                \
    {                                                                                          \
        wf_test_new_folder(folder);                                                            \
        body = test;                                                                           \
        body();                                                                                \
        wf_test_remove(folder);                                                                \
    }
IN_A_FOLDER(replaced_whole)
IN_A_FOLDER(links_are_not_followed)
IN_A_FOLDER(names_of_other_kinds)
IN_A_FOLDER(descriptors)
IN_A_FOLDER(partial_files_of_killed_programs)
IN_A_FOLDER(planted_partial_files)
IN_A_FOLDER(another_users_file)
IN_A_FOLDER(sets)
IN_A_FOLDER(fingerprints)
IN_A_FOLDER(folders_that_are_not_trusted)
IN_A_FOLDER(files_that_are_not_trusted)

static const wf_test tests[] = {
    {"a file is replaced when it is whole", in_replaced_whole},
    {"links are not followed", in_links_are_not_followed},
    {"names of other kinds", in_names_of_other_kinds},
    {"descriptors", in_descriptors},
    {"partial files of killed programs", in_partial_files_of_killed_programs},
    {"planted partial files", in_planted_partial_files},
    {"another user's file", in_another_users_file},
    {"sets", in_sets},
    {"fingerprints", in_fingerprints},
    {"folders that are not trusted", in_folders_that_are_not_trusted},
    {"files that are not trusted", in_files_that_are_not_trusted},
    {NULL, NULL}};

int main(void)
{
    return wf_test_main("output", tests);
}
