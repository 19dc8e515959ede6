/* For unmodified programs, linked in on request with -Wl,--wrap=mmap,--wrap=munmap:
 * large shared file mappings are registered as they are made.
 */
#include "runahead_ooc.h"
#include <sys/mman.h>
#include <sys/types.h>

/* A mapping below this is read faster than it is thought about. */
#define SMALLEST ((size_t)1 << 20)

void *__real_mmap(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
int __wrap_munmap(void *, size_t);

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int descriptor,
                  off_t offset) {
  void *mapped = __real_mmap(address, bytes, protection, flags, descriptor, offset);
  if (mapped != MAP_FAILED && descriptor >= 0 && bytes >= SMALLEST)
    runahead_ooc_register(mapped, bytes);
  return mapped;
}

int __wrap_munmap(void *address, size_t bytes) {
  runahead_ooc_unregister(address);
  return __real_munmap(address, bytes);
}
