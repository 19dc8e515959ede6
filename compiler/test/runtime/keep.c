// Of data larger than memory that a nest only reads, in one run, the beginning stays: what is behind it is thrown out
// once it is passed, in the pieces in which the kernel keeps a file. Nothing is of what fits, of what is changed, where
// the kernel's windows are narrow, of what is gone through backwards, of what the nest comes back to, of tables, of
// other arrays, and while there is room for what is on its way. What the kernel reads then is touched ahead of the
// program, each page once at most, and not past the array's end.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -Wl,--wrap=submit_release,--wrap=submit_touch,--wrap=madvise,--wrap=limits_pressed -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=33554432 %t
#include "../../runtime/nest.h"
#include <stdio.h>
#include <sys/mman.h>

enum { MB = 1 << 20, BYTES = 64 * MB, PIECE = 2 * MB, LINE = 4096 };
static int wrong;
#define IS(what) \
  if (!(what)) printf("line %d, not so: %s\n", __LINE__, #what), wrong = 1

static uint64_t start, first, last, lowest, highest, beyond, first_beyond, pieces, at, wanted_room;
static bool in_order, split, sequential, full = true;
bool __wrap_limits_pressed(uint64_t room) {
  wanted_room = room;
  return full;
}
void __wrap_submit_release(uint64_t from, uint64_t bytes, bool at_once) {
  const struct region *region = region_at(from, NULL);
  if (!at_once) return;
  if (!first) first = last = from;
  in_order &= from == last && from + bytes <= at;
  split |= (from - region->start + region->offset) % PIECE || bytes % PIECE;
  last = from + bytes;
  if (from < lowest) lowest = from;
  if (last > highest) highest = last;
  if (from >= beyond && from < first_beyond) first_beyond = from;
  pieces += bytes / PIECE;
}
int __wrap_madvise(void *from, size_t bytes, int advice) {
  (void)from, (void)bytes;
  sequential |= advice == MADV_SEQUENTIAL;
  return 0;
}

/* Now and then the helper has no room: what the program has come to by then is left out. */
static uint64_t touched_first, touched_last, touches, array_end;
static bool touched_in_order;
bool __wrap_submit_touch(const struct region *region, uint64_t from, uint64_t until, const _Atomic uint64_t *reached) {
  if (++touches % 4 == 0) return false;
  if (!touched_first) touched_first = touched_last = from;
  touched_in_order &= from >= touched_last && until > from && until <= at + 2 * region->window && from >= *reached &&
                      *reached <= at && *reached >= at - PIECE && until <= array_end;
  touched_last = until;
  return true;
}

static void forget(void) {
  first = last = highest = pieces = touches = touched_first = touched_last = 0;
  touched_in_order = true;
  lowest = first_beyond = UINT64_MAX;
  in_order = true;
  split = sequential = false;
}

static void go_through(struct runahead_nest *nest, int64_t lines, int64_t stride) {
  for (int64_t line = 0; line < lines;) {
    at = start + (uint64_t)(line * stride);
    line = runahead_ooc_step(nest, line, 0, 0, 0);
  }
}

/* Goes once through so many bytes from there on; a site of its own, or what one has learnt would be the next one's. */
static struct runahead_nest *pass(struct runahead_site *site, int64_t from, int64_t bytes, int64_t stride) {
  const int64_t lines = bytes / LINE, value[] = {lines, from, stride};
  start = (uint64_t)from;
  array_end = (uint64_t)(from + bytes);
  forget();
  struct runahead_nest *nest = runahead_ooc_enter(site, value, NULL);
  go_through(nest, lines, stride);
  return nest;
}

/* Goes through two arrays at once, so many lines of each an iteration. */
static void pass_two(struct runahead_site *site, int64_t iterations, int64_t one, int64_t lines, int64_t other,
                     int64_t other_lines) {
  const int64_t value[] = {iterations, one, lines * LINE, other, other_lines * LINE};
  forget();
  go_through(runahead_ooc_enter(site, value, NULL), iterations, 0);
}

/* Through rows of 4 MB, each of which begins so many bytes after the one before. */
static void pass_rows(struct runahead_site *site, int64_t from, int64_t apart) {
  enum { ROW = 4 * MB / LINE };
  const int64_t rows = (BYTES - 4 * MB) / apart, value[] = {rows, ROW, from, apart, LINE};
  forget();
  struct runahead_nest *nest = runahead_ooc_enter(site, value, NULL);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t line = 0; line < ROW;) line = runahead_ooc_step(nest, row, line, 0, 0);
}

static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */
#define SITE_OF(name, kind, levels_, bytes, other_bytes, references_, values_)                               \
  static const struct runahead_reference name##_reference[] = {{.flags = kind, .high = bytes},               \
                                                               {.flags = kind, .high = other_bytes}};        \
  static struct runahead_site name = {.abi = RUNAHEAD_ABI, .levels = levels_, .references = references_,     \
                                      .where = #name, .reference = name##_reference, .form = all_given, \
                                      .values = values_}
#define SITE(name, kind) SITE_OF(name, kind, 1, LINE, LINE, 1, 3)
#define SITE_OF_TWO(name, lines, other_lines) SITE_OF(name, 0, 1, lines * LINE, other_lines * LINE, 2, 5)
#define SITE_OF_ROWS(name) SITE_OF(name, 0, 2, LINE, LINE, 1, 5)
SITE(reads, 0);
SITE(shifted, 0);
SITE(small, 0);
SITE(backwards, 0);
SITE(narrow, 0);
SITE(writes, RUNAHEAD_WRITES);
SITE(roomy, 0);
SITE(again, 0);
SITE_OF_ROWS(overlapping);
SITE_OF_ROWS(touching);
SITE_OF_TWO(twice, 1, 2);
SITE_OF_TWO(streams, 1, 1);
SITE_OF_TWO(unequal, 1, 14);
SITE_OF_TWO(beside_table, 2, 18);

/* The nest is not over with it, or it is not the nest's. */
static void what_is_wanted_stays(struct region *region, int64_t p) {
  pass_rows(&overlapping, p, MB); /* what is 3 MB back comes next */
  IS(!pieces);
  pass_rows(&touching, p, 4 * MB - 2 * LINE);
  IS(pieces > 10);
  pass_two(&twice, BYTES / 2 / LINE, p, 1, p, 2);
  IS(!pieces);
  /* Of 60 MB, 4 of them in an array that begins amid a piece, 14 may be kept; the array before it is another's. */
  pass_two(&unequal, 1024, p + MB / 4, 1, p + 8 * MB, 14);
  IS(pieces > 10 && lowest >= (uint64_t)p + MB / 4 && !split);
  atomic_store(&region->table_start, (uint64_t)p + 56 * MB);
  atomic_store(&region->table_end, (uint64_t)p + 62 * MB);
  atomic_store(&region->table_bytes, 6 * MB);
  atomic_store(&region->table_entries, 16);
  pass_two(&beside_table, 768, p + 56 * MB, 2, p, 18);
  IS(pieces > 10 && highest <= (uint64_t)p + 56 * MB);
  atomic_store(&region->table_entries, 0);
}

/* Each of two streams has windows of its own on their way: of 30 MB 16 are for these, and 4 behind the program. */
static void each_has_its_windows(int64_t p) {
  beyond = (uint64_t)p + 32 * MB;
  pass_two(&streams, 30 * MB / LINE, p, 1, p + 32 * MB, 1);
  IS(first == (uint64_t)p + 6 * MB && first_beyond == beyond + 6 * MB);
}

/* Somebody else may have all of it in memory; and a nest may begin again without being entered. */
static void only_where_memory_is_full(int64_t p) {
  full = false;
  pass(&roomy, p, BYTES, LINE);
  IS(!pieces && wanted_room == 12 * MB);
  full = true;
  struct runahead_nest *nest = pass(&again, p, BYTES, LINE);
  uint64_t before = first, many = pieces;
  forget();
  go_through(nest, BYTES / LINE, LINE);
  IS(first == before && pieces == many && in_order);
}

int main(void) {
  char *p = runahead_ooc_alloc(BYTES, 0);
  struct region *region = p ? region_at((uint64_t)p, NULL) : NULL;
  if (!region) return 1;
  region->window = 2 * MB;

  for (int time = 0; time < 2; time++) { /* of 32 MB 2 are for other things, 8 for windows, 2 are behind the program */
    pass(&reads, (int64_t)p, BYTES, LINE);
    IS(touched_in_order && touched_first <= start + 2 * PIECE && touched_last == start + BYTES);
    IS(first == start + 20 * MB && last >= start + BYTES - 8 * MB && last <= start + BYTES - PIECE);
    IS(in_order && !split && pieces == (last - first) / PIECE);
    /* The first time nothing is there, and all is read in order; the second time what is missing begins further on. */
    IS(sequential == (time == 0));
    for (long i = 0; i < 20 * MB; i += LINE) p[i] = 1;
  }
  pass(&small, (int64_t)p, 29 * MB, LINE);
  IS(!pieces && !touches);
  pass(&backwards, (int64_t)p + BYTES - LINE, BYTES, -LINE);
  IS(!pieces);
  region->offset = PIECE / 2;
  pass(&shifted, (int64_t)p, BYTES, LINE);
  IS(pieces >= 15 && in_order && !split);
  region->offset = 0;
  region->window = 128 << 10;
  pass(&narrow, (int64_t)p, BYTES, LINE);
  IS(!pieces && !touches);
  region->window = 2 * MB;
  pass(&writes, (int64_t)p, BYTES, LINE);
  IS(!pieces && !touches);
  atomic_store(&region->changed_entries, 0);
  what_is_wanted_stays(region, (int64_t)p);
  each_has_its_windows((int64_t)p);
  only_where_memory_is_full((int64_t)p);
  return wrong;
}
