// Tables that look-ups lead to: what was learnt of one holds at the next entry, and one that takes
// most of memory is left to the kernel, even where it is not there, and not given up by the loops
// that come between two uses. A table that stays in memory is looked at ever more rarely, until it
// leaves. What goes past such a table is read no further ahead than there is
// room for, under an advice of its own, and thrown out behind.
// RUN: %plaincc -O1 -I%runtime %s %parts -lpthread -lm -Wl,--wrap=errands_helped,--wrap=submit_release,--wrap=madvise -o %t
// RUN: env RUNAHEAD_OOC_MEMORY=33554432 %t %t.data
#include "../../runtime/nest.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct runahead_nest *runahead_ooc_enter(struct runahead_site *, const int64_t *, struct runahead_nest *);
int64_t runahead_ooc_step(struct runahead_nest *, int64_t, int64_t, int64_t, int64_t);

enum { KEYS = 16 << 20 };
static int wrong;
#define IS(what)                                 \
  do {                                           \
    if (!(what)) printf("not so: %s\n", #what), wrong = 1; \
  } while (0)

/* How much of what was given up was thrown out at once, what of the table, and where "random" was said. */
static uint64_t thrown_out, of_table, told_start, told_end, asked_to;
static char *the_table;
void __wrap_submit_release(uint64_t start, uint64_t bytes, bool at_once) {
  thrown_out += at_once ? bytes : 0;
  of_table += start + bytes > (uint64_t)the_table ? bytes : 0;
}
/* Nobody to hand requests over to: they are made at once. */
bool __wrap_errands_helped(void) { return false; }
int __real_madvise(void *, size_t, int);
int __wrap_madvise(void *start, size_t bytes, int advice) {
  if (advice == MADV_RANDOM) told_start = (uint64_t)start, told_end = (uint64_t)start + bytes;
  if (advice == MADV_WILLNEED && (uint64_t)start + bytes > asked_to) asked_to = (uint64_t)start + bytes;
  return __real_madvise(start, bytes, advice);
}

static const struct runahead_reference shapes[2] = {
    {.flags = RUNAHEAD_INDEX, .high = 4, .index_bytes = 4},
    {.flags = RUNAHEAD_INDIRECT | RUNAHEAD_WRITES, .index_bytes = 4, .index = 0, .high = 4},
};
static const uint8_t all_given[RUNAHEAD_MAX_VALUES]; /* RUNAHEAD_GIVEN is 0 */

static void fill(char *where, uint32_t table_bytes) {
  uint32_t *key = (uint32_t *)where;
  for (uint32_t i = 0; i < KEYS; i++) key[i] = i * 2654435761u % (table_bytes / 4);
}

/* Goes once through the keys, and gives the nest as it was after its first steps and at the end. */
static struct nest *pass(struct runahead_site *site, char *keys, char *table, int64_t many, bool *quiet_at_first) {
  const int64_t value[] = {many, (int64_t)keys, 4, (int64_t)table, 0, 4, 0};
  struct runahead_nest *front = runahead_ooc_enter(site, value, NULL);
  struct nest *nest = (struct nest *)front;
  *quiet_at_first = nest->reference[1].quiet;
  for (int64_t i = 0; i < many;) i = runahead_ooc_step(front, i, 0, 0, 0);
  return nest;
}

static void what_was_learnt_holds(char *keys, char *table) {
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "small",
                                      .reference = shapes, .form = all_given, .values = 7};
  bool quiet_at_first;
  fill(keys, 4 << 20);
  memset(table, 1, 4 << 20);
  IS(pass(&site, keys, table, KEYS, &quiet_at_first)->reference[1].quiet && !quiet_at_first);
  pass(&site, keys, table, 1 << 16, &quiet_at_first);
  IS(quiet_at_first);
  pass(&site, keys, table + (16 << 20), 1 << 16, &quiet_at_first);
  IS(!quiet_at_first); /* another one */
}

static void a_calm_table_is_left_alone(char *keys, char *table, int file) {
  enum { TABLE = 4 << 20 };
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "calm",
                                      .reference = shapes, .form = all_given, .values = 7};
  bool quiet_at_first;
  memset(table, 1, TABLE);
  pass(&site, keys, table, KEYS, &quiet_at_first);
  const int64_t value[] = {KEYS, (int64_t)keys, 4, (int64_t)table, 0, 4, 0};
  struct runahead_nest *front = runahead_ooc_enter(&site, value, NULL);
  int64_t i = 0;
  while (i < KEYS / 4) i = runahead_ooc_step(front, i, 0, 0, 0);
  const struct reference *r = &((const struct nest *)front)->reference[1];
  IS(r->quiet && r->calm > 2);
  msync(table, TABLE, MS_SYNC);
  madvise(table, TABLE, MADV_PAGEOUT);
  posix_fadvise(file, table - keys, TABLE, POSIX_FADV_DONTNEED);
  for (int page = 0; page < 8; page++) ((volatile char *)table)[page * (TABLE / 8)]++;
  asked_to = 0;
  for (int n = 0; n < 2; n++) i = runahead_ooc_step(front, i, 0, 0, 0);
  IS(asked_to > (uint64_t)table); /* brought back */
}

static void most_of_memory_is_left_to_the_kernel(char *keys, char *table, int file) {
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "large",
                                      .reference = shapes, .form = all_given, .values = 7};
  bool quiet_at_first;
  fill(keys, 24 << 20);
  msync(table, 24 << 20, MS_SYNC);
  madvise(table, 24 << 20, MADV_PAGEOUT);
  posix_fadvise(file, KEYS * 4, 24 << 20, POSIX_FADV_DONTNEED);
  struct nest *nest = pass(&site, keys, table, 3 << 12, &quiet_at_first);
  IS(nest->room < (uint64_t)16 << 20);
  IS(nest->reference[1].quiet);
}

static void what_goes_past_makes_room(char *keys, char *table, int file) {
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 2, .where = "past",
                                      .reference = shapes, .form = all_given, .values = 7};
  bool quiet_at_first;
  region_at((uint64_t)keys, NULL)->window = 128 << 10; /* as on most disks */
  pass(&site, keys, table, KEYS, &quiet_at_first); /* the table is learnt here, */
  msync(keys, KEYS * 4, MS_SYNC);
  madvise(keys, KEYS * 4, MADV_PAGEOUT);
  posix_fadvise(file, 0, KEYS * 4, POSIX_FADV_DONTNEED);
  thrown_out = of_table = told_start = told_end = asked_to = 0;
  the_table = table;
  const int64_t half = KEYS / 2, value[] = {KEYS, (int64_t)keys, 4, (int64_t)table, 0, 4, 0};
  struct runahead_nest *front = runahead_ooc_enter(&site, value, NULL); /* and known here */
  for (int64_t i = 0; i < half;) i = runahead_ooc_step(front, i, 0, 0, 0);
  const struct nest *nest = (const struct nest *)front;
  IS(told_start >= (uint64_t)keys && told_end <= (uint64_t)table && told_end - told_start > KEYS * 4 - 2 * PAGE_BYTES);
  IS(asked_to > (uint64_t)(keys + half * 4));
  IS(asked_to <= (uint64_t)(keys + half * 4) + nest->room / 2 + 2 * (uint64_t)nest->unit_bytes);
  IS(thrown_out > half * 4 / 10 * 9 && thrown_out <= half * 4 && of_table == 0);
}

/* How far ahead: further while the program waits, back where it has to read pages itself, not at
 * once to where that was, and not for what it meets at the beginning. */
static void a_distance_is_found(void) {
  static struct runahead_site site;
  const uint64_t room = 1 << 20, unit = 64 << 10;
  const struct waiting late = {2, 0}, driven_out = {16, 16};
  IS(adapt_tight_distance(&site, room) == room / 4);
  adapt_tight_begins(&site, room);
  for (int i = 0; i < 7; i++) IS(!adapt_tight_passed(&site, room, unit, driven_out));
  IS(adapt_tight_distance(&site, room) == room / 4);
  for (int i = 0; i < 100; i++) adapt_tight_passed(&site, room, unit, late);
  const uint64_t far = adapt_tight_distance(&site, room);
  IS(far > room / 3 && far <= room / 2);
  for (int i = 0; i < 100; i++) adapt_tight_passed(&site, room, unit, (struct waiting){0, 0});
  IS(adapt_tight_distance(&site, room) == far);
  IS(adapt_tight_passed(&site, room, unit, driven_out));
  IS(adapt_tight_distance(&site, room) == far - far / 4);
  for (int i = 0; i < 200; i++) adapt_tight_passed(&site, room, unit, late);
  IS(adapt_tight_distance(&site, room) > far / 6 * 5 && adapt_tight_distance(&site, room) < far / 16 * 15);
}

/* Enters a loop that sets the whole table. */
static const struct nest *set(char *table) {
  static const struct runahead_reference reference[1] = {{.flags = RUNAHEAD_WRITES, .high = 4096}};
  static struct runahead_site site = {.abi = RUNAHEAD_ABI, .levels = 1, .references = 1, .where = "set",
                                      .reference = reference, .form = all_given, .values = 3};
  const int64_t value[] = {(24 << 20) / 4096, (int64_t)table, 4096};
  return (const struct nest *)runahead_ooc_enter(&site, value, NULL);
}

static void loops_between_keep_it(char *table) {
  const struct nest *nest = set(table);
  IS(!nest->reference[0].releases && !nest->reference[0].writes);
  IS(nest->room < (uint64_t)16 << 20);
  for (int i = 0; i < 20; i++) nest = set(table);
  IS(nest->reference[0].releases && nest->reference[0].writes);
  IS(nest->room == (uint64_t)32 << 20);
}

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  size_t bytes = (size_t)KEYS * 4 + (32 << 20);
  char *keys = runahead_ooc_map(argv[1], bytes, RUNAHEAD_OOC_CREATE), *table = keys + (size_t)KEYS * 4;
  int file = open(argv[1], O_RDWR);
  if (!keys || file < 0) return 1;
  what_was_learnt_holds(keys, table);
  a_calm_table_is_left_alone(keys, table, file);
  memset(table, 1, 32 << 20);
  most_of_memory_is_left_to_the_kernel(keys, table, file);
  what_goes_past_makes_room(keys, table, file);
  a_distance_is_found();
  loops_between_keep_it(table);
  return wrong;
}
