/* A loop nest at run time, as nest.c, plan.c, tell.c, shape.c and prefetch.c share it. Each nest
 * belongs to the thread that entered it. */
#ifndef RUNAHEAD_NEST_H
#define RUNAHEAD_NEST_H

#include "internal.h"

/* Units that prefetching may be ahead, twice over. */
#define SAMPLES 256
/* A trip count that nobody reaches, small enough to be multiplied. */
#define FAR ((int64_t)1 << 40)

/* Of memory, what the program has beside long arrays: its code, its stack, small arrays. */
#define BESIDE(memory) ((memory) / 16)

struct reference {
  const struct runahead_reference *shape;
  int64_t address, stride[RUNAHEAD_MAX_LEVELS];
  struct dimension box[RUNAHEAD_MAX_BOXES];
  int64_t scale, add;
  struct region *region; /* NULL: not out of core, leave alone */
  int64_t issued;        /* units before this one have been prefetched, */
  int64_t confirmed;     /*   and before this one looked at once more */
  bool sequential, releases;
  bool writes;           /* what it changes is to be written as soon as it is behind */
  bool led;              /* another reference is at the same places before it, */
  unsigned led_level;    /*   from iteration led_from of this level on */
  int64_t led_from;
  int64_t run_bytes;     /* sequential: by how much a unit moves on */
  uint64_t thrown_out;   /* what has been passed behind the kept beginning is, up to this address; 0: nothing is to be */
  uint64_t touched;      /* ahead of the program the helper has been asked to touch all up to here; */
  _Atomic uint64_t reached; /*   and so far the program has come, as the helper sees it */
  uint64_t asked;        /* behind the program up to here it has been asked whether anything must be */
  /* Of an indirect reference: pages seen and sent since the last judgement, and which
   * share of them had to be fetched, from 1 down to LEAST_SHARE. Quiet: hardly any; then
   * it is probed only. */
  uint64_t seen, found;
  int64_t lowest, highest; /* addresses that its look-ups led to */
  double share;
  bool quiet;
  unsigned calm;         /* probes in a row that missed nothing, */
  int64_t probe_at;      /*   and the unit of the next one */
};

/* An in-core table is looked up for nothing; one page in 256 is 0.2 us a look-up on a disk
 * of 50 us, where following costs 0.02. */
#define LEAST_SHARE (1.0 / 256)
#define LEAST_SHARE_FITTING (1.0 / 32)

struct sample {
  int64_t unit;
  uint64_t address;
};

struct nest {
  struct runahead_nest front; /* must be first: compiled code reads it */
  struct runahead_site *site;
  unsigned levels, level, references;
  int64_t trip[RUNAHEAD_MAX_LEVELS];
  int64_t unit_iterations, units_in_level;
  int64_t origin;      /* streams: iterations between the first entry and this one */
  bool run_on, indirect;
  bool streams;        /* each of its arrays is gone through once, and the kernel's windows are wide */
  bool ours;           /* nothing is left to the kernel's read-ahead: windows do not fit */
  bool confirming;     /* runs of pages are looked at once more before their use */
  bool following;      /* some indirect reference is not quiet */
  uint64_t room;       /* bytes of memory beside the tables that look-ups lead to */
  uint64_t coming;     /*   and of these, what stays free for what is on its way (keep.c) */
  double unit_bytes;   /* of all references, indirect ones by their share of a page each */
  uint64_t sequential_bytes; /* a unit's, of sequential references */
  int64_t present;     /* unit */
  uint64_t since;      /* when it began, */
  struct waiting waiting; /*   and how often the thread had waited by then; */
  uint64_t faults;     /* pages that it had to read itself in the unit before */
  bool gone_through;   /* a stream that has come past half of memory: what is behind it may go */
  int64_t released;    /* units before this one have been given up, or were not to be */
  uint64_t looked;     /* when, whether memory is full */
  struct sample sample[SAMPLES];
  struct batch batch;
  struct reference reference[RUNAHEAD_MAX_REFERENCES];
};

/* --- shape.c: what a nest touches, and in which units to walk it ----------- */

const int64_t *shape_read(struct reference *r, const struct runahead_reference *shape,
                          unsigned levels, const int64_t *value);
const struct reference *shape_index(const struct nest *nest, const struct reference *r);
int64_t shape_count(int64_t count, int64_t stride, int64_t outer);
unsigned shape_below(const struct nest *nest, const struct reference *r, unsigned level,
                     struct dimension *out);
bool shape_left_to_called(const struct nest *nest, const struct reference *r);
void shape_find_leaders(struct nest *nest);
bool shape_choose_level(struct nest *nest);
void shape_set_unit(struct nest *nest);
bool shape_sequential(const struct nest *nest, const struct reference *r);
bool shape_sparse(const struct nest *nest, const struct reference *r);
double shape_footprint(const struct nest *nest, const struct reference *r);
double shape_nest_footprint(const struct nest *nest);
bool shape_releases(const struct nest *nest, const struct reference *r);
bool shape_shares(const struct nest *nest, const struct reference *r);

/* --- prefetch.c: from units to pages -------------------------------------- */

/* Prefetches a reference up to (not including) unit `until`, within the budget. */
void prefetch_until(struct nest *nest, struct reference *r, int64_t until, uint64_t *budget,
                    uint64_t *wanted, uint64_t *sent);
/* Looks once more at what is due before `until`, and sends what is missing. */
void prefetch_confirm(struct nest *nest, struct reference *r, int64_t until, uint64_t *budget);
/* Notes that the program has passed an affine reference's units before `until`. */
void prefetch_note(struct nest *nest, struct reference *r, int64_t until);
/* Where a unit of an affine reference begins. */
uint64_t prefetch_place(const struct nest *nest, const struct reference *r, int64_t unit);
/* How many pages a sample of an indirect reference's next look-ups misses; in doubt it is looked
 * at what is believed to be in memory, too. */
uint64_t prefetch_misses(struct nest *nest, struct reference *r, int64_t unit, bool doubt);
/* What a reference's units [from, until) touched: what it changed is written, and what will not
 * be touched again is given up; if told to at once, where it was not changed. */
void prefetch_behind(struct nest *nest, const struct reference *r, int64_t from, int64_t until,
                     bool at_once);

/* --- plan.c: what a nest decides -------------------------------------------- */

/* A nest whose regions are known: its tables, and the room beside them. */
void plan_enter(struct nest *nest);
void plan_room(struct nest *nest);
/* Its units have a (new) size: what they bring in, and who reads runs of pages. */
void plan_units(struct nest *nest);
/* What is given up and written behind the program; of a stream, whose way shows how long it is, later. */
void plan_behind(struct nest *nest);
void plan_look_at_way(struct nest *nest, int64_t unit);
/* Which look-ups are followed, by what they brought in, and by a look now and then. True: units are
 * to have another size. */
bool plan_judge(struct nest *nest);
bool plan_probe(struct nest *nest, int64_t unit);

/* How many units ahead, */
int64_t plan_ahead(const struct nest *nest);
/*   and up to (not including) which one to prefetch this reference with the program at `unit`. */
int64_t plan_until(const struct nest *nest, const struct reference *r, int64_t unit, int64_t ahead);

bool plan_on_fast_disk(const struct nest *nest);
bool plan_windows_fit(const struct region *region);
bool plan_is_scattered(const struct reference *r);
bool plan_is_kept(const struct nest *nest, const struct reference *r);
bool plan_is_tight(const struct nest *nest);
/* Streams of more than memory, so that what one leaves is gone before the next nest wants it. */
bool plan_streams_past_memory(const struct nest *nest);
bool plan_left_to_kernel(const struct nest *nest, const struct reference *r);

/* --- keep.c: what stays of data larger than memory --------------------------- */

/* With units of a (new) size. */
void keep_choose(struct nest *nest);
/* Is the beginning that is to be kept in memory, from the last time? */
bool keep_is_there(const struct reference *r);
/* The units before this one have been passed. */
void keep_beginning(struct nest *nest, int64_t unit);
/* The program is behind this unit: what comes next is touched by the helper. */
void keep_ahead(struct nest *nest, int64_t unit);

/* --- tell.c: what the kernel is told of it ---------------------------------- */

void tell_advice(struct nest *nest);
/* At a nest's end; NULL: of one that is passed over. */
void tell_leaving(const struct nest *nest);
/* Asks for what the program at `unit` will want. */
void tell_wanted(struct nest *nest, int64_t unit);
/* Too far ahead: what is due next and has been driven out is asked for again. */
void tell_driven_out(struct nest *nest, int64_t unit);
/* The units before this one have been passed. */
void tell_behind(struct nest *nest, int64_t unit, uint64_t now);

#endif
