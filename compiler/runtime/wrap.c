/* For unmodified programs, linked in on request with
 * -Wl,--wrap=mmap,--wrap=mmap64,--wrap=munmap: large file mappings are registered as
 * they are made, without their descriptors: closing a copy of one would drop the locks (fcntl)
 * that the program has on the file. So nothing is written early there.
 *
 * Every symbol that those flags name must be defined here, or programs that are linked with them
 * do not link.
 */
#include "runahead_ooc.h"
#include <sys/mman.h>
#include <sys/types.h>

/* A mapping below this is read faster than it is thought about. */
#define SMALLEST ((size_t)1 << 20)

void *__real_mmap(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
void *__wrap_mmap64(void *, size_t, int, int, int, off_t);
int __wrap_munmap(void *, size_t);

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int descriptor,
                  off_t offset) {
  void *mapped = __real_mmap(address, bytes, protection, flags, descriptor, offset);
  if (mapped != MAP_FAILED && descriptor >= 0 && bytes >= SMALLEST)
    runahead_ooc_register(mapped, bytes);
  return mapped;
}

/* What mmap is called where _FILE_OFFSET_BITS is 64, or by name: one function on a
 * 64-bit machine. */
_Static_assert(sizeof(off_t) == 8, "mmap64 is mmap only where off_t has 64 bits");
void *__wrap_mmap64(void *address, size_t bytes, int protection, int flags, int descriptor,
                    off_t offset) {
  return __wrap_mmap(address, bytes, protection, flags, descriptor, offset);
}

int __wrap_munmap(void *address, size_t bytes) {
  runahead_ooc_unregister(address);
  return __real_munmap(address, bytes);
}
