/* What is done for loops by a thread of ours, the helper: long reads, writes that have to wait, touches.
 *
 * A queue for each kind, which loops fill and the helper empties (helper.c). Nothing waits for room: what
 * cannot be handed over is done by whoever wants it, or left to the kernel.
 *
 * A read that is handed over does not outlive its region: the file behind it would be in use still, and the
 * addresses may soon be another mapping's.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static _Atomic bool helped;

bool errands_helped(void) { return atomic_load_explicit(&helped, RELAXED); }
bool errands_set_helped(bool now) { return atomic_exchange(&helped, now); }

void errands_read(uint64_t start, uint64_t end) {
  madvise((void *)start, end - start, MADV_WILLNEED);
  count(COUNT_CALLS, 1);
}

/* Where memory is full, whoever reads has to find room first: of a product's time in memory of a tenth
 * its main thread spent more than half so, and MG a quarter, while another processor had nothing to
 * do. So long runs of pages are read by the helper. Shorter ones, such as all are where the kernel's
 * windows are narrow, are sooner asked for than handed over (on 1 ms CG at half of its data took 0.67 s, and
 * 0.83 where they were handed over; IS 0.39 and 0.46).
 *
 * Starting a write waits while the disk's queue is full: MG on the machine's own disk stood still
 * for 0.5 s, a fifth of it for that, and for 0.19 to 0.26 with a thread of ours that does it. But
 * a page that is written by another processor's thread costs an interrupt on this one (a sixth of
 * LU's processor time on a disk where nothing waits): so the helper gets the next writes after
 * one that waited. What it has no room for is left to the kernel.
 *
 * Reads go first, and none is handed over while the helper is at a write, which may take long. Touches go
 * last: whoever asks for them only gains by them. */
#define ERRANDS 64
struct request {
  const struct region *region;
  uint64_t start, end;
  const _Atomic uint64_t *reached; /* touches: so far the program has come; in a nest, which stays mapped */
};
static struct queue {
  struct request request[ERRANDS];
  unsigned used, next;
} queue[ERRAND_KINDS];
static bool writing;
static struct request reading; /* the read or touch under way; of no bytes: none */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_cond_t been_read = PTHREAD_COND_INITIALIZER;

void errands_write(const struct region *region, uint64_t start, uint64_t end) {
  if (!region_has_file(region)) return;
  sync_file_range(region->descriptor, (off_t)(region->offset + (start - region->start)),
                  (off_t)(end - start), SYNC_FILE_RANGE_WRITE);
  count(COUNT_WRITTEN, (end - start) >> PAGE_SHIFT);
}

/* What the program has reached by now may be thrown out already, and would be read again. A kernel older than
 * 5.14 refuses, and nothing is touched. */
static void touch_now(struct request request) {
  uint64_t reached = atomic_load_explicit(request.reached, RELAXED);
  uint64_t start = request.start < reached ? reached : request.start;
  if (start < request.end) madvise((void *)start, request.end - start, MADV_POPULATE_READ);
}

/* With the lock held; ERRAND_KINDS: there is nothing to do. */
static enum errand most_urgent(void) {
  enum errand errand = ERRAND_READ;
  while (errand < ERRAND_KINDS && !queue[errand].used) errand++;
  return errand;
}

/* With the lock held. False when the time is over and there is nothing to do. */
static bool wait_for_more(const struct timespec *until) {
  while (most_urgent() == ERRAND_KINDS)
    if (pthread_cond_clockwait(&more, &queue_lock, CLOCK_MONOTONIC, until)) break;
  return most_urgent() != ERRAND_KINDS;
}

static struct timespec in_future(uint64_t nanoseconds) {
  uint64_t end = limits_now() + nanoseconds;
  return (struct timespec){(time_t)(end / 1000000000), (long)(end % 1000000000)};
}

void errands_do(uint64_t nanoseconds) {
  struct timespec until = in_future(nanoseconds);
  pthread_mutex_lock(&queue_lock);
  while (wait_for_more(&until)) {
    enum errand errand = most_urgent();
    struct request request = queue[errand].request[queue[errand].next++ % ERRANDS];
    queue[errand].used--;
    writing = errand == ERRAND_WRITE;
    if (errand != ERRAND_WRITE) reading = request;
    pthread_mutex_unlock(&queue_lock);
    if (errand == ERRAND_READ) errands_read(request.start, request.end);
    if (errand == ERRAND_WRITE) errands_write(request.region, request.start, request.end);
    if (errand == ERRAND_TOUCH) touch_now(request);
    pthread_mutex_lock(&queue_lock);
    writing = false;
    reading = (struct request){NULL, 0, 0, NULL};
    if (errand != ERRAND_WRITE) pthread_cond_broadcast(&been_read);
  }
  pthread_mutex_unlock(&queue_lock);
}

void errands_forget(void) {
  for (unsigned errand = 0; errand < ERRAND_KINDS; errand++) queue[errand].used = 0;
  writing = false;
  reading = (struct request){NULL, 0, 0, NULL};
  pthread_mutex_init(&queue_lock, NULL);
  pthread_cond_init(&more, NULL);
  pthread_cond_init(&been_read, NULL);
}

static bool overlaps(const struct request *request, uint64_t start, uint64_t end) {
  return request->start < end && request->end > start;
}

static void drop(struct queue *from, uint64_t start, uint64_t end) {
  unsigned kept = 0;
  for (unsigned i = 0; i < from->used; i++) {
    struct request request = from->request[(from->next + i) % ERRANDS];
    if (!overlaps(&request, start, end)) from->request[(from->next + kept++) % ERRANDS] = request;
  }
  from->used = kept;
}

/* A piece takes milliseconds, or as long as the disk's queue is full. A program that unmaps has something
 * better to do than to wait for a disk that does not answer; and the lock may be held by the very thread
 * that waits here, in a signal's handler. */
#define LONGEST_GOODBYE_NS 1000000000
void errands_drop_reads(uint64_t start, uint64_t end) {
  struct timespec until = in_future(LONGEST_GOODBYE_NS);
  if (pthread_mutex_clocklock(&queue_lock, CLOCK_MONOTONIC, &until)) return;
  drop(&queue[ERRAND_READ], start, end);
  drop(&queue[ERRAND_TOUCH], start, end);
  while (overlaps(&reading, start, end))
    if (pthread_cond_clockwait(&been_read, &queue_lock, CLOCK_MONOTONIC, &until)) break;
  pthread_mutex_unlock(&queue_lock);
}

/* For a region that has gone there is nothing to do: it is
 * marked so before its reads are dropped, so with the lock held either this sees the mark or the drop, which
 * comes after it, sees the request. */
bool errands_hand_over(enum errand errand, const struct region *region, uint64_t start, uint64_t end,
                      const _Atomic uint64_t *reached) {
  struct queue *to = &queue[errand];
  if (pthread_mutex_trylock(&queue_lock)) return false;
  bool gone = !atomic_load_explicit(&region->live, RELAXED);
  bool room = to->used < ERRANDS && !(errand != ERRAND_WRITE && writing);
  if (room && !gone) {
    to->request[(to->next + to->used++) % ERRANDS] = (struct request){region, start, end, reached};
    pthread_cond_signal(&more);
  }
  pthread_mutex_unlock(&queue_lock);
  return room || gone;
}
