/* mesh/health/private_names.c - sockets and locks in a folder of this user's alone: see the
   header. */
#include "mesh/health/private_names_internal.h"
#include "mesh/transport/launcher_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { STALE_S = 24 * 3600 };

static int folder = -1;

/* ---- the folder ---- */

/* Opens a folder where it is this user's alone; -1, and why not. */
static int open_private(const char *path, char *why, size_t room)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat s;

    if (fd < 0 || fstat(fd, &s) != 0 || faccessat(AT_FDCWD, path, W_OK | X_OK, 0) != 0)
        snprintf(why, room, "%s: %s", path, strerror(errno));
    else if (s.st_uid != geteuid())
        snprintf(why, room, "%s belongs to user %u", path, (unsigned)s.st_uid);
    else if (s.st_mode & (S_IRWXG | S_IRWXO))
        snprintf(why, room, "%s has mode %03o: others may enter it", path,
                 (unsigned)s.st_mode & 0777);
    else
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int make_private(const char *in, char *why, size_t room)
{
    char path[48];

    snprintf(path, sizeof path, "%s/weft-%u", in, (unsigned)geteuid());
    if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST) {
        snprintf(why, room, "%s: %s", path, strerror(errno));
        return -1;
    }
    return open_private(path, why, room);
}

/* Returns true for a name under which no process listens, or which none has locked, for a
   day. */
static bool is_stale(int in, const char *name)
{
    struct stat s;
    pid_t pid;
    int fd = -1;

    if (strncmp(name, "weft-", 5) != 0 || strlen(name) >= WF_NAME_BYTES ||
        fstatat(in, name, &s, AT_SYMLINK_NOFOLLOW) != 0 || time(NULL) - s.st_mtime < STALE_S)
        return false;
    if (S_ISREG(s.st_mode))
        return !wf_names_is_locked(name);
    fd = S_ISSOCK(s.st_mode) ? wf_names_connect(name, &pid) : -1;
    if (fd >= 0)
        close(fd);
    return S_ISSOCK(s.st_mode) && fd < 0;
}

/* Removes what killed processes have left in a folder that no launcher removes. */
static void remove_stale(void)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);

    for (struct dirent *e; all && (e = readdir(all));)
        if (is_stale(folder, e->d_name))
            unlinkat(folder, e->d_name, 0);
    if (all)
        closedir(all);
    else if (fd >= 0)
        close(fd);
}

bool wf_names_open(char *why, size_t room)
{
    static const char *const variable[] = {"PMIX_SERVER_TMPDIR", "XDG_RUNTIME_DIR"};
    static const char *const shared[] = {"/dev/shm", "/tmp"};

    *why = '\0';
    for (int i = 0; folder < 0 && i < 2; i++)
        if (getenv(variable[i]))
            folder = open_private(getenv(variable[i]), why, room);
    for (int i = 0; folder < 0 && i < 2; i++) {
        folder = make_private(shared[i], why, room);
        if (folder >= 0)
            remove_stale();
    }
    return folder >= 0;
}

/* ---- names ---- */

/* Simulated hosts and containers may share a file system: a host is its name and its
   network. */
bool wf_names_job(char *name, size_t room)
{
    uint64_t hash = 14695981039346656037u;
    char job[40], host[256] = "", all[384];
    struct stat network = {0};
    bool any = wf_launcher_job(job, sizeof job);

    gethostname(host, sizeof host - 1);
    stat("/proc/self/ns/net", &network);
    snprintf(all, sizeof all, "%s %s %ju", job, host, (uintmax_t)network.st_ino);
    for (const char *c = all; *c; c++)
        hash = (hash ^ (uint64_t)(unsigned char)*c) * 1099511628211u;
    snprintf(name, room, "weft-%016" PRIx64, hash);
    return any;
}

/* Makes the address of a name by way of the folder's descriptor: a path of any length fits, and
   leads nowhere else. */
static socklen_t address_of(struct sockaddr_un *a, const char *name)
{
    int length;

    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    length = snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/%.64s", folder, name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length + 1);
}

static int socket_new(void)
{
    return folder < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Connects to any process that listens on a name. */
static int connect_to(const char *name)
{
    struct sockaddr_un a;
    socklen_t length = address_of(&a, name);
    int fd = socket_new();

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, length) != 0) {
        int failure = errno;

        close(fd);
        errno = failure;
        return -1;
    }
    return fd;
}

int wf_names_listen(const char *name)
{
    struct sockaddr_un a;
    socklen_t length = address_of(&a, name);
    int fd = socket_new(), other, bound = -1;

    if (fd < 0)
        return -1;
    bound = bind(fd, (const struct sockaddr *)&a, length);
    if (bound != 0 && errno == EADDRINUSE) {
        other = connect_to(name);
        if (other >= 0)
            close(other);
        if (other < 0 && errno == ECONNREFUSED) {
            wf_names_remove(name);
            bound = bind(fd, (const struct sockaddr *)&a, length);
        } else {
            errno = EADDRINUSE;
        }
    }
    if (bound == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    other = errno;
    close(fd);
    errno = other;
    return -1;
}

bool wf_names_is_peer(int fd, pid_t *pid)
{
    struct ucred who = {0};
    socklen_t size = sizeof who;
    bool good = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
                size == sizeof who && who.uid == geteuid();

    *pid = good ? who.pid : 0;
    return good;
}

int wf_names_connect(const char *name, pid_t *pid)
{
    int fd = connect_to(name);

    *pid = 0;
    if (fd >= 0 && !wf_names_is_peer(fd, pid)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Locks belong to what was opened, which the fd holder keeps open for a moment. */
static struct flock whole_file(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

int wf_names_lock(const char *name)
{
    struct flock lock = whole_file();
    int fd = folder < 0 ? -1
                        : openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                                 S_IRUSR | S_IWUSR);

    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        int failure = errno == EACCES ? EAGAIN : errno;

        close(fd);
        errno = failure;
        return -1;
    }
    return fd;
}

bool wf_names_is_locked(const char *name)
{
    struct flock lock = whole_file();
    int fd = folder < 0 ? -1 : openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool locked = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;

    if (fd >= 0)
        close(fd);
    return locked;
}

void wf_names_remove(const char *name)
{
    if (folder >= 0)
        unlinkat(folder, name, 0);
}
