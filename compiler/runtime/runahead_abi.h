/* What compiled code and the run-time layer agree on.
 *
 * The pass describes each loop nest that it instruments (a "site") in a static
 * table and hands the run-time values (bounds, strides, addresses) over in one
 * array when the nest is entered; what is known when the program is linked lies in
 * the table already. All policy lives in the run-time layer; the
 * compiled code only says where it is.
 *
 * Rules:
 *  - Nothing here may be dereferenced on trust: addresses and trip counts come
 *    from a running program and may be garbage. They are hints.
 *  - Compiled code touches three things only: the flag `armed`, the functions
 *    below, and the first fields of struct runahead_nest.
 *  - A change of meaning or layout needs a new RUNAHEAD_ABI number, which is part
 *    of the flag's link name, so that an old object does not link with a new
 *    library, and an object without the library says what is missing.
 */
#ifndef RUNAHEAD_ABI_H
#define RUNAHEAD_ABI_H

#include <stdint.h>

#define RUNAHEAD_ABI 3
/* Named so that the linker's "undefined reference" tells the cure. */
#define RUNAHEAD_ARMED_SYMBOL "runahead_ooc_3_is_missing__link_with_lrunahead_ooc"

/* Loops on the way from a site's root inwards that carry a counter. */
#define RUNAHEAD_MAX_LEVELS 4
/* Further inner loops that a reference may run through in one iteration: chains
 * of at most MAX_LEVELS loops, one loop beside, and at least one is a level; of a
 * reference in a called function, all loops around it, here and there, are no more. */
#define RUNAHEAD_MAX_BOXES 4
#define RUNAHEAD_MAX_REFERENCES 24

/* A trip count that the compiler cannot know. */
#define RUNAHEAD_UNKNOWN (-1)

enum runahead_reference_flag {
  RUNAHEAD_WRITES = 1,      /* some member of the group stores */
  RUNAHEAD_CONDITIONAL = 2, /* not executed in every iteration */
  RUNAHEAD_INDEX = 4,       /* its values are the index of another reference */
  RUNAHEAD_INDIRECT = 8,    /* the address needs the value of reference `index` */
  RUNAHEAD_SIGNED = 16,     /* the index value is sign-extended */
  RUNAHEAD_CALLED = 32      /* lies in a function that the nest calls; its boxes are loops there */
};

/* One group of references that differ by constants only. */
struct runahead_reference {
  uint8_t flags;
  uint8_t boxes;       /* used entries of the box dimensions */
  uint8_t index_bytes; /* width of the index value: 1, 2, 4 or 8 */
  uint8_t index;       /* the reference that holds the index values */
  int32_t index_offset; /* of the index load inside that reference's group, bytes */
  int32_t low, high;   /* the group touches [address + low, address + high) */
};

/* Values of a site, all int64_t, in this order:
 *   trip count of each level,
 *   then for each reference
 *     address in the first iteration (for indirect ones: without the index term),
 *     byte stride at each level,
 *     stride and count of each box dimension,
 *     for indirect ones: scale, and a constant added to the index before it is
 *     extended.
 * `form` has two bits for each, from the lowest on: where the value is. */
#define RUNAHEAD_MAX_VALUES \
  (RUNAHEAD_MAX_LEVELS +    \
   RUNAHEAD_MAX_REFERENCES * (1 + RUNAHEAD_MAX_LEVELS + 2 * RUNAHEAD_MAX_BOXES + 2))

enum runahead_form {
  RUNAHEAD_GIVEN = 0, /* the next one of the array that enter is given */
  RUNAHEAD_SMALL = 1, /* the next one of `small` */
  RUNAHEAD_KNOWN = 2, /* the next one of `known`, which the linker may have filled in */
  RUNAHEAD_ZERO = 3
};

enum runahead_site_flag {
  RUNAHEAD_STREAM = 1 /* the root lies inside another loop: it is entered again and
                         again, and mostly goes on where it left off */
};

struct runahead_site {
  uint32_t abi;
  uint8_t levels;
  uint8_t references;
  uint16_t flags;
  const char *where; /* "function (file:line)", for the statistics */
  const struct runahead_reference *reference;
  const uint8_t *form;
  const int16_t *small;
  const int64_t *known;
  uint64_t values;     /* how many in all */
  uint64_t memory[24]; /* the run-time layer's own notes; zero at start */
};

/* The part of an active nest that compiled code reads. */
struct runahead_nest {
  uint64_t window_start; /* while a stream's first reference stays inside the */
  uint64_t window_bytes; /*   window, there is nothing to do */
  uint32_t level;        /* at which step wants to be called; LEVELS = nowhere */
  uint32_t reserved;
};

/* Functions that compiled code calls. */
struct runahead_nest *runahead_ooc_enter(struct runahead_site *site, const int64_t *given,
                                         struct runahead_nest *previous);
int64_t runahead_ooc_step(struct runahead_nest *nest, int64_t c0, int64_t c1, int64_t c2,
                          int64_t c3);
/* In the place of memcpy and memset. */
void runahead_ooc_copy(void *to, const void *from, uint64_t bytes);
void runahead_ooc_set(void *to, int byte, uint64_t bytes);

#endif
