/* Whatever allocator comes next, the C library's as a rule: what the heap does not take goes there. */
#define _GNU_SOURCE
#include "heap.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>

struct next next;

/* For what is allocated while its functions are looked up. */
static char early[4096] __attribute__((aligned(16)));
static size_t early_used;

bool next_is_early(const void *address) {
  return (const char *)address >= early && (const char *)address < early + sizeof early;
}

void *next_early_malloc(size_t bytes) {
  bytes = (bytes + 31) & ~(size_t)15; /* its size before it */
  if (bytes > sizeof early - early_used) return NULL;
  char *at = early + early_used;
  early_used += bytes;
  *(size_t *)at = bytes - 16;
  return at + 16;
}

size_t next_early_bytes(const void *address) { return *(const size_t *)((const char *)address - 16); }

static bool looking;

void *next_look_up(const char *name) {
  void *function = dlsym(RTLD_NEXT, name);
  if (!function) abort(); /* no C library that has no malloc */
  return function;
}

bool next_ready(void) {
  if (next.usable) return true;
  if (looking) return false;
  looking = true;
  next.malloc = (void *(*)(size_t))next_look_up("malloc");
  next.calloc = (void *(*)(size_t, size_t))next_look_up("calloc");
  next.realloc = (void *(*)(void *, size_t))next_look_up("realloc");
  next.memalign = (void *(*)(size_t, size_t))next_look_up("memalign");
  next.free = (void (*)(void *))next_look_up("free");
  __atomic_store_n(&next.usable, (size_t(*)(void *))next_look_up("malloc_usable_size"), __ATOMIC_RELEASE);
  looking = false;
  return true;
}

long (*next_syscall(void))(long, ...) {
  static long (*_Atomic real)(long, ...);
  if (!real) real = (long (*)(long, ...))next_look_up("syscall");
  return real;
}

void *raw_map(void *address, uint64_t bytes, int protection, int flags, int descriptor, off_t offset) {
  return (void *)next_syscall()(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
}
int raw_unmap(void *address, uint64_t bytes) { return (int)next_syscall()(SYS_munmap, address, bytes); }
void *raw_remap(void *old, uint64_t old_bytes, uint64_t bytes, int flags, void *to) {
  return (void *)next_syscall()(SYS_mremap, old, old_bytes, bytes, flags, to);
}
int raw_advise(void *start, uint64_t bytes, int advice) {
  return (int)next_syscall()(SYS_madvise, start, bytes, advice);
}
