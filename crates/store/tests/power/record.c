/* Records what a process really does to its files: every write, truncation, sync, creation and removal,
 * in the order in which they happened.
 *
 * It stands between the process and the C library (LD_PRELOAD). It changes nothing: each call is made as
 * it was asked for, and then noted. One lock holds for the call and its note, so that the order of the
 * notes is the order of the calls. Only calls that succeeded are noted, and only files whose path begins
 * with WINDLASS_RECORD_OF, and the folder that they are in. WINDLASS_RECORD_TO says where the notes go.
 *
 * It can also be a disk that fails: while there is a file WINDLASS_RECORD_FAIL, the file whose name stands
 * in it cannot be synced.
 *
 * A note: the kind (1 byte), the length of the file's name (1), the offset (8), the length of the data (4),
 * the name without what all have in common, the data. Numbers are as this machine has them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define FDS_MAX 1024

/* The SQLite library and Rust call these under either name. */
#undef open64
#undef pwrite64
#undef ftruncate64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static const char *prefix;
/* The name of each open file that matters; "/" is the folder. */
static char names[FDS_MAX][32];

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_unlink)(const char *);

static void give_up(const char *why) {
    fprintf(stderr, "the recorder: %s\n", why);
    abort();
}

static void *find(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) give_up(name);
    return found;
}

__attribute__((constructor)) static void begin(void) {
    real_write = find("write");
    real_pwrite = find("pwrite64");
    real_open = find("open64");
    real_close = find("close");
    real_fsync = find("fsync");
    real_fdatasync = find("fdatasync");
    real_ftruncate = find("ftruncate64");
    real_unlink = find("unlink");
    prefix = getenv("WINDLASS_RECORD_OF");
    const char *to = getenv("WINDLASS_RECORD_TO");
    if (!prefix || !to) return;
    record = real_open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (record < 0) give_up("the record cannot be opened");
}

static void put(const void *data, size_t length) {
    const char *at = data;
    while (length > 0) {
        ssize_t done = real_write(record, at, length);
        if (done <= 0) give_up("the record cannot be written");
        at += done;
        length -= (size_t)done;
    }
}

static void note(char kind, const char *name, uint64_t offset, const void *data, uint32_t length) {
    unsigned char head[14];
    head[0] = (unsigned char)kind;
    head[1] = (unsigned char)strlen(name);
    memcpy(head + 2, &offset, 8);
    memcpy(head + 10, &length, 4);
    put(head, sizeof head);
    put(name, head[1]);
    put(data, length);
}

/* The name under which a path is recorded; none if it does not matter. */
static const char *name_of(const char *path) {
    if (record < 0) return NULL;
    size_t length = strlen(prefix);
    if (strncmp(path, prefix, length) == 0) {
        const char *name = path + length;
        if (strlen(name) >= sizeof names[0]) give_up("a name is too long");
        return name;
    }
    const char *end = strrchr(prefix, '/');
    size_t folder = (size_t)(end - prefix);
    return strncmp(path, prefix, folder) == 0 && path[folder] == 0 ? "/" : NULL;
}

/* Open files have a name with a mark before it, so that the empty name is a name. */
static const char *open_name(int fd) {
    if (record < 0 || fd < 0 || fd >= FDS_MAX || names[fd][0] != '+') return NULL;
    return names[fd] + 1;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (!real_open) begin();
    const char *name = name_of(path);
    if (!name) return real_open(path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat found;
    int is_new = stat(path, &found) != 0;
    int fd = real_open(path, flags, mode);
    if (fd >= FDS_MAX) give_up("too many files are open");
    if (fd >= 0) {
        snprintf(names[fd], sizeof names[fd], "+%s", name);
        if (is_new) note('c', name, 0, NULL, 0);
        else if (flags & O_TRUNC) note('t', name, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open(path, flags, mode);
}

int close(int fd) {
    if (!open_name(fd)) return real_close(fd);
    pthread_mutex_lock(&lock);
    names[fd][0] = 0;
    int result = real_close(fd);
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t write(int fd, const void *data, size_t length) {
    const char *name = open_name(fd);
    if (!name) return real_write(fd, data, length);
    pthread_mutex_lock(&lock);
    ssize_t done = real_write(fd, data, length);
    if (done > 0) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        note('w', name, (uint64_t)(end - done), data, (uint32_t)done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    const char *name = open_name(fd);
    if (!name) return real_pwrite(fd, data, length, offset);
    pthread_mutex_lock(&lock);
    ssize_t done = real_pwrite(fd, data, length, offset);
    if (done > 0) note('w', name, (uint64_t)offset, data, (uint32_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) {
    return pwrite(fd, data, length, offset);
}

/* Is this file to fail just now? */
static int is_to_fail(const char *name) {
    const char *path = getenv("WINDLASS_RECORD_FAIL");
    if (!path) return 0;
    int fd = real_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char wanted[32] = {0};
    ssize_t length = read(fd, wanted, sizeof wanted - 1);
    real_close(fd);
    return length >= 0 && strcmp(wanted, name) == 0;
}

static int sync_with(int (*real)(int), int fd) {
    const char *name = open_name(fd);
    if (!name) return real(fd);
    pthread_mutex_lock(&lock);
    int fails = is_to_fail(name);
    if (fails) errno = EIO;
    int result = fails ? -1 : real(fd);
    if (result == 0) note('s', name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) {
    return sync_with(real_fsync, fd);
}

int fdatasync(int fd) {
    return sync_with(real_fdatasync, fd);
}

int ftruncate(int fd, off_t length) {
    const char *name = open_name(fd);
    if (!name) return real_ftruncate(fd, length);
    pthread_mutex_lock(&lock);
    int result = real_ftruncate(fd, length);
    if (result == 0) note('t', name, (uint64_t)length, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate64(int fd, off_t length) {
    return ftruncate(fd, length);
}

int unlink(const char *path) {
    const char *name = name_of(path);
    if (!name) return real_unlink(path);
    pthread_mutex_lock(&lock);
    int result = real_unlink(path);
    if (result == 0) note('u', name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}
