// A disk that can lose its power or fail, laid under a process by LD_PRELOAD.
//
// Of each file below DISK_DIRECTORY, every write since its last sync is noted in DISK_NOTES/<name>: where, what was there, what came
// there. Power is lost by killing the process: whoever reads the notes knows which writes need not have reached the disk.
// A file DISK_NOTES/fault holds an errno; while it is there, writes (and syncs, if it begins with 's') fail with it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int real_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600); }

// The path of the notes of a file, if the disk is under it.
static int notes_of(int fd, char *notes, size_t size) {
    const char *directory = getenv("DISK_DIRECTORY"), *to = getenv("DISK_NOTES");
    char link[64], path[4096];
    if (!directory || !to) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (strncmp(path, directory, strlen(directory)) != 0 || path[0] != '/') return 0;
    const char *name = strrchr(path, '/') + 1;
    if (strstr(name, "-shm") || strstr(name, ".lock")) return 0;
    return snprintf(notes, size, "%s/%s", to, name) < (int)size;
}

static int fault(int is_sync) {
    const char *to = getenv("DISK_NOTES");
    char path[4096], text[16] = "";
    if (!to) return 0;
    snprintf(path, sizeof path, "%s/fault", to);
    int fd = real_open(path, O_RDONLY);
    if (fd < 0) return 0;
    ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (length <= 0) return 0;
    if (is_sync) return text[0] == 's' ? atoi(text + 1) : 0;
    return text[0] == 's' ? 0 : atoi(text);
}

struct note { uint64_t offset, length, old_length, old_size; };

// Notes a write, or with no data a truncation to `offset`.
static void note(int fd, const void *data, uint64_t length, uint64_t offset) {
    char path[4096];
    struct stat state;
    if (!notes_of(fd, path, sizeof path) || fstat(fd, &state) != 0) return;
    uint64_t want = data ? length : ((uint64_t)state.st_size > offset ? (uint64_t)state.st_size - offset : 0);
    char *old = malloc(want + 1);
    ssize_t got = want ? syscall(SYS_pread64, fd, old, want, offset) : 0;
    struct note head = {offset, data ? length : UINT64_MAX, got > 0 ? (uint64_t)got : 0, (uint64_t)state.st_size};
    int notes = real_open(path, O_WRONLY | O_CREAT | O_APPEND);
    if (notes >= 0) {
        if (syscall(SYS_write, notes, &head, sizeof head) < 0 || syscall(SYS_write, notes, old, head.old_length) < 0) abort();
        if (data && syscall(SYS_write, notes, data, length) < 0) abort();
        syscall(SYS_close, notes);
    }
    free(old);
}

static int synced(int fd) {
    char path[4096];
    int error = fault(1);
    if (error) { errno = error; return -1; }
    pthread_mutex_lock(&lock);
    if (notes_of(fd, path, sizeof path)) {
        int notes = real_open(path, O_WRONLY | O_TRUNC);
        if (notes >= 0) syscall(SYS_close, notes);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static ssize_t written(int fd, const void *data, size_t length, off_t offset) {
    char path[4096];
    int error = notes_of(fd, path, sizeof path) ? fault(0) : 0;
    if (error) { errno = error; return -1; }
    pthread_mutex_lock(&lock);
    note(fd, data, length, (uint64_t)offset);
    ssize_t done = syscall(SYS_pwrite64, fd, data, length, offset);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return written(fd, data, length, offset); }
ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) { return written(fd, data, length, offset); }
int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }

static int truncated(int fd, off_t length) {
    pthread_mutex_lock(&lock);
    note(fd, NULL, 0, (uint64_t)length);
    int done = (int)syscall(SYS_ftruncate, fd, length);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate(int fd, off_t length) { return truncated(fd, length); }
int ftruncate64(int fd, off_t length) { return truncated(fd, length); }
