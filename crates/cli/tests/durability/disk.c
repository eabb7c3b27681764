// A disk that can lose its power or fail. LD_PRELOAD loads this library into processes.
//
// Each write to a file below DISK_DIRECTORY since the last sync of the file is noted in DISK_NOTES/<path, '+' for '/'>.
// A note contains the offset, the old bytes and the new bytes. A power loss is simulated by killing the processes: the
// notes show which writes need not have reached the disk.
// A file DISK_NOTES/fault contains an errno. While the file exists, writes fail with this errno. If the file begins
// with 's', syncs fail instead of writes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int real_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600); }

// The path of the notes of a file. There is one only if the file is on the disk.
static int notes_of(int fd, char *notes, size_t size) {
    const char *directory = getenv("DISK_DIRECTORY"), *to = getenv("DISK_NOTES");
    char link[64], path[4096];
    if (!directory || !to) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (strncmp(path, directory, strlen(directory)) != 0 || path[0] != '/') return 0;
    char *name = path + strlen(directory);
    if (*name++ != '/' || strstr(name, "-shm") || strstr(name, ".lock")) return 0;
    for (char *letter = name; *letter; letter++) if (*letter == '/') *letter = '+';
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

// Opens and locks the notes of a file, for one thread of one process at a time; -1 = the file has no notes.
static int taken(int fd, int flags) {
    char path[4096];
    int notes = notes_of(fd, path, sizeof path) ? real_open(path, O_RDWR | O_APPEND | flags) : -1;
    if (notes >= 0 && flock(notes, LOCK_EX) != 0) abort();
    return notes;
}

static void given_back(int notes) { if (notes >= 0) syscall(SYS_close, notes); }

// Notes a write, or without data a truncation to `offset`.
static void note(int notes, int fd, const void *data, uint64_t length, uint64_t offset) {
    struct stat state;
    if (notes < 0 || fstat(fd, &state) != 0) return;
    uint64_t want = data ? length : ((uint64_t)state.st_size > offset ? (uint64_t)state.st_size - offset : 0);
    char *old = malloc(want + 1);
    ssize_t got = want ? syscall(SYS_pread64, fd, old, want, offset) : 0;
    struct note head = {offset, data ? length : UINT64_MAX, got > 0 ? (uint64_t)got : 0, (uint64_t)state.st_size};
    if (syscall(SYS_write, notes, &head, sizeof head) < 0 || syscall(SYS_write, notes, old, head.old_length) < 0) abort();
    if (data && syscall(SYS_write, notes, data, length) < 0) abort();
    free(old);
}

static int synced(int fd) {
    int error = fault(1);
    if (error) { errno = error; return -1; }
    int notes = taken(fd, 0);
    if (notes >= 0 && syscall(SYS_ftruncate, notes, 0) != 0) abort();
    given_back(notes);
    return 0;
}

static ssize_t written(int fd, const void *data, size_t length, off_t offset) {
    int notes = taken(fd, O_CREAT);
    int error = notes >= 0 ? fault(0) : 0;
    ssize_t done = -1;
    if (!error) {
        note(notes, fd, data, length, (uint64_t)offset);
        done = syscall(SYS_pwrite64, fd, data, length, offset);
        error = errno;
    }
    given_back(notes);
    if (done < 0) errno = error;
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return written(fd, data, length, offset); }
ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) { return written(fd, data, length, offset); }
int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }

static ssize_t gathered(int fd, const struct iovec *parts, int count, off_t offset) {
    ssize_t all = 0;
    for (int part = 0; part < count; part++) {
        ssize_t done = written(fd, parts[part].iov_base, parts[part].iov_len, offset + all);
        if (done < 0) return all ? all : done;
        all += done;
        if ((size_t)done < parts[part].iov_len) break;
    }
    return all;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return gathered(fd, parts, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return gathered(fd, parts, count, offset); }

static int truncated(int fd, off_t length) {
    int notes = taken(fd, O_CREAT);
    note(notes, fd, NULL, 0, (uint64_t)length);
    int done = (int)syscall(SYS_ftruncate, fd, length);
    given_back(notes);
    return done;
}

int ftruncate(int fd, off_t length) { return truncated(fd, length); }
int ftruncate64(int fd, off_t length) { return truncated(fd, length); }

// Space that is allocated and not written: a power loss may remove it or not, and it contains no data.
static int allocated(int fd, off_t offset, off_t length) {
    int notes = taken(fd, O_CREAT);
    int error = notes >= 0 ? fault(0) : 0;
    given_back(notes);
    if (error) return error;
    return syscall(SYS_fallocate, fd, 0, offset, length) == 0 ? 0 : errno;
}

int posix_fallocate(int fd, off_t offset, off_t length) { return allocated(fd, offset, length); }
int posix_fallocate64(int fd, off_t offset, off_t length) { return allocated(fd, offset, length); }
