// The program's own anonymous mappings, out of core, are mmap's in all that programs can tell: what is asserted here
// holds alone as well.
// RUN: %plaincc -O1 -fno-builtin %s -lpthread -o %t.plain
// RUN: %t.plain
// RUN: %cc -O2 -fno-builtin --runahead-heap %s -o %t
// RUN: env RUNAHEAD_OOC_HEAP=64K RUNAHEAD_OOC_STATS=1 %t 2> %t.err
// RUN: FileCheck --check-prefix=ALL %s < %t.err
// RUN: env RUNAHEAD_OOC_HEAP=0 RUNAHEAD_OOC_STATS=1 %t 2> %t.err2
// RUN: FileCheck --check-prefix=NONE %s < %t.err2
// RUN: env LD_PRELOAD=%build/librunahead_heap.so RUNAHEAD_OOC_HEAP=64K RUNAHEAD_OOC_STATS=1 %t.plain 2> %t.err3
// RUN: FileCheck --check-prefix=ALL %s < %t.err3
// ALL: heap: out of core {{[1-9][0-9][0-9]+}} blocks {{.*}} no room on disk 0 of 0 MB; made private by {{[1-9]}}
// NONE: heap: out of core 0 blocks
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int wrong;
#define IS(what)                                                           \
  do {                                                                     \
    if (!(what)) printf("not so at %d: %s\n", __LINE__, #what), wrong = 1; \
  } while (0)
#define MB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define RW (PROT_READ | PROT_WRITE)

static sigjmp_buf back;
static void fault(int number) { siglongjmp(back, number); }

/* Does a store there end in a signal? */
static int faults(char *p) {
  int number = sigsetjmp(back, 1);
  if (!number) *(volatile char *)p = *(volatile char *)p;
  return number == SIGSEGV;
}
static int reads(char *p) {
  int number = sigsetjmp(back, 1);
  if (!number) (void)*(volatile char *)p;
  return !number;
}

static char *map(size_t bytes) {
  char *p = mmap(NULL, bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  IS(p != MAP_FAILED && (uintptr_t)p % PAGE == 0);
  return p;
}

static int zeros(const char *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (p[i]) return 0;
  return 1;
}
static void fill(char *p, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; i++) p[i] = (char)(i * 31 + i / PAGE + seed);
}
static int filled_from(const char *p, size_t first, size_t bytes, unsigned seed) {
  for (size_t i = first; i < first + bytes; i++)
    if (p[i - first] != (char)(i * 31 + i / PAGE + seed)) return 0;
  return 1;
}

static void parts_are_unmapped(void) {
  for (int round = 0; round < 3; round++) {
    char *p = map(4 * MB);
    IS(zeros(p, 4 * MB));
    fill(p, 4 * MB, 1);
    errno = 77;
    IS(munmap(p + MB, MB) == 0 && errno == 77);
    IS(faults(p + MB) && faults(p + 2 * MB - 1) && !faults(p + MB - 1) && !faults(p + 2 * MB));
    IS(munmap(p, PAGE) == 0 && faults(p) && !faults(p + PAGE));
    IS(munmap(p + 4 * MB - PAGE, 1) == 0 && faults(p + 4 * MB - 1)); /* rounded up */
    IS(filled_from(p + PAGE, PAGE, MB - PAGE, 1));
    IS(filled_from(p + 2 * MB, 2 * MB, 2 * MB - PAGE, 1));
    IS(munmap(p, 4 * MB) == 0 && faults(p + PAGE) && faults(p + 3 * MB)); /* holes do not matter */
    IS(munmap(p, 4 * MB) == 0);
  }
  char *p = map(MB);
  IS(munmap(p + 1, PAGE) == -1 && errno == EINVAL);
  IS(munmap(p, 0) == -1 && errno == EINVAL);
  IS(!faults(p));
  IS(mmap(NULL, 0, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
  IS(munmap(p, MB) == 0);
  /* Trimmed, as allocators do that want an alignment. */
  for (int i = 0; i < 20; i++) {
    char *wide = map(3 * MB), *at = (char *)(((uintptr_t)wide + MB - 1) & ~(MB - 1));
    if (at > wide) IS(munmap(wide, (size_t)(at - wide)) == 0);
    IS(munmap(at + 2 * MB, (size_t)(wide + 3 * MB - at - 2 * MB)) == 0 || wide + 3 * MB == at + 2 * MB);
    fill(at, 2 * MB, 3);
    IS(filled_from(at, 0, 2 * MB, 3));
    IS(munmap(at, 2 * MB) == 0);
  }
}

static void parts_are_mapped_over(void) {
  char *p = map(4 * MB), *q;
  fill(p, 4 * MB, 5);
  q = mmap(p + MB, MB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  IS(q == p + MB && zeros(q, MB));
  fill(q, MB, 6);
  q = mmap(p + 2 * MB, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  IS(q == p + 2 * MB && faults(q));
  char name[] = "/tmp/runahead-heap-map-XXXXXX";
  int file = mkstemp(name);
  unlink(name);
  IS(ftruncate(file, (off_t)MB) == 0 && pwrite(file, "text", 4, 0) == 4);
  q = mmap(p + 3 * MB, MB, RW, MAP_SHARED | MAP_FIXED, file, 0);
  IS(q == p + 3 * MB && !memcmp(q, "text", 4));
  memcpy(q, "more", 4);
  char text[4];
  IS(pread(file, text, 4, 0) == 4 && !memcmp(text, "more", 4));
  IS(filled_from(p, 0, MB, 5) && filled_from(p + MB, 0, MB, 6) && filled_from(p + 2 * MB + PAGE, 2 * MB + PAGE, MB - PAGE, 5));
  /* What cannot be mapped changes nothing. */
  IS(mmap(p, MB, RW, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EBADF);
  IS(filled_from(p, 0, MB, 5));
  IS(mmap(p, MB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
  IS(filled_from(p, 0, MB, 5));
  pid_t child = fork();
  if (child == 0) {
    memcpy(p + 3 * MB, "tail", 4); /* shared: the parent sees it */
    p[MB] = 99;
    _exit(!(faults(p + 2 * MB) && filled_from(p, 0, MB, 5)));
  }
  int status;
  IS(waitpid(child, &status, 0) == child && status == 0);
  IS(!memcmp(p + 3 * MB, "tail", 4) && filled_from(p + MB, 0, MB, 6));
  close(file);
  IS(munmap(p, 4 * MB) == 0 && faults(p) && faults(p + MB) && faults(p + 3 * MB));
}

static void protection_stays(void) {
  char *p = map(4 * MB);
  fill(p, 4 * MB, 7);
  IS(mprotect(p + MB, MB, PROT_READ) == 0 && mprotect(p + 2 * MB, PAGE, PROT_NONE) == 0);
  for (int round = 0; round < 2; round++) {
    pid_t child = fork();
    if (child == 0) {
      int good = faults(p + MB) && reads(p + MB) && faults(p + 2 * MB) && !reads(p + 2 * MB) && !faults(p + 3 * MB);
      good = good && filled_from(p + MB, MB, MB, 7);
      good = good && mprotect(p + 2 * MB, PAGE, RW) == 0 && filled_from(p + 2 * MB, 2 * MB, MB, 7);
      fill(p, MB, 8);
      _exit(!good);
    }
    int status;
    IS(waitpid(child, &status, 0) == child && status == 0);
    IS(faults(p + MB) && reads(p + MB) && !reads(p + 2 * MB) && filled_from(p, 0, MB, 7));
  }
  /* What is given up reads as zeros and is protected as it was. */
  IS(madvise(p + MB, MB + PAGE, MADV_DONTNEED) == 0);
  IS(faults(p + MB) && zeros(p + MB, MB) && !reads(p + 2 * MB));
  IS(mprotect(p, 4 * MB, RW) == 0 && zeros(p + 2 * MB, PAGE) && filled_from(p + 2 * MB + PAGE, 2 * MB + PAGE, MB, 7));
  IS(munmap(p, 4 * MB) == 0);
  /* The same before a fork. */
  p = map(2 * MB);
  fill(p, 2 * MB, 9);
  IS(mprotect(p + MB, PAGE, PROT_NONE) == 0 && madvise(p + MB - PAGE, 3 * PAGE, MADV_DONTNEED) == 0);
  IS(!reads(p + MB) && zeros(p + MB - PAGE, PAGE) && zeros(p + MB + PAGE, PAGE));
  IS(filled_from(p, 0, MB - PAGE, 9) && filled_from(p + MB + 2 * PAGE, MB + 2 * PAGE, MB - 2 * PAGE, 9));
  /* Over a hole: what is there is given up, and the call says so. */
  IS(munmap(p + MB + MB / 2, PAGE) == 0);
  IS(madvise(p + MB + PAGE, MB - PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM);
  IS(zeros(p + MB + PAGE, MB / 2 - PAGE) && zeros(p + 2 * MB - PAGE, PAGE));
  IS(munmap(p, 2 * MB) == 0);
}

static void they_grow_shrink_and_move(void) {
  char *p = map(MB), *q;
  fill(p, MB, 11);
  IS((q = mremap(p, MB, 3 * MB, MREMAP_MAYMOVE)) != MAP_FAILED);
  IS(filled_from(q, 0, MB, 11) && zeros(q + MB, 2 * MB) && (q == p || faults(p)));
  fill(q, 3 * MB, 12);
  IS(mremap(q, 3 * MB, MB, 0) == q && faults(q + MB) && filled_from(q, 0, MB, 12));
  p = mremap(q, MB, 40 * MB, MREMAP_MAYMOVE);
  IS(p != MAP_FAILED && filled_from(p, 0, MB, 12) && zeros(p + MB, 39 * MB));
  /* The middle to a place of the program's choice. */
  fill(p, 40 * MB, 13);
  char *place = map(2 * MB);
  fill(place, 2 * MB, 14);
  IS(mremap(p + MB, MB, MB, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
  IS(faults(p + MB) && faults(p + 2 * MB - 1) && !faults(p + 2 * MB));
  IS(filled_from(place, MB, MB, 13) && filled_from(place + MB, MB, MB, 14) && filled_from(p, 0, MB, 13));
  IS(filled_from(p + 2 * MB, 2 * MB, 38 * MB, 13));
  /* Onto itself. */
  IS(mremap(p + 4 * MB, 2 * MB, 2 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, p + 5 * MB) == MAP_FAILED && errno == EINVAL);
  IS(filled_from(p + 4 * MB, 4 * MB, 4 * MB, 13));
  /* With the old place left empty. */
  q = mremap(p + 8 * MB, MB, MB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
  IS(q != MAP_FAILED && filled_from(q, 8 * MB, MB, 13) && zeros(p + 8 * MB, MB));
  IS(munmap(q, MB) == 0);
  /* Protected parts. */
  IS(mprotect(p + 10 * MB, MB, PROT_READ) == 0);
  q = mremap(p + 10 * MB, MB, 2 * MB, MREMAP_MAYMOVE);
  IS(q != MAP_FAILED && filled_from(q, 10 * MB, MB, 13) && faults(q) && zeros(q + MB, MB));
  IS(q == p + 10 * MB || faults(p + 10 * MB));
  IS(munmap(q, 2 * MB) == 0);
  /* From elsewhere into one of them. */
  char *small = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(small, 7, PAGE);
  IS(mremap(small, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 20 * MB) == p + 20 * MB);
  IS(p[20 * MB] == 7 && filled_from(p + 20 * MB + PAGE, 20 * MB + PAGE, MB, 13) && filled_from(p + 19 * MB, 19 * MB, MB, 13));
  IS(mremap(p + MB, MB, 2 * MB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT); /* a hole */
  IS(mremap(p, 0, MB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
  IS(mremap(p + 1, MB, MB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
  IS(filled_from(p, 0, MB, 13));
  IS(munmap(p, 40 * MB) == 0 && munmap(place, 2 * MB) == 0 && faults(place));
}

static void a_fork_sees_what_was_there(void) {
  char *p = map(2 * MB), *gone = map(MB);
  fill(p, 2 * MB, 15);
  IS(munmap(gone, MB) == 0 && munmap(p + MB, PAGE) == 0);
  int to_child[2], to_parent[2];
  char byte;
  IS(pipe(to_child) == 0 && pipe(to_parent) == 0);
  pid_t child = fork();
  if (child == 0) {
    read(to_child[0], &byte, 1);
    int good = filled_from(p, 0, MB, 15) && faults(p + MB);
    fill(p, MB, 16);
    char *own = map(2 * MB);
    good = good && zeros(own, 2 * MB);
    fill(own, 2 * MB, 17);
    char *longer = mremap(p, MB, 2 * MB, MREMAP_MAYMOVE);
    good = good && longer != MAP_FAILED && filled_from(longer, 0, MB, 16) && zeros(longer + MB, MB);
    good = good && munmap(longer, 2 * MB) == 0 && munmap(own, 2 * MB) == 0;
    write(to_parent[1], "", 1);
    _exit(!good);
  }
  fill(p, MB, 18);
  write(to_child[1], "", 1);
  read(to_parent[0], &byte, 1);
  int status;
  IS(waitpid(child, &status, 0) == child && status == 0);
  IS(filled_from(p, 0, MB, 18) && filled_from(p + MB + PAGE, MB + PAGE, MB - PAGE, 15) && faults(p + MB));
  IS(munmap(p, 2 * MB) == 0);
}

static void by_number(void) {
  char *p = (char *)syscall(SYS_mmap, NULL, 2 * MB, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  IS(p != MAP_FAILED && zeros(p, 2 * MB));
  fill(p, 2 * MB, 19);
  IS(syscall(SYS_madvise, p, PAGE, MADV_DONTNEED) == 0 && zeros(p, PAGE));
  char *q = (char *)syscall(SYS_mremap, p, 2 * MB, 4 * MB, MREMAP_MAYMOVE, NULL);
  IS(q != MAP_FAILED && filled_from(q + PAGE, PAGE, 2 * MB - PAGE, 19) && zeros(q + 2 * MB, 2 * MB));
  IS(syscall(SYS_munmap, q, 4 * MB) == 0 && faults(q));
}

static void in_handler(int number) {
  (void)number;
  char *p = mmap(NULL, MB, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return;
  p[0] = 1;
  munmap(p, MB);
}

static void *churn(void *seed_) {
  unsigned seed = (unsigned)(uintptr_t)seed_;
  for (int i = 0; i < 60; i++) {
    char *p = map(MB);
    fill(p, MB, seed);
    IS(munmap(p + MB / 2, PAGE) == 0);
    IS(filled_from(p, 0, MB / 2, seed));
    char *q = mremap(p, MB / 2, MB, MREMAP_MAYMOVE);
    IS(q != MAP_FAILED && filled_from(q, 0, MB / 2, seed) && zeros(q + MB / 2, MB / 2));
    IS(munmap(q, MB) == 0 && munmap(p + MB / 2 + PAGE, MB / 2 - PAGE) == 0);
  }
  return NULL;
}

/* A timer's handler maps as well, in the middle of whatever is being done. */
static void side_by_side(void) {
  struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
  struct itimerspec often = {{0, 1000000}, {0, 1000000}};
  timer_t timer;
  IS(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
  pthread_t thread[4];
  for (uintptr_t i = 0; i < 4; i++) pthread_create(&thread[i], NULL, churn, (void *)(20 + i));
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  timer_delete(timer);
}

int main(void) {
  struct sigaction action = {.sa_handler = fault};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  parts_are_unmapped();
  they_grow_shrink_and_move();
  parts_are_mapped_over();
  protection_stays();
  a_fork_sees_what_was_there();
  by_number();
  side_by_side();
  return wrong;
}
