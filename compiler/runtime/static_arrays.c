/* Static arrays out of core, without a change of source: linked in on request.
 *
 * Before main, the writable tail of the program (data and bss behind the part
 * that the loader has made read-only) is copied to a nameless file and mapped from
 * there, in place, so that the kernel can write it out instead of needing memory
 * or swap for all of it. Small programs are left alone.
 *
 * The mapping is shared with the file, hence with children made by fork; a child
 * gets its own private copy before it runs on, and its parent waits until it has it:
 * the copy is to show what was there at the fork.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((uintptr_t)4096)
/* Below this a program's statics are no reason to use a disk. (Eager: for tests.) */
#ifndef RUNAHEAD_EAGER
#define SMALLEST ((uintptr_t)1 << 20)
#else
#define SMALLEST PAGE
#endif

static uintptr_t first, last;

static int find_tail(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  uintptr_t readonly_end = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;
    if (p->p_type == PT_GNU_RELRO) readonly_end = (end + PAGE - 1) & ~(PAGE - 1);
    if (p->p_type == PT_LOAD && p->p_flags & PF_W && end - start > last - first) {
      first = (start + PAGE - 1) & ~(PAGE - 1);
      last = end & ~(PAGE - 1);
    }
  }
  if (first < readonly_end) first = readonly_end;
  return 1; /* the program itself comes first, libraries are not wanted */
}

static void plainly(const char *what) {
  fprintf(stderr, "runahead: static arrays stay in memory: %s: %s. Set RUNAHEAD_OOC_DIR to a "
                  "directory on a disk with room for them.\n", what, strerror(errno));
}

static int copy_out(int descriptor) {
  /* Pages that were never written are not written to the file either. */
  unsigned char present[512];
  for (uintptr_t at = first; at < last; at += sizeof present * PAGE) {
    size_t bytes = last - at < sizeof present * PAGE ? last - at : sizeof present * PAGE;
    if (mincore((void *)at, bytes, present)) return -1;
    for (size_t page = 0; page < bytes / PAGE; page++) {
      const char *from = (const char *)(at + page * PAGE);
      static const char zero[PAGE];
      if (!(present[page] & 1) && memcmp(from, zero, PAGE) == 0) continue;
      if (pwrite(descriptor, from, PAGE, (off_t)(at - first + page * PAGE)) != (ssize_t)PAGE)
        return -1;
    }
  }
  return 0;
}

/* By which the child says that it has its copy. The thread that forks is the one that
 * lives on in the child, so both see the same pair, and forks at once do not mix. */
static __thread int copied[2];

static void before_fork(void) {
  int saved = errno;
  if (pipe2(copied, O_CLOEXEC)) copied[0] = copied[1] = -1; /* then the parent cannot wait */
  errno = saved;
}

static void in_parent(void) {
  if (copied[0] < 0) return;
  int saved = errno;
  char byte;
  close(copied[1]);
  while (read(copied[0], &byte, 1) < 0 && errno == EINTR) {
  }
  close(copied[0]);
  errno = saved;
}

static void in_child(void) {
  int saved = errno;
  uintptr_t bytes = last - first;
  void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy != MAP_FAILED) {
    memcpy(copy, (void *)first, bytes);
    copy = mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)first);
  }
  if (copy == MAP_FAILED) {
    static const char text[] = "runahead: no memory for the static arrays of a forked child. "
                               "Run the program without --runahead-static.\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(127);
  }
  if (copied[0] >= 0) {
    (void)!write(copied[1], "", 1);
    close(copied[0]);
    close(copied[1]);
  }
  errno = saved;
}

__attribute__((constructor)) static void move_static_arrays(void) {
  dl_iterate_phdr(find_tail, NULL);
  if (last < first + SMALLEST) return;
  const char *directory = getenv("RUNAHEAD_OOC_DIR");
  if (!directory) directory = getenv("TMPDIR");
  if (!directory) directory = "/var/tmp";
  int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    plainly(directory);
    return;
  }
  if (ftruncate(descriptor, (off_t)(last - first)) || copy_out(descriptor)) {
    plainly("the file could not be filled");
  } else if (mmap((void *)first, last - first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                  descriptor, 0) == MAP_FAILED) {
    plainly("mmap");
  } else {
    pthread_atfork(before_fork, in_parent, in_child);
    runahead_ooc_register_arrays((void *)first, last - first, descriptor);
  }
  close(descriptor);
}
