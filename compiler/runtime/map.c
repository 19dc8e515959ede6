/* The public calls: memory that lives on a file. */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *map_descriptor(int descriptor, size_t bytes, int protection, enum region_kind kind) {
  void *address = mmap(NULL, bytes, protection, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return NULL;
  /* Not being able to register costs speed only. */
  int saved = errno;
  register_range((uint64_t)address, bytes, protection & PROT_WRITE ? descriptor : -1, 0, kind);
  errno = saved;
  return address;
}

EXPORTED void *runahead_ooc_map(const char *path, size_t bytes, enum runahead_ooc_mode mode) {
  int flags = mode == RUNAHEAD_OOC_READ     ? O_RDONLY
              : mode == RUNAHEAD_OOC_UPDATE ? O_RDWR
                                            : O_RDWR | O_CREAT;
  int descriptor = open(path, flags | O_CLOEXEC, 0666);
  if (descriptor < 0) return NULL;
  struct stat status;
  void *address = NULL;
  if (fstat(descriptor, &status) == 0) {
    size_t size = (size_t)status.st_size;
    if (mode == RUNAHEAD_OOC_CREATE && size < bytes) {
      size = ftruncate(descriptor, (off_t)bytes) ? 0 : bytes;
    }
    if (bytes == 0) bytes = size;
    if (bytes == 0 || bytes > size)
      errno = errno ? errno : EINVAL; /* beyond the file's end every touch would be fatal */
    else
      address = map_descriptor(descriptor, bytes,
                               mode == RUNAHEAD_OOC_READ ? PROT_READ : PROT_READ | PROT_WRITE, REGION_NAMED);
  }
  int saved = errno;
  close(descriptor);
  errno = saved;
  return address;
}

EXPORTED void *runahead_ooc_alloc(size_t bytes, const char *directory) {
  if (!directory) directory = getenv("RUNAHEAD_OOC_DIR");
  if (!directory) directory = getenv("TMPDIR");
  if (!directory) directory = "/var/tmp";
  int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return NULL;
  bytes = (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  void *address = NULL;
  if (ftruncate(descriptor, (off_t)bytes) == 0)
    address = map_descriptor(descriptor, bytes, PROT_READ | PROT_WRITE, REGION_NAMELESS);
  int saved = errno;
  close(descriptor);
  errno = saved;
  return address;
}

EXPORTED int runahead_ooc_unmap(void *address, size_t bytes) {
  register_end((uint64_t)address);
  return munmap(address, bytes);
}
