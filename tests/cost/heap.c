// Counts the live heap bytes of a process. LD_PRELOAD loads this library into the process. The file HEAP_COUNTER contains the count as a
// number of 8 bytes.
// A block counts with the size that the allocator gives it (malloc_usable_size) and with its header of 8 bytes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static _Atomic int64_t before_start;
static _Atomic int64_t *live = &before_start;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HEAP_COUNTER");
    int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof *live) != 0) return;
    void *shared = mmap(NULL, sizeof *live, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared != MAP_FAILED) {
        atomic_store((_Atomic int64_t *)shared, atomic_load(&before_start));
        live = shared;
    }
}

static void *taken(void *block) {
    if (block) atomic_fetch_add(live, (int64_t)malloc_usable_size(block) + 8);
    return block;
}

static void given_back(void *block) {
    if (block) atomic_fetch_sub(live, (int64_t)malloc_usable_size(block) + 8);
}

void *malloc(size_t size) { return taken(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return taken(__libc_calloc(count, size)); }
void *memalign(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) { return (*block = memalign(alignment, size)) ? 0 : 12; }
void free(void *block) { given_back(block); __libc_free(block); }
void *realloc(void *block, size_t size) {
    int64_t old = block ? (int64_t)malloc_usable_size(block) + 8 : 0;
    void *new = __libc_realloc(block, size);
    if (new || !size) atomic_fetch_sub(live, old);
    return taken(new);
}
