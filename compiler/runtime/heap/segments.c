/* What the kernel has mapped in the arena, piece by piece: whose it is and how it is protected. Programs protect parts
 * of what they have, and that has to stay so where a mapping is made anew.
 *
 * By /proc/self/maps, which is read with the lock held and without memory of the program's. Where that is
 * missing nothing is known.
 */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_SEGMENTS 65536

static struct segment found[MAX_SEGMENTS];
static unsigned used;
static uint64_t first, last; /* addresses that are asked for */

/* "7f...-7f... rw-s 00000000 fe:00 1234 ...": numbers by strtoul, which keeps to the C library's rules for any locale. */
static void note(const char *line) {
  char *rest;
  uint64_t start = strtoul(line, &rest, 16);
  if (*rest != '-') return;
  uint64_t end = strtoul(rest + 1, &rest, 16);
  if (end <= first || start >= last || *rest != ' ' || used == MAX_SEGMENTS) {
    used += used == MAX_SEGMENTS && end > first && start < last; /* beyond: it is not all */
    return;
  }
  const char *may = rest + 1;
  strtoul(may + 4, &rest, 16);
  unsigned long major_number = strtoul(rest, &rest, 16);
  unsigned long minor_number = *rest == ':' ? strtoul(rest + 1, &rest, 16) : 0;
  uint64_t inode = strtoul(rest, &rest, 10), base = (uint64_t)arena;
  bool ours = inode == file.inode && makedev(major_number, minor_number) == file.device;
  if (start < first) start = first;
  if (end > last) end = last;
  found[used++] = (struct segment){
      .start = start - base,
      .end = end - base,
      .protection = (may[0] == 'r') * PROT_READ | (may[1] == 'w') * PROT_WRITE | (may[2] == 'x') * PROT_EXEC,
      .shared = may[3] == 's',
      .ours = ours};
}

const struct segment *segments_in(uint64_t start, uint64_t end, unsigned *count_) {
  static char text[16384];
  first = (uint64_t)arena + start;
  last = (uint64_t)arena + end;
  used = 0;
  *count_ = 0;
  int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return NULL;
  size_t has = 0;
  ssize_t got;
  while ((got = read(descriptor, text + has, sizeof text - 1 - has)) > 0 || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    has += (size_t)got;
    text[has] = 0;
    char *at = text, *end_of_line;
    for (; (end_of_line = strchr(at, '\n')); at = end_of_line + 1) note(at);
    has -= (size_t)(at - text);
    memmove(text, at, has);
    if (has == sizeof text - 1) has = 0; /* a line longer than any is */
  }
  close(descriptor);
  if (got < 0 || used > MAX_SEGMENTS) return NULL;
  *count_ = used;
  return found;
}

bool segments_are_plain(uint64_t start, uint64_t end) {
  unsigned n;
  const struct segment *s = segments_in(start, end, &n);
  for (unsigned i = 0; s && i < n; i++)
    if (s[i].protection != (PROT_READ | PROT_WRITE)) return false;
  return s && n;
}

/* What cannot be read is made readable first: it is about to be replaced. */
static bool copy_one(const struct segment *s) {
  char *at = arena + s->start;
  uint64_t bytes = s->end - s->start;
  void *copy = raw_map(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  bool readable = s->protection & PROT_READ || mprotect(at, bytes, s->protection | PROT_READ) == 0;
  if (readable) memcpy(copy, at, bytes);
  if (readable && (s->protection == (PROT_READ | PROT_WRITE) || mprotect(copy, bytes, s->protection) == 0) &&
      raw_remap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
    return true;
  int saved = errno;
  raw_unmap(copy, bytes);
  errno = saved;
  return false;
}

bool segments_copy_into_memory(uint64_t start, uint64_t end) {
  unsigned n;
  struct segment whole = {.start = start, .end = end, .protection = PROT_READ | PROT_WRITE};
  const struct segment *s = segments_in(start, end, &n);
  if (!s) s = &whole, n = 1;
  for (unsigned i = 0; i < n; i++)
    if (!copy_one(&s[i])) return false;
  return true;
}
