/* The heap's own parts and who uses whom; nobody uses what stands above it:
 *
 *   syscall -> map, advice, fork   calls that programs make by their numbers
 *   calls, map -> blocks           malloc and its kin, mappings: which of them lie in blocks, and what becomes of these
 *   fork, advice -> segments       what is made of blocks as memory
 *   blocks, segments -> arena      addresses, and which part of the file is whose
 *   arena -> file -> settings      room on the disk
 *   blocks -> fits
 *   all -> next                    what is not ours to do
 *
 * Invariants:
 *  - The file system has promised the room before a block is handed out (fallocate), so that no store
 *    ends in SIGBUS because a disk is full. What cannot be promised comes from the C library, and is said once.
 *  - Of a range of the file that no block has, every byte reads as zero.
 *  - A child made by fork sees what was there at the fork, and nothing later: before the fork all blocks become
 *    private mappings of the file, which is never written again. What either changes from then on lies in memory.
 *  - The descriptor is used only after a look that it still leads to our file: programs close what they did not open.
 *  - Nothing of ours is called with the lock held but system calls. Calls of the run-time layer, which allocate,
 *    are made with `heap_inside` set, so that what they want comes from the C library.
 */
#ifndef RUNAHEAD_HEAP_H
#define RUNAHEAD_HEAP_H

#include "../internal.h"
#include <sys/types.h>

/* --- next.c: whatever allocator comes next, the C library's as a rule ----------- */

extern struct next {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*memalign)(size_t, size_t);
  void (*free)(void *);
  size_t (*usable)(void *);
} next;
bool next_ready(void); /* false: it is being looked up at this moment */
void *next_look_up(const char *name);
/* For what is allocated while that is looked up. */
void *next_early_malloc(size_t bytes);
bool next_is_early(const void *address);
size_t next_early_bytes(const void *address);

/* The calls themselves, where those of the same name are ours. */
long (*next_syscall(void))(long, ...);
void *raw_map(void *address, uint64_t bytes, int protection, int flags, int descriptor, off_t offset);
int raw_unmap(void *address, uint64_t bytes);
void *raw_remap(void *old, uint64_t old_bytes, uint64_t bytes, int flags, void *to);
int raw_advise(void *start, uint64_t bytes, int advice);

/* --- settings.c: what the user wants, and what is said ----------------------------- */

extern struct settings {
  enum { HEAP_UNREAD, HEAP_OFF, HEAP_WHEN_SHORT, HEAP_ALWAYS } mode;
  bool unusable;     /* no folder for the file, or no addresses */
  const char *cause; /* of what failed last, where it is not the folder */
  char folder[4096];
  _Atomic uint64_t smallest; /* bytes of a block */
} settings;
void settings_read(void);
void settings_choose_smallest(void);
void heap_tell(const char *text);
/* That blocks stay in memory; once. */
void heap_tell_stays(int error);

/* --- fits.c: which blocks stay in memory --------------------------------------------- */

/* `given_back`: of a block that makes place for this one. */
bool fits_in_memory(uint64_t bytes, uint64_t given_back);

/* --- file.c: the nameless file on disk ------------------------------------------------ */

extern struct file {
  int descriptor;
  uint64_t device, inode;
  unsigned number; /* of those that there were */
} file;
bool file_open(void);
bool file_is_there(void);
bool file_is_ours(int descriptor);
/* Blocks that are left keep it alive. */
void file_drop(void);
/* Where it fails errno tells why. */
bool file_promise(uint64_t offset, uint64_t bytes);
void file_punch(uint64_t offset, uint64_t bytes);
/* What is there reads as zeros; the room stays promised. */
bool file_zero(uint64_t offset, uint64_t bytes);

/* --- arena.c: addresses, and the blocks in them ---------------------------------------- */

/* Half of what a file on ext4 may have. Addresses that are reserved cost nothing. */
#define ARENA_BYTES ((uint64_t)8 << 40)
#define MAX_BLOCKS 16384

struct block {
  uint64_t offset, bytes; /* in the arena and in the file; of whole pages */
  unsigned file;          /* the number of its file, of those that there were */
  bool is_private;        /* since a fork; the file may be another process's as well */
  bool mapped;            /* made by mmap, and not for free to give up */
  bool foreign;           /* the program has something else there; nobody else is to be put there */
  bool kept;              /* freed, and for the next; as it was otherwise */
  bool going;             /* being given up: whoever does so erases it */
  bool lost;              /* nobody's; its file could not be emptied there */
  bool told;              /* it has a region, */
  bool with_file;         /*   which has a descriptor */
};

/* Offsets in the arena. */
struct range {
  uint64_t start, end;
};

extern __thread bool heap_inside;
/* No signal's handler comes between: it may allocate or unmap. */
void heap_lock(void);
void heap_unlock(void);
void heap_lock_is_new(void); /* in a forked child, which held it */
/* The same with `heap_inside` set. */
void heap_enter(void);
void heap_leave(void);

extern char *_Atomic arena;
/* With the lock held: */
extern struct block block[MAX_BLOCKS];
extern unsigned blocks;

bool arena_holds(const void *address);
/* What of [address, address + bytes) lies in the arena; of no bytes where nothing does. */
struct range arena_part(uint64_t address, uint64_t bytes);
static inline uint64_t arena_offset(const void *address) { return (uint64_t)((const char *)address - arena); }
static inline uint64_t whole_pages(uint64_t bytes) { return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1); }
/* The first block that ends behind the offset. */
unsigned arena_first_behind(uint64_t offset);
/* The block for free that begins there, or NULL. */
struct block *arena_find(const void *address);
/* NULL, and errno: there is none. */
struct block *arena_make(uint64_t alignment, uint64_t bytes);
void arena_insert(unsigned index, struct block made);
void arena_erase(struct block *gone);
/* Makes two blocks of one where the offset is inside it. */
void arena_cut(uint64_t offset);
/* Takes what no block has in the range for the program. */
void arena_place_foreign(struct range range);
bool arena_grow(struct block *block, uint64_t bytes); /* or by more */
bool arena_grow_to(struct block *block, uint64_t bytes);
/* Nobody sees what was there any more, and the disk has its room back. */
bool arena_empty(uint64_t offset, uint64_t bytes, bool is_private);
/* Addresses are ours, and nothing is there. */
bool arena_reserve(uint64_t offset, uint64_t bytes);
bool arena_reserve_hole(uint64_t offset, uint64_t bytes); /* if nobody else is there */

/* --- segments.c ---------------------------------------------------------------------------- */

struct segment {
  uint64_t start, end; /* in the arena */
  int protection;
  bool shared, ours; /* a mapping of our file */
};

/* With the lock held, until the next such call; NULL: it is not known. */
const struct segment *segments_in(uint64_t start, uint64_t end, unsigned *count);
bool segments_are_plain(uint64_t start, uint64_t end); /* readable and writable */
/* Memory of the process's own instead of what is mapped there, with the same in it. */
bool segments_copy_into_memory(uint64_t start, uint64_t end);

/* --- blocks.c ------------------------------------------------------------------------------ */

/* NULL: it is the C library's. errno is as it was. */
void *blocks_allocate(uint64_t alignment, uint64_t asked, uint64_t given_back, bool zeros);
/* The same for mmap: zeros, and any part of it may go. */
void *blocks_map(uint64_t bytes);
/* False: it is no block of ours. */
bool blocks_give_up(void *address);
/* Bytes, or 0 where it is no block of ours. */
uint64_t blocks_size(const void *address);
/* To so many bytes where it is; also where it has them already. */
bool blocks_resize(char *address, uint64_t bytes);
/* Between heap_enter and heap_leave: regions are told of again for the blocks in the range that have none; and one,
 * which begins there, is told of no more. The lock is given up meanwhile. */
void blocks_tell(struct range range);
void blocks_tell_no_more(struct range range);
void blocks_count_bytes(uint64_t more, uint64_t less);

extern struct seen {
  uint64_t made, made_bytes, now_bytes, most_bytes, fitted, fitted_bytes, refused, refused_bytes, forks;
} seen;

/* --- map.c, advice.c -------------------------------------------------------------------------- */

/* What programs call, by names that no other copy of the heap stands before: a preloaded one and the program's own may
 * both be there. */
void *heap_mmap(void *address, size_t asked, int protection, int flags, int descriptor, off_t offset);
int heap_munmap(void *address, size_t asked);
void *heap_mremap(void *old, size_t old_asked, size_t asked, int flags, void *to);
int heap_madvise(void *start, size_t asked, int advice);

/* --- fork.c ---------------------------------------------------------------------------------- */

void fork_begin(void); /* from now on forks are seen */
void fork_before_raw(void); /* before a call that makes a child without telling anybody */

#endif
