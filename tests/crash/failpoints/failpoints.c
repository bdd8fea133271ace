// Preloaded into a store's process, for the log's segments: at the N-th call of one kind on one
// kind of file it ends the process, lets the call fail, or lets it do half of its work.
//
//   FAILPOINT_CALL  open, fallocate, write, sync or rename
//   FAILPOINT_FILE  what the path below FAILPOINT_ROOT must contain
//   FAILPOINT_NTH   counts from 1
//   FAILPOINT_DOES  before, after: exit with 9 there; short: half a write; else an errno
//   FAILPOINT_TIMES how many calls from then on fail
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAPPED_MAX 4096
#define REAL(name) ((typeof(&name)) dlsym(RTLD_NEXT, #name))

enum does { NOTHING, BEFORE, AFTER, SHORT, FAILS };

static struct { char *start, *end; int wanted; } mapped[MAPPED_MAX];
static atomic_int calls;

static int wanted_path(const char *path)
{
    const char *root = getenv("FAILPOINT_ROOT"), *file = getenv("FAILPOINT_FILE");
    char whole[PATH_MAX];
    if (root == NULL || file == NULL || path == NULL)
        return 0;
    if (path[0] != '/') {
        size_t used = getcwd(whole, sizeof whole) == NULL ? 0 : strlen(whole);
        snprintf(whole + used, sizeof whole - used, "/%s", path);
        path = whole;
    }
    return strncmp(path, root, strlen(root)) == 0 && strstr(path + strlen(root), file) != NULL;
}

static int wanted_file(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return wanted_path(path);
}

static enum does meet(const char *call, int wanted)
{
    const char *here = getenv("FAILPOINT_CALL"), *does = getenv("FAILPOINT_DOES");
    if (!wanted || here == NULL || does == NULL || strcmp(here, call) != 0)
        return NOTHING;
    int number = atomic_fetch_add(&calls, 1) + 1 - atoi(getenv("FAILPOINT_NTH"));
    const char *times = getenv("FAILPOINT_TIMES");
    if (number < 0 || number >= (times == NULL ? 1 : atoi(times)))
        return NOTHING;
    if (strcmp(does, "before") == 0)
        _exit(9);
    if (strcmp(does, "after") == 0)
        return AFTER;
    if (strcmp(does, "short") == 0)
        return SHORT;
    errno = atoi(does);
    return FAILS;
}

static long done(enum does met, long result)
{
    if (met == AFTER)
        _exit(9);
    return result;
}

#define PASS(kind, wanted, name, ...)                                     \
    do {                                                                  \
        enum does met = meet(kind, wanted);                               \
        return met == FAILS ? -1 : done(met, REAL(name)(__VA_ARGS__));    \
    } while (0)

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    PASS("open", (flags & O_CREAT) && wanted_path(path), open64, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    PASS("open", (flags & O_CREAT) && wanted_path(path), open, path, flags, mode);
}

#define WRITES(name, ...)                                                                      \
    {                                                                                          \
        enum does met = meet("write", wanted_file(fd));                                        \
        if (met == SHORT && length > 1)                                                        \
            length /= 2;                                                                       \
        return met == FAILS ? -1 : done(met, REAL(name)(fd, data, length, ##__VA_ARGS__));     \
    }

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) WRITES(pwrite, at)
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) WRITES(pwrite64, at)
ssize_t write(int fd, const void *data, size_t length) WRITES(write)

int fsync(int fd) { PASS("sync", wanted_file(fd), fsync, fd); }
int fdatasync(int fd) { PASS("sync", wanted_file(fd), fdatasync, fd); }

int fallocate(int fd, int mode, off_t at, off_t length)
{
    PASS("fallocate", wanted_file(fd), fallocate, fd, mode, at, length);
}

int fallocate64(int fd, int mode, off64_t at, off64_t length)
{
    PASS("fallocate", wanted_file(fd), fallocate64, fd, mode, at, length);
}

int rename(const char *from, const char *to)
{
    PASS("rename", wanted_path(from) || wanted_path(to), rename, from, to);
}

static void *remember(void *at, size_t length, int fd)
{
    for (int i = 0; at != MAP_FAILED && fd >= 0 && i < MAPPED_MAX; i++)
        if (mapped[i].start == NULL || mapped[i].start == at) {
            mapped[i].start = at;
            mapped[i].end = (char *) at + length;
            mapped[i].wanted = wanted_file(fd);
            break;
        }
    return at;
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    return remember(REAL(mmap)(at, length, protection, flags, fd, offset), length, fd);
}

void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset)
{
    return remember(REAL(mmap64)(at, length, protection, flags, fd, offset), length, fd);
}

int msync(void *at, size_t length, int flags)
{
    int wanted = 0;
    for (int i = 0; i < MAPPED_MAX && mapped[i].start != NULL; i++)
        if (mapped[i].start <= (char *) at && (char *) at < mapped[i].end)
            wanted = mapped[i].wanted;
    PASS("sync", wanted, msync, at, length, flags);
}
