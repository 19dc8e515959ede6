/* System calls that programs make by the C library's syscall(): those that make a child, and those that map. */
#define _GNU_SOURCE
#include "heap.h"
#include <linux/sched.h>
#include <stdarg.h>
#include <sys/syscall.h>

static bool makes_child(long number, const long *a) {
  switch (number) {
#ifdef SYS_fork
  case SYS_fork: return true;
#endif
  case SYS_clone: return !(a[0] & CLONE_VM);
  case SYS_clone3: return a[0] && !(((const struct clone_args *)a[0])->flags & CLONE_VM);
  default: return false;
  }
}

EXPORTED long syscall(long number, ...) {
  long a[6];
  va_list more;
  va_start(more, number);
  for (unsigned i = 0; i < 6; i++) a[i] = va_arg(more, long);
  va_end(more);
  if (makes_child(number, a)) fork_before_raw();
  switch (number) {
  case SYS_mmap: return (long)heap_mmap((void *)a[0], (size_t)a[1], (int)a[2], (int)a[3], (int)a[4], (off_t)a[5]);
  case SYS_munmap: return heap_munmap((void *)a[0], (size_t)a[1]);
  case SYS_mremap: return (long)heap_mremap((void *)a[0], (size_t)a[1], (size_t)a[2], (int)a[3], (void *)a[4]);
  case SYS_madvise: return heap_madvise((void *)a[0], (size_t)a[1], (int)a[2]);
  default: return next_syscall()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
}
