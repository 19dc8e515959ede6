/* The nameless file on disk that the arena lies in: found a place for, promised room in, given back.
 *
 * The file system has promised the room before anything is handed out, so that no store ends in SIGBUS.
 */
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

struct file file = {-1, 0, 0, 0};

bool file_is_ours(int descriptor) {
  struct stat status;
  return descriptor >= 0 && fstat(descriptor, &status) == 0 && status.st_dev == file.device &&
         status.st_ino == file.inode;
}

bool file_is_there(void) { return file_is_ours(file.descriptor); }

void file_drop(void) {
  if (file_is_there()) close(file.descriptor);
  file.descriptor = -1;
}

/* Memory in disguise, and file systems that write elsewhere than where room was promised. */
static bool promises_nothing(int descriptor) {
  struct statfs status;
  enum { ZFS = 0x2fc12fc1, BCACHEFS = 0xca451a4e };
  if (fstatfs(descriptor, &status)) return true;
  switch ((unsigned)status.f_type) {
  case TMPFS_MAGIC:
  case RAMFS_MAGIC:
  case BTRFS_SUPER_MAGIC:
  case (unsigned)ZFS:
  case (unsigned)BCACHEFS: return true;
  default: return false;
  }
}

static int nameless(void) {
  int descriptor = open(settings.folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  char name[sizeof settings.folder + 64];
  for (unsigned i = 0; i < 100; i++) {
    snprintf(name, sizeof name, "%s/.runahead-heap-%d-%lu", settings.folder, getpid(), (unsigned long)limits_now());
    descriptor = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor >= 0) unlink(name);
    if (descriptor >= 0 || errno != EEXIST) break;
  }
  return descriptor;
}

/* Room is promised beyond the limit for files only with SIGXFSZ. */
static bool may_be_as_long_as(uint64_t bytes) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

/* Where it fails errno tells why. */
static bool promise(int descriptor, uint64_t offset, uint64_t bytes) {
  if (!may_be_as_long_as(offset + bytes)) {
    errno = EFBIG;
    return false;
  }
  int done;
  while ((done = fallocate(descriptor, 0, (off_t)offset, (off_t)bytes)) && errno == EINTR) {
  }
  if (done == 0) return true;
  int saved = errno;
  fallocate(descriptor, PUNCH, (off_t)offset, (off_t)bytes); /* of what was found before there was no more */
  errno = saved;
  return false;
}

/* A file whose room can be promised and given back, at a number that programs do not count on. */
bool file_open(void) {
  enum { OUT_OF_THE_WAY = 200 };
  struct stat status;
  if (file_is_there()) return true;
  int low = nameless(), descriptor = -1;
  bool good = false;
  if (low >= 0) {
    if (promises_nothing(low)) {
      settings.cause = "RUNAHEAD_OOC_DIR, or else TMPDIR or /var/tmp, is on a file system that lies in memory or "
                       "writes what changes to new places (tmpfs, btrfs, zfs), and so cannot promise room on a disk";
      errno = EOPNOTSUPP;
    } else if (promise(low, 0, PAGE_BYTES) && fallocate(low, PUNCH, 0, (off_t)PAGE_BYTES) == 0 &&
               fstat(low, &status) == 0) {
      descriptor = fcntl(low, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
      good = descriptor >= 0;
    }
    int saved = errno;
    close(low);
    errno = saved;
  }
  if (!good) {
    settings.unusable = errno != ENOSPC && errno != EMFILE && errno != ENFILE;
    return false;
  }
  file.descriptor = descriptor;
  file.device = status.st_dev;
  file.inode = status.st_ino;
  file.number++;
  return true;
}

bool file_promise(uint64_t offset, uint64_t bytes) { return promise(file.descriptor, offset, bytes); }

void file_punch(uint64_t offset, uint64_t bytes) { fallocate(file.descriptor, PUNCH, (off_t)offset, (off_t)bytes); }

bool file_zero(uint64_t offset, uint64_t bytes) {
  return fallocate(file.descriptor, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes) == 0;
}
