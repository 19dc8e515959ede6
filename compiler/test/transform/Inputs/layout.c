/* An allocator for compilers under test: what is free is given out again at once, the last first,
 * and everything lies elsewhere for each LAYOUT (a number in the environment). What depends on
 * addresses, or outlives what it is keyed by, shows. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM ((size_t)4 << 30)
#define CLASSES 4096 /* of 16 bytes: larger blocks are not given out again */

struct head {
  size_t size; /* that may be used */
  size_t class; /* CLASSES: none */
};
static char *next, *end;
static void *unused[CLASSES];
static uint64_t random_state;
static atomic_flag taken = ATOMIC_FLAG_INIT;

static uint64_t random_number(void) {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return random_state;
}

static void start(void) {
  next = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (next == MAP_FAILED) abort();
  end = next + ROOM;
  const char *layout = getenv("LAYOUT");
  random_state = 88172645463325252u + (layout ? strtoul(layout, NULL, 10) : 0) * 1000003;
  for (int i = 0; i < 8; i++) random_number();
  next += random_number() % 65536 * 16;
}

static void *take(size_t size, size_t alignment) {
  size_t class = (size + 15) / 16;
  while (atomic_flag_test_and_set(&taken)) {
  }
  if (!next) start();
  char *block = NULL;
  if (class < CLASSES && alignment <= 16 && unused[class]) {
    block = unused[class];
    memcpy(&unused[class], block, sizeof(void *));
  } else {
    next += random_number() % 4 * 16;
    block = (char *)(((uintptr_t)next + sizeof(struct head) + alignment - 1) & -(uintptr_t)alignment);
    if (size > (size_t)(end - block)) abort();
    next = block + (class ? class : 1) * 16;
    struct head *head = (struct head *)block - 1;
    head->size = (class ? class : 1) * 16;
    head->class = class < CLASSES && alignment <= 16 ? class : CLASSES;
  }
  atomic_flag_clear(&taken);
  return block;
}

void *malloc(size_t size) { return take(size, 16); }

void free(void *block) {
  if (!block) return;
  size_t class = ((struct head *)block - 1)->class;
  if (class == CLASSES) return;
  while (atomic_flag_test_and_set(&taken)) {
  }
  memcpy(block, &unused[class], sizeof(void *));
  unused[class] = block;
  atomic_flag_clear(&taken);
}

void *calloc(size_t n, size_t size) {
  void *block = take(n * size, 16);
  return memset(block, 0, n * size);
}

void *realloc(void *old, size_t size) {
  size_t had = old ? ((struct head *)old - 1)->size : 0;
  if (old && size <= had && size) return old;
  void *block = take(size, 16);
  if (old) memcpy(block, old, had < size ? had : size);
  free(old);
  return block;
}

void *memalign(size_t alignment, size_t size) { return take(size, alignment < 16 ? 16 : alignment); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return 0;
}
size_t malloc_usable_size(void *block) { return block ? ((struct head *)block - 1)->size : 0; }
