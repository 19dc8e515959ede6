/* A child made by fork sees what was there at the fork, and nothing later.
 *
 * Before the fork all blocks become private mappings of the file, which is never written again; where that
 * cannot be the child copies them, and the parent waits. Programs that make children without telling anybody
 * are caught at the C library's calls.
 */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static __thread int copied[2] = {-1, -1}; /* by which a child says that it has its copies */

/* Made elsewhere first: the place is never without what it holds, and other threads may be at it. */
static bool make_private(const struct segment *s) {
  uint64_t bytes = s->end - s->start;
  void *fresh = raw_map(NULL, bytes, s->protection, MAP_PRIVATE | MAP_NORESERVE, file.descriptor, (off_t)s->start);
  if (fresh == MAP_FAILED) return false;
  if (raw_remap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, arena + s->start) != MAP_FAILED) return true;
  raw_unmap(fresh, bytes);
  return false;
}

static bool is_shared(const struct block *b) { return !b->is_private && !b->going && !b->lost && !b->foreign; }

/* Of the block all that the kernel knows of, from segment `*next` on. */
static bool make_block_private(const struct block *b, const struct segment *s, unsigned segments, unsigned *next_one) {
  bool done = true;
  if (b->file != file.number || !file_is_there()) return false;
  for (; *next_one < segments && s[*next_one].start < b->offset + b->bytes; ++*next_one) {
    struct segment part = s[*next_one];
    if (part.start < b->offset) part.start = b->offset;
    if (part.end > b->offset + b->bytes) part.end = b->offset + b->bytes;
    if (part.start < part.end && part.ours && part.shared) done &= make_private(&part);
    if (s[*next_one].end > b->offset + b->bytes) break; /* the next block's as well */
  }
  return done;
}

/* True: there are some that have to be copied. Segments and blocks are both in order. */
static bool make_all_private(void) {
  bool left = false;
  unsigned live = 0, segments = 0, next_one = 0;
  if (!atomic_load_explicit(&arena, RELAXED)) return false;
  const struct segment *s = blocks ? segments_in(0, ARENA_BYTES, &segments) : NULL;
  for (unsigned i = 0; i < blocks; i++) {
    struct block *b = &block[i];
    if (!is_shared(b)) continue;
    live++;
    const struct segment whole = {b->offset, b->offset + b->bytes, PROT_READ | PROT_WRITE, true, true};
    unsigned none = 0;
    b->is_private = s ? make_block_private(b, s, segments, &next_one) : make_block_private(b, &whole, 1, &none);
    left |= !b->is_private;
  }
  if (live) seen.forks++;
  file_drop(); /* it is not written to any more */
  return left;
}

static void before_fork(void) {
  int saved = errno;
  heap_lock();
  copied[0] = copied[1] = -1;
  if (make_all_private() && pipe2(copied, O_CLOEXEC)) copied[0] = copied[1] = -1;
  errno = saved;
}

static void in_parent(void) {
  int saved = errno;
  heap_unlock();
  if (copied[0] >= 0) {
    char byte;
    close(copied[1]);
    while (read(copied[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close(copied[0]);
  }
  errno = saved;
}

static void in_child(void) {
  int saved = errno;
  for (unsigned i = blocks; i-- > 0;) {
    struct block *b = &block[i];
    if (b->going) {
      arena_reserve(b->offset, b->bytes); /* of a thread that is the parent's */
      arena_erase(b);
    } else if (is_shared(b)) {
      if (!segments_copy_into_memory(b->offset, b->offset + b->bytes)) {
        heap_tell("runahead: no memory for the heap blocks of a forked child. Run the program without --runahead-heap, "
                  "or with RUNAHEAD_OOC_HEAP=0.\n");
        _exit(127);
      }
      b->is_private = true;
    }
  }
  if (copied[0] >= 0) {
    (void)!write(copied[1], "", 1);
    close(copied[0]);
    close(copied[1]);
  }
  heap_inside = false;
  heap_lock_is_new();
  errno = saved;
}

void fork_before_raw(void) {
  int saved = errno;
  if (atomic_load_explicit(&arena, RELAXED)) {
    heap_lock();
    if (make_all_private())
      heap_tell("runahead: a child is made by a system call of the program's own, and shares some heap blocks with it. "
                "Run the program with RUNAHEAD_OOC_HEAP=0.\n");
    heap_unlock();
  }
  errno = saved;
}

EXPORTED pid_t _Fork(void) {
  static pid_t (*real)(void);
  if (!real) real = (pid_t(*)(void))next_look_up("_Fork");
  fork_before_raw();
  return real();
}

EXPORTED int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) {
  static int (*real)(int (*)(void *), void *, int, void *, ...);
  va_list more;
  va_start(more, argument);
  void *parent = va_arg(more, void *), *tls = va_arg(more, void *), *child = va_arg(more, void *);
  va_end(more);
  if (!real) real = (int (*)(int (*)(void *), void *, int, void *, ...))next_look_up("clone");
  if (!(flags & CLONE_VM)) fork_before_raw();
  return real(function, stack, flags, argument, parent, tls, child);
}

void fork_begin(void) { pthread_atfork(before_fork, in_parent, in_child); }
