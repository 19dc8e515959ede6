/* The program's heap out of core, without a change of source: linked in or preloaded on request.
 *
 * malloc and its kin, hence operator new, std::vector and ALLOCATE. A large block that would not fit into
 * memory beside what is there comes from a nameless file on disk; everything else is the C library's.
 *
 * All blocks lie in one range of addresses (the arena), each at the place in the file that it has in the
 * range: whether a pointer is ours is two comparisons, and a block grows where it is. The blocks are kept
 * sorted.
 *
 * Invariants:
 *  - The file system has promised the room before a block is handed out (fallocate), so that no store
 *    ends in SIGBUS because a disk is full. What cannot be promised comes from the C library, and is said once.
 *  - Of a range of the file that no block has, every byte reads as zero.
 *  - A child made by fork sees what was there at the fork, and nothing later: before the fork all blocks become
 *    private mappings of the file, which is never written again. What either changes from then on lies in memory.
 *  - The descriptor is used only after a look that it still leads to our file: programs close what they did not open.
 *  - Nothing of ours is called with the lock held but system calls. Calls of the run-time layer, which allocate,
 *    are made with `inside` set, so that what they want comes from the C library.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Half of what a file on ext4 may have. Addresses that are reserved cost nothing. */
#define ARENA_BYTES ((uint64_t)8 << 40)
#define MAX_BLOCKS 16384
/* Room in the arena behind a block, in sizes of it: so often may it double where it is. */
#define ROOM_TO_GROW 3
/* A thousandth of memory, within these: below, so many blocks would be out of core that there is no room in the
 * tables; above, a program of many middling blocks would get nothing. */
#define MIN_SMALLEST ((uint64_t)256 << 10)
#define MAX_SMALLEST ((uint64_t)4 << 20)
/* Of what is freed so much is kept for the next that asks for about as much: a program that allocates and frees in a
 * loop would make and empty a piece of the file each time, which takes milliseconds. */
#define KEPT_BLOCKS 8
#define KEPT_BYTES ((uint64_t)16 << 20)
/* Descriptors that regions may have for writing early. The others are written by the kernel alone. */
#define MAX_WITH_FILE 64
/* The kernel is asked anew what the program has in memory after so many blocks at the latest: small ones are
 * not counted here. */
#define LOOK_AGAIN 64

struct block {
  uint64_t offset, bytes; /* in the arena and in the file; of whole pages */
  unsigned file;          /* the number of its file, of those that there were */
  bool is_private;        /* since a fork; the file may be another process's as well */
  bool kept;              /* freed, and for the next; as it was otherwise */
  bool going;             /* being given up: whoever does so erases it */
  bool lost;              /* nobody's; its file could not be emptied there */
  bool with_file;         /* its region has a descriptor */
};

static struct {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*memalign)(size_t, size_t);
  void (*free)(void *);
  size_t (*usable)(void *);
} next;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool inside;
static struct block block[MAX_BLOCKS];
static unsigned blocks;
static uint64_t kept[KEPT_BLOCKS]; /* their offsets, the oldest first */
static unsigned kept_blocks;
static char *_Atomic arena;

static struct {
  int descriptor;
  uint64_t device, inode;
  unsigned number;
} file = {-1, 0, 0, 0};

static enum { UNREAD, OFF, WHEN_SHORT, ALWAYS } mode;
static bool unusable; /* no folder for the file, or no addresses */
static const char *cause = ""; /* of what failed last, where it is not the folder */
static char folder[4096];
static _Atomic uint64_t smallest = MIN_SMALLEST;
static unsigned with_file;

static struct {
  uint64_t made, made_bytes, now_bytes, most_bytes, fitted, fitted_bytes, refused, refused_bytes, forks;
} seen;

/* --- the C library's ------------------------------------------------------- */

/* For what is allocated while its functions are looked up. */
static char early[4096] __attribute__((aligned(16)));
static size_t early_used;

static bool is_early(const void *address) {
  return (const char *)address >= early && (const char *)address < early + sizeof early;
}

static void *early_malloc(size_t bytes) {
  bytes = (bytes + 31) & ~(size_t)15; /* its size before it */
  if (bytes > sizeof early - early_used) return NULL;
  char *at = early + early_used;
  early_used += bytes;
  *(size_t *)at = bytes - 16;
  return at + 16;
}

static bool looking;

static void *look_up(const char *name) {
  void *function = dlsym(RTLD_NEXT, name);
  if (!function) abort(); /* no C library that has no malloc */
  return function;
}

static bool ready(void) {
  if (next.usable) return true;
  if (looking) return false;
  looking = true;
  next.malloc = (void *(*)(size_t))look_up("malloc");
  next.calloc = (void *(*)(size_t, size_t))look_up("calloc");
  next.realloc = (void *(*)(void *, size_t))look_up("realloc");
  next.memalign = (void *(*)(size_t, size_t))look_up("memalign");
  next.free = (void (*)(void *))look_up("free");
  __atomic_store_n(&next.usable, (size_t(*)(void *))look_up("malloc_usable_size"), __ATOMIC_RELEASE);
  looking = false;
  return true;
}

/* --- settings, and what is said -------------------------------------------- */

static void tell(const char *text) {
  (void)!write(STDERR_FILENO, text, strlen(text));
}

/* Once; what is said first is the cause. */
static void stays(int error) {
  static bool told;
  char text[sizeof folder + 256], reason[128];
  if (told) return;
  told = true;
  if (*cause)
    snprintf(text, sizeof text, "runahead: heap blocks stay in memory: %s.\n", cause);
  else
    snprintf(text, sizeof text,
             "runahead: heap blocks stay in memory: %s: %s. Set RUNAHEAD_OOC_DIR to a directory on a disk with room "
             "for them.\n",
             folder, strerror_r(error, reason, sizeof reason));
  tell(text);
}

static uint64_t rounded(uint64_t bytes) { return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1); }

/* Before the program is begun with, or at the first large block, whichever comes first: the environment is the
 * program's to change later. */
static void read_settings(void) {
  if (mode != UNREAD) return;
  const char *all = getenv("RUNAHEAD_OOC"), *how = getenv("RUNAHEAD_OOC_HEAP");
  const char *where = getenv("RUNAHEAD_OOC_DIR");
  if (!where) where = getenv("TMPDIR");
  if (!where) where = "/var/tmp";
  uint64_t bytes;
  mode = WHEN_SHORT;
  if ((all && all[0] == '0') || (how && !strcmp(how, "0"))) {
    mode = OFF;
  } else if (how && strcmp(how, "1") && size_read(how, &bytes) && bytes) {
    mode = ALWAYS;
    smallest = bytes;
  } else if (how && *how && strcmp(how, "1")) {
    size_complain("RUNAHEAD_OOC_HEAP", how, "a block is out of core where it would not fit into memory");
  }
  if (strlen(where) < sizeof folder)
    strcpy(folder, where);
  else
    unusable = true;
}

/* --- what is in memory ------------------------------------------------------ */

/* Memory of the program's own, touched or not: what it may change and has for itself. */
static uint64_t own_memory(void) {
  char text[128];
  int descriptor = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  ssize_t got = descriptor < 0 ? -1 : read(descriptor, text, sizeof text - 1);
  if (descriptor >= 0) close(descriptor);
  if (got <= 0) return 0;
  text[got] = 0;
  const char *at = text;
  for (unsigned field = 0; field < 5 && at; field++) at = strchr(at + 1, ' '); /* the sixth: data and stacks */
  return at ? strtoull(at, NULL, 10) * PAGE_BYTES : 0;
}

/* Up to half of memory the program's blocks are left in it: the other half is for everything that is not counted here,
 * and for the part of the rest that is worked on. `given_back`: of a block that makes place for this one. */
static bool fits(uint64_t bytes, uint64_t given_back) {
  static uint64_t known, looks_saved;
  uint64_t most = limits_memory() / 2;
  if (bytes > most) return false;
  if (known + bytes > most || looks_saved++ == LOOK_AGAIN) {
    uint64_t own = own_memory();
    known = own > given_back ? own - given_back : 0;
    looks_saved = 0;
  }
  if (known + bytes > most) return false;
  known += bytes;
  return true;
}

/* --- the file ---------------------------------------------------------------- */

static bool is_ours(int descriptor) {
  struct stat status;
  return descriptor >= 0 && fstat(descriptor, &status) == 0 && status.st_dev == file.device &&
         status.st_ino == file.inode;
}

static bool file_is_there(void) { return is_ours(file.descriptor); }

/* Blocks that are left keep it alive. */
static void drop_file(void) {
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
  int descriptor = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  char name[sizeof folder + 64];
  for (unsigned i = 0; i < 100; i++) {
    snprintf(name, sizeof name, "%s/.runahead-heap-%d-%lu", folder, getpid(), (unsigned long)limits_now());
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
static bool open_file(void) {
  enum { OUT_OF_THE_WAY = 200 };
  struct stat status;
  if (file_is_there()) return true;
  int low = nameless(), descriptor = -1;
  bool good = false;
  if (low >= 0) {
    if (promises_nothing(low)) {
      cause = "RUNAHEAD_OOC_DIR, or else TMPDIR or /var/tmp, is on a file system that lies in memory or writes what "
              "changes to new places (tmpfs, btrfs, zfs), and so cannot promise room on a disk";
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
    unusable = errno != ENOSPC && errno != EMFILE && errno != ENFILE;
    return false;
  }
  file.descriptor = descriptor;
  file.device = status.st_dev;
  file.inode = status.st_ino;
  file.number++;
  return true;
}

/* --- the arena --------------------------------------------------------------- */

static bool reserve(void *at, uint64_t bytes, int fixed) {
  void *got = mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (got != MAP_FAILED && !fixed) arena = got;
  return got != MAP_FAILED;
}

static bool open_arena(void) {
  struct rlimit limit;
  if (arena) return true;
  /* Whoever limits the addresses of a program counts on what it maps. */
  bool free_to = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
  if (free_to && reserve(NULL, ARENA_BYTES, 0)) return true;
  cause = "the program's addresses are limited (ulimit -v), or used up";
  errno = ENOMEM;
  unusable = true;
  return false;
}

static bool in_arena(const void *address) {
  const char *base = atomic_load_explicit(&arena, RELAXED);
  return base && (const char *)address >= base && (const char *)address < base + ARENA_BYTES;
}

static uint64_t offset_of(const void *address) { return (uint64_t)((const char *)address - arena); }

/* The first block that ends behind the offset. */
static unsigned first_behind(uint64_t offset) {
  unsigned low = 0, high = blocks;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (block[middle].offset + block[middle].bytes > offset)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static uint64_t gap_end(unsigned index) { return index < blocks ? block[index].offset : ARENA_BYTES; }

/* The block that begins there, or NULL. */
static struct block *find(const void *address) {
  if (!in_arena(address)) return NULL;
  unsigned i = first_behind(offset_of(address));
  bool is = i < blocks && block[i].offset == offset_of(address) && !block[i].going && !block[i].lost && !block[i].kept;
  return is ? &block[i] : NULL;
}

/* Where in the arena, and before which block. */
static bool find_room(uint64_t alignment, uint64_t bytes, uint64_t room, unsigned *index, uint64_t *offset) {
  uint64_t base = (uint64_t)atomic_load_explicit(&arena, RELAXED), begin = 0;
  for (unsigned i = 0; i <= blocks; i++) {
    uint64_t start = ((base + begin + alignment - 1) & ~(alignment - 1)) - base, end = gap_end(i);
    if (start < end && room <= end - start && bytes <= end - start) {
      *index = i;
      *offset = start;
      return true;
    }
    /* So that each may grow: those that are there as well. */
    if (i < blocks) begin = block[i].offset + block[i].bytes + (room > bytes ? ROOM_TO_GROW * block[i].bytes : 0);
  }
  return false;
}

static void erase(struct block *gone) {
  unsigned i = (unsigned)(gone - block);
  memmove(&block[i], &block[i + 1], (blocks - i - 1) * sizeof *block);
  blocks--;
}

/* From here on nobody sees what was there, and the disk has its room back. */
static bool empty(uint64_t offset, uint64_t bytes, bool is_private) {
  char *start = arena + offset;
  bool emptied = is_private || madvise(start, bytes, MADV_REMOVE) == 0;
  /* Not of what is locked in memory, or may not be written to. */
  if (!emptied && munlock(start, bytes) == 0 && mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0)
    emptied = madvise(start, bytes, MADV_REMOVE) == 0;
  return reserve(start, bytes, MAP_FIXED) && emptied;
}

/* The kernel's read-ahead is kept with the open file: blocks that are gone through side by side want one each. (Three
 * streams through one took twice as long.) */
static bool map_there(uint64_t offset, uint64_t bytes) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file.descriptor);
  int own = open(name, O_RDWR | O_CLOEXEC);
  if (!is_ours(own)) {
    if (own >= 0) close(own);
    own = -1;
  }
  void *got = mmap(arena + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   own < 0 ? file.descriptor : own, (off_t)offset);
  int saved = errno;
  if (own >= 0) close(own);
  errno = saved;
  return got != MAP_FAILED;
}

/* Both, or neither. */
static bool back_with_file(uint64_t offset, uint64_t bytes) {
  if (!promise(file.descriptor, offset, bytes)) return false;
  if (map_there(offset, bytes)) return true;
  int saved = errno;
  fallocate(file.descriptor, PUNCH, (off_t)offset, (off_t)bytes);
  reserve(arena + offset, bytes, MAP_FIXED);
  errno = saved;
  return false;
}

static struct block *make_block(uint64_t alignment, uint64_t bytes) {
  uint64_t room, offset;
  unsigned i;
  if (blocks == MAX_BLOCKS) {
    cause = "there are more of them than can be kept in mind";
    errno = ENOSPC;
    return NULL;
  }
  if (!open_arena() || !open_file()) return NULL;
  if (__builtin_mul_overflow(bytes, (uint64_t)ROOM_TO_GROW + 1, &room)) room = bytes;
  if (!find_room(alignment, bytes, room, &i, &offset) && !find_room(alignment, bytes, bytes, &i, &offset)) {
    errno = ENOMEM;
    return NULL;
  }
  if (!back_with_file(offset, bytes)) return NULL;
  memmove(&block[i + 1], &block[i], (blocks - i) * sizeof *block);
  blocks++;
  block[i] = (struct block){.offset = offset, .bytes = bytes, .file = file.number};
  return &block[i];
}

/* --- blocks ------------------------------------------------------------------- */

static void enter(void) {
  inside = true;
  pthread_mutex_lock(&lock);
}

static void count_bytes(uint64_t more, uint64_t less) {
  seen.now_bytes += more - less;
  if (seen.now_bytes > seen.most_bytes) seen.most_bytes = seen.now_bytes;
}

static struct block *at_offset(uint64_t offset) { return &block[first_behind(offset)]; }

static void no_longer_kept(unsigned index) {
  at_offset(kept[index])->kept = false;
  memmove(&kept[index], &kept[index + 1], (kept_blocks - index - 1) * sizeof *kept);
  kept_blocks--;
}

/* Of the right size, and as good as new but for what it holds; or NULL. */
static struct block *take_kept(uint64_t alignment, uint64_t bytes) {
  for (unsigned i = 0; i < kept_blocks; i++) {
    struct block *b = at_offset(kept[i]);
    bool fits_well = b->bytes >= bytes && b->bytes - bytes <= bytes / 4;
    if (!fits_well || b->is_private || (uint64_t)(arena + b->offset) % alignment) continue;
    no_longer_kept(i);
    return b;
  }
  return NULL;
}

/* Keeps a block that is freed, or says which goes in its place: that itself, or the oldest. */
static struct block *keep(struct block *freed) {
  uint64_t most = limits_memory() / 32, held = 0;
  if (most > KEPT_BYTES) most = KEPT_BYTES;
  if (freed->is_private || freed->bytes > most / 4) return freed;
  for (unsigned i = 0; i < kept_blocks; i++) held += at_offset(kept[i])->bytes;
  struct block *goes = NULL;
  if (kept_blocks == KEPT_BLOCKS || held + freed->bytes > most) {
    goes = at_offset(kept[0]);
    no_longer_kept(0);
  }
  freed->kept = true;
  kept[kept_blocks++] = freed->offset;
  return goes;
}

/* With `inside` set and without the lock: it allocates. Where it fails, speed is lost and nothing else. */
static void tell_of_region(char *start, uint64_t bytes, int descriptor) {
  if (descriptor >= 0)
    runahead_ooc_register_nameless(start, bytes, descriptor, offset_of(start));
  else
    runahead_ooc_register(start, bytes);
}

static int descriptor_for_region(struct block *b) {
  if (b->is_private || b->file != file.number || !file_is_there()) return -1;
  if (!b->with_file && with_file >= MAX_WITH_FILE) return -1;
  with_file += !b->with_file;
  b->with_file = true;
  return file.descriptor;
}

/* NULL: it is the C library's. errno is as it was. */
static void *allocate_large(uint64_t alignment, uint64_t asked, uint64_t given_back, bool zeros) {
  if (inside || asked > PTRDIFF_MAX - PAGE_BYTES) return NULL;
  int saved = errno, error = 0, descriptor = -1;
  uint64_t bytes = rounded(asked);
  char *start = NULL;
  bool used = false;
  enter();
  read_settings();
  if (mode == WHEN_SHORT && smallest == MIN_SMALLEST) {
    uint64_t part = limits_memory() / 1024;
    smallest = part < MIN_SMALLEST ? MIN_SMALLEST : part > MAX_SMALLEST ? MAX_SMALLEST : part;
  }
  if (mode == OFF || unusable || asked < smallest) {
  } else if (mode == WHEN_SHORT && fits(bytes, given_back)) {
    seen.fitted++;
    seen.fitted_bytes += bytes;
  } else {
    if (alignment < PAGE_BYTES) alignment = PAGE_BYTES;
    struct block *made = take_kept(alignment, bytes);
    used = made;
    if (!made) made = make_block(alignment, bytes);
    if (made) {
      start = arena + made->offset;
      bytes = made->bytes;
      if (!used) descriptor = descriptor_for_region(made);
      seen.made++;
      seen.made_bytes += bytes;
      count_bytes(bytes, 0);
    } else {
      error = errno;
      seen.refused++;
      seen.refused_bytes += bytes;
    }
  }
  pthread_mutex_unlock(&lock);
  if (start && !used) tell_of_region(start, bytes, descriptor);
  if (used && zeros) memset(start, 0, asked);
  if (error) stays(error);
  inside = false;
  errno = saved;
  return start;
}

/* False: it is no block of ours. */
static bool give_up(void *address) {
  if (!in_arena(address)) return false;
  int saved = errno;
  enter();
  struct block *found = find(address), *goes = NULL;
  struct block going = {0};
  if (found) {
    count_bytes(0, found->bytes);
    goes = keep(found);
  }
  if (goes) {
    goes->going = true;
    going = *goes;
  }
  pthread_mutex_unlock(&lock);
  if (goes) {
    runahead_ooc_unregister(arena + going.offset);
    bool emptied = empty(going.offset, going.bytes, going.is_private);
    pthread_mutex_lock(&lock);
    goes = at_offset(going.offset);
    if (emptied)
      erase(goes);
    else
      goes->lost = true;
    with_file -= going.with_file;
    pthread_mutex_unlock(&lock);
  }
  inside = false;
  errno = saved;
  return found;
}

/* Its bytes, or 0 where it is no block of ours. */
static uint64_t size_of(const void *address) {
  if (!in_arena(address)) return 0;
  pthread_mutex_lock(&lock);
  struct block *found = find(address);
  uint64_t bytes = found ? found->bytes : 0;
  pthread_mutex_unlock(&lock);
  return bytes;
}

/* A block that is made longer again and again is made longer by an eighth at least. */
static bool grow(struct block *found, uint64_t bytes) {
  uint64_t end = found->offset + found->bytes, most = gap_end((unsigned)(found - block) + 1);
  if (found->is_private || found->file != file.number || !file_is_there()) return false;
  uint64_t want = found->bytes + rounded(found->bytes / 8);
  if (want < bytes) want = bytes;
  if (most < found->offset + bytes) return false;
  if (most < found->offset + want) want = bytes;
  if (!back_with_file(end, want - found->bytes)) {
    if (want == bytes || !back_with_file(end, bytes - found->bytes)) return false;
    want = bytes;
  }
  count_bytes(want - found->bytes, 0);
  found->bytes = want;
  return true;
}

/* To so many bytes where it is; also where it has them already. */
static bool resize(char *address, uint64_t bytes) {
  int saved = errno, descriptor = -1;
  bool done = true, changed = false;
  enter();
  struct block *found = find(address);
  uint64_t had = found->bytes, has;
  if (bytes > had) {
    done = changed = grow(found, bytes);
  } else if (had - bytes > had / 8 && (changed = empty(found->offset + bytes, had - bytes, found->is_private))) {
    found->bytes = bytes;
    count_bytes(0, had - bytes);
  } else if (had - bytes > had / 8) {
    /* The tail is no longer mapped and may not be empty: it stays out of use. */
    found->bytes = bytes;
    changed = true;
    count_bytes(0, had - bytes);
    if (blocks < MAX_BLOCKS) {
      unsigned i = (unsigned)(found - block) + 1;
      memmove(&block[i + 1], &block[i], (blocks - i) * sizeof *block);
      blocks++;
      block[i] = (struct block){.offset = found->offset + bytes, .bytes = had - bytes, .lost = true};
    }
  }
  has = found->bytes;
  if (changed) descriptor = descriptor_for_region(found);
  pthread_mutex_unlock(&lock);
  if (changed) {
    runahead_ooc_unregister(address);
    tell_of_region(address, has, descriptor);
  }
  inside = false;
  errno = saved;
  return done;
}

/* --- fork --------------------------------------------------------------------- */

static __thread int copied[2] = {-1, -1}; /* by which a child says that it has its copies */

static bool make_private(struct block *b) {
  char *at = arena + b->offset;
  if (b->file != file.number || !file_is_there()) return false;
  /* Made elsewhere first: the place is never without what it holds, and other threads may be at it. */
  void *fresh =
      mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.descriptor, (off_t)b->offset);
  if (fresh == MAP_FAILED) return false;
  if (mremap(fresh, b->bytes, b->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
    munmap(fresh, b->bytes);
    return false;
  }
  return true;
}

/* True: there are some that have to be copied. */
static bool make_all_private(void) {
  bool left = false;
  unsigned live = 0;
  for (unsigned i = 0; i < blocks; i++) {
    struct block *b = &block[i];
    if (b->is_private || b->going || b->lost) continue;
    live++;
    b->is_private = make_private(b);
    left |= !b->is_private;
  }
  if (live) seen.forks++;
  drop_file(); /* it is not written to any more */
  return left;
}

static void before_fork(void) {
  int saved = errno;
  pthread_mutex_lock(&lock);
  copied[0] = copied[1] = -1;
  if (make_all_private() && pipe2(copied, O_CLOEXEC)) copied[0] = copied[1] = -1;
  errno = saved;
}

static void in_parent(void) {
  int saved = errno;
  pthread_mutex_unlock(&lock);
  if (copied[0] >= 0) {
    char byte;
    close(copied[1]);
    while (read(copied[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close(copied[0]);
  }
  errno = saved;
}

static bool copy_into_memory(struct block *b) {
  char *at = arena + b->offset;
  void *copy = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  memcpy(copy, at, b->bytes);
  return mremap(copy, b->bytes, b->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
}

static void in_child(void) {
  int saved = errno;
  for (unsigned i = blocks; i-- > 0;) {
    struct block *b = &block[i];
    if (b->going) {
      reserve(arena + b->offset, b->bytes, MAP_FIXED); /* of a thread that is the parent's */
      erase(b);
    } else if (!b->is_private && !b->lost) {
      if (!copy_into_memory(b)) {
        tell("runahead: no memory for the heap blocks of a forked child. Run the program without --runahead-heap, or "
             "with RUNAHEAD_OOC_HEAP=0.\n");
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
  pthread_mutex_init(&lock, NULL);
  inside = false;
  errno = saved;
}

/* Before the calls that make a child without telling anybody. */
static void before_raw_fork(void) {
  int saved = errno;
  if (atomic_load_explicit(&arena, RELAXED)) {
    pthread_mutex_lock(&lock);
    if (make_all_private())
      tell("runahead: a child is made by a system call of the program's own, and shares some heap blocks with it. Run "
           "the program with RUNAHEAD_OOC_HEAP=0.\n");
    pthread_mutex_unlock(&lock);
  }
  errno = saved;
}

EXPORTED pid_t _Fork(void) {
  static pid_t (*real)(void);
  if (!real) real = (pid_t(*)(void))look_up("_Fork");
  before_raw_fork();
  return real();
}

EXPORTED int clone(int (*function)(void *), void *stack, int flags, void *argument, ...) {
  static int (*real)(int (*)(void *), void *, int, void *, ...);
  va_list more;
  va_start(more, argument);
  void *parent = va_arg(more, void *), *tls = va_arg(more, void *), *child = va_arg(more, void *);
  va_end(more);
  if (!real) real = (int (*)(int (*)(void *), void *, int, void *, ...))look_up("clone");
  if (!(flags & CLONE_VM)) before_raw_fork();
  return real(function, stack, flags, argument, parent, tls, child);
}

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
  static long (*real)(long, ...);
  long a[6];
  va_list more;
  va_start(more, number);
  for (unsigned i = 0; i < 6; i++) a[i] = va_arg(more, long);
  va_end(more);
  if (!real) real = (long (*)(long, ...))look_up("syscall");
  if (makes_child(number, a)) before_raw_fork();
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- what programs call --------------------------------------------------------- */

EXPORTED void *malloc(size_t bytes) {
  void *got;
  if (bytes >= smallest && (got = allocate_large(0, bytes, 0, false))) return got;
  return ready() ? next.malloc(bytes) : early_malloc(bytes);
}

EXPORTED void free(void *address) {
  if (in_arena(address) && give_up(address)) return;
  if (address && !is_early(address) && ready()) next.free(address);
}

EXPORTED void *calloc(size_t count, size_t size) {
  size_t bytes;
  void *got;
  if (!__builtin_mul_overflow(count, size, &bytes) && bytes >= smallest && (got = allocate_large(0, bytes, 0, true)))
    return got;
  return ready() ? next.calloc(count, size) : early_malloc(bytes);
}

static size_t usable(void *address) {
  if (is_early(address)) return *(size_t *)((char *)address - 16);
  uint64_t bytes = size_of(address);
  return bytes ? bytes : next.usable(address);
}

static void *move(void *old, void *fresh, size_t bytes) {
  if (!fresh) return NULL; /* the old one stays as it is */
  size_t had = usable(old);
  inside = true;
  runahead_ooc_copy(fresh, old, had < bytes ? had : bytes);
  inside = false;
  free(old);
  return fresh;
}

EXPORTED void *realloc(void *old, size_t bytes) {
  if (!old) return malloc(bytes);
  if (!ready()) return NULL;
  if (is_early(old)) return move(old, next.malloc(bytes), bytes);
  uint64_t had = size_of(old);
  void *fresh;
  if (!had) {
    /* Only what grows is looked at: to move what is there costs more than it gives back. */
    if (bytes >= smallest && bytes > next.usable(old) && (fresh = allocate_large(0, bytes, next.usable(old), false)))
      return move(old, fresh, bytes);
    return next.realloc(old, bytes);
  }
  if (bytes == 0) {
    free(old);
    return NULL;
  }
  if (bytes < smallest && (fresh = next.malloc(bytes))) return move(old, fresh, bytes);
  if (bytes <= PTRDIFF_MAX - PAGE_BYTES && resize(old, rounded(bytes))) return old;
  return move(old, malloc(bytes), bytes);
}

EXPORTED void *reallocarray(void *old, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(old, bytes);
}

/* What is no alignment is for the C library to refuse. */
static void *aligned(size_t alignment, size_t bytes) {
  bool is_power = alignment && !(alignment & (alignment - 1));
  if (bytes < smallest || !is_power || alignment > ARENA_BYTES / 4) return NULL;
  return allocate_large(alignment, bytes, 0, false);
}

EXPORTED void *memalign(size_t alignment, size_t bytes) {
  void *got = aligned(alignment, bytes);
  if (got || !ready()) return got;
  return next.memalign(alignment, bytes);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes) {
  static void *(*real)(size_t, size_t);
  void *got = aligned(alignment, bytes);
  if (got) return got;
  if (!real) real = (void *(*)(size_t, size_t))look_up("aligned_alloc");
  return real(alignment, bytes);
}

EXPORTED int posix_memalign(void **out, size_t alignment, size_t bytes) {
  static int (*real)(void **, size_t, size_t);
  void *got = alignment % sizeof(void *) == 0 ? aligned(alignment, bytes) : NULL;
  if (got) {
    *out = got;
    return 0;
  }
  if (!real) real = (int (*)(void **, size_t, size_t))look_up("posix_memalign");
  return real(out, alignment, bytes);
}

EXPORTED void *valloc(size_t bytes) { return memalign(PAGE_BYTES, bytes); }
EXPORTED void *pvalloc(size_t bytes) {
  if (bytes > PTRDIFF_MAX - PAGE_BYTES) {
    errno = ENOMEM;
    return NULL;
  }
  return memalign(PAGE_BYTES, bytes ? rounded(bytes) : PAGE_BYTES);
}

EXPORTED size_t malloc_usable_size(void *address) { return address && ready() ? usable(address) : 0; }

/* Zeros, as of the C library's memory, and not what the file has. What was promised stays so. */
static int forget(char *start, uint64_t bytes, const struct block *b) {
  if (b->is_private)
    return mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
                   MAP_FAILED
               ? -1
               : 0;
  if (b->file != file.number || !file_is_there() ||
      fallocate(file.descriptor, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)offset_of(start), (off_t)bytes))
    memset(start, 0, bytes);
  return 0;
}

EXPORTED int madvise(void *start, size_t asked, int advice) {
  uint64_t bytes = rounded(asked);
  int done = 1; /* 1: for the kernel to do */
  bool forgets = advice == MADV_DONTNEED || advice == MADV_FREE;
  if (forgets && in_arena(start) && bytes && (uint64_t)start % PAGE_BYTES == 0) {
    pthread_mutex_lock(&lock);
    unsigned i = first_behind(offset_of(start));
    struct block *b = &block[i];
    if (i < blocks && !b->going && !b->kept && !b->lost && b->offset <= offset_of(start) &&
        bytes <= b->offset + b->bytes - offset_of(start))
      done = advice == MADV_FREE ? 0 : forget(start, bytes, b);
    pthread_mutex_unlock(&lock);
  }
  return done == 1 ? (int)syscall(SYS_madvise, start, asked, advice) : done;
}

/* --- from the beginning to the end ------------------------------------------------ */

/* A program with an allocator of its own may have only a part of ours in use: a block of one kind must not come to the
 * other's free. */
static bool is_in_use(void) {
  Dl_info here, found;
  void *used = dlsym(RTLD_DEFAULT, "malloc");
  return used && dladdr(used, &found) && dladdr((void *)is_in_use, &here) && found.dli_fbase == here.dli_fbase;
}

/* First of all: handlers of a fork that are registered later run before ours, and may allocate. */
__attribute__((constructor(101))) static void begin(void) {
  ready();
  read_settings();
  if (mode != OFF && !is_in_use()) {
    tell("runahead: heap blocks stay where they are: the program has an allocator of its own.\n");
    mode = OFF;
  }
  if (mode != OFF) pthread_atfork(before_fork, in_parent, in_child);
}

__attribute__((destructor)) static void at_exit(void) {
  const char *wanted = getenv("RUNAHEAD_OOC_STATS");
  char text[512];
  if (!wanted || strcmp(wanted, "1")) return;
  snprintf(text, sizeof text,
           "runahead: heap: out of core %lu blocks of %lu MB in all, at most %lu MB at once; in memory because they "
           "fit %lu of %lu MB, because there was no room on disk %lu of %lu MB; made private by %lu forks\n",
           seen.made, seen.made_bytes >> 20, seen.most_bytes >> 20, seen.fitted, seen.fitted_bytes >> 20, seen.refused,
           seen.refused_bytes >> 20, seen.forks);
  tell(text);
}
