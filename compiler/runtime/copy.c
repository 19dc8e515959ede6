/* Long copies. Optimisers turn loops that only copy or set memory into calls of memcpy and
 * memset before the pass sees them, and programs call those themselves: to the pass they are
 * nests of one loop whose iteration is a piece, and here is that loop.
 *
 * The pass replaces calls whose length it does not know or that are long; short ones go on to
 * the C library at once. Results are those of memcpy and memset, whatever is armed. Signal
 * handlers may call those, so nothing on the way allocates memory or waits for a lock.
 */
#include "internal.h"
#include <string.h>

/* Below this a copy is over before anything that is asked for arrives. */
#define LONG_COPY ((uint64_t)1 << 20)
#define PIECE ((uint64_t)64 * 1024)

/* One trip count; for each reference its address and its stride. All are given. */
static const struct runahead_reference shapes[2] = {
    {.flags = RUNAHEAD_WRITES, .high = PIECE},
    {.flags = 0, .high = PIECE},
};
static const uint8_t all_given[2];
static struct runahead_site copy_site = {
    RUNAHEAD_ABI, 1, 2, 0, "memcpy", shapes, all_given, NULL, NULL, 5, {0}};
static struct runahead_site set_site = {
    RUNAHEAD_ABI, 1, 1, 0, "memset", shapes, all_given, NULL, NULL, 3, {0}};

/* Calls step where the nest wants it. */
static int64_t step_at(struct runahead_nest *nest, int64_t piece, int64_t next) {
  return nest->level != 0 || piece < next ? next : runahead_ooc_step(nest, piece, 0, 0, 0);
}

EXPORTED void runahead_ooc_copy(void *to, const void *from, uint64_t bytes) {
  if (bytes < LONG_COPY || !arm_is_set()) {
    memcpy(to, from, bytes);
    return;
  }
  int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE), next = 0;
  const int64_t values[5] = {pieces, (int64_t)to, PIECE, (int64_t)from, PIECE};
  struct runahead_nest *nest = runahead_ooc_enter(&copy_site, values, NULL);
  for (int64_t i = 0; i < pieces; i++) {
    next = step_at(nest, i, next);
    uint64_t done = (uint64_t)i * PIECE, part = bytes - done < PIECE ? bytes - done : PIECE;
    memcpy((char *)to + done, (const char *)from + done, part);
  }
}

EXPORTED void runahead_ooc_set(void *to, int byte, uint64_t bytes) {
  if (bytes < LONG_COPY || !arm_is_set()) {
    memset(to, byte, bytes);
    return;
  }
  int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE), next = 0;
  const int64_t values[3] = {pieces, (int64_t)to, PIECE};
  struct runahead_nest *nest = runahead_ooc_enter(&set_site, values, NULL);
  for (int64_t i = 0; i < pieces; i++) {
    next = step_at(nest, i, next);
    uint64_t done = (uint64_t)i * PIECE, part = bytes - done < PIECE ? bytes - done : PIECE;
    memset((char *)to + done, byte, part);
  }
}
