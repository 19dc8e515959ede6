// A child sees what was there at the fork and nothing later, whatever it was made by, and so does its own child;
// both go on out of core. Blocks whose file the program has closed behind our back are copied.
// RUN: %plaincc -O1 -fno-builtin %s -lpthread -o %t.plain
// RUN: %t.plain
// RUN: %cc -O2 -fno-builtin --runahead-heap %s -o %t
// RUN: env RUNAHEAD_OOC_HEAP=64K RUNAHEAD_OOC_STATS=1 timeout -s KILL 60 %t 2> %t.err
// RUN: FileCheck %s < %t.err
// RUN: env LD_PRELOAD=%build/librunahead_heap.so RUNAHEAD_OOC_HEAP=64K timeout -s KILL 60 %t.plain
// CHECK: made private by {{[1-9]}}
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB ((size_t)1 << 20)
#define BYTES (6 * MB)
static int wrong;
#define IS(what)                                                           \
  do {                                                                     \
    if (!(what)) printf("not so at %d: %s\n", __LINE__, #what), wrong = 1; \
  } while (0)

static char *shared; /* a word in memory that both see */
static char *a, *b;

static int all(const char *p, size_t bytes, char value) {
  for (size_t i = 0; i < bytes; i++)
    if (p[i] != value) return 0;
  return 1;
}

static void wait_for(char value) {
  while (__atomic_load_n(shared, __ATOMIC_ACQUIRE) != value) sched_yield();
}
static void set(char value) { __atomic_store_n(shared, value, __ATOMIC_RELEASE); }

static int child(void *unused) {
  (void)unused;
  wrong = 0;
  wait_for(1); /* the parent has written */
  IS(all(a, BYTES, 1) && all(b, BYTES, 2));
  memset(a, 5, BYTES);
  set(2);
  wait_for(3); /* the parent has looked */
  IS(all(a, BYTES, 5));
  a = realloc(a, 2 * BYTES);
  IS(a && all(a, BYTES, 5));
  memset(a, 6, 2 * BYTES);
  free(b);
  b = calloc(1, BYTES);
  IS(all(b, BYTES, 0));
  memset(b, 7, BYTES);
  int status = 1, pid = fork();
  if (pid == 0) {
    memset(a, 8, BYTES), memset(b, 8, BYTES);
    _exit(!all(a, BYTES, 8));
  }
  waitpid(pid, &status, 0);
  IS(status == 0 && all(a, 2 * BYTES, 6) && all(b, BYTES, 7));
  a = realloc(a, BYTES / 2);
  IS(all(a, BYTES / 2, 6));
  free(a), free(b);
  fflush(stdout);
  return wrong;
}

enum how { FORK, RAW_FORK, BY_SYSCALL, BY_CLONE, FORKED_OFTEN, DESCRIPTORS_CLOSED, HOWS };

static int make_child(enum how how) {
  static char stack[256 * 1024] __attribute__((aligned(16)));
  int pid = 0;
  switch (how) {
  case BY_CLONE: return clone(child, stack + sizeof stack, SIGCHLD, NULL);
  case RAW_FORK: pid = _Fork(); break;
  case BY_SYSCALL: pid = (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); break;
  case DESCRIPTORS_CLOSED:
    for (int i = 3; i < 1000; i++) close(i);
    pid = fork();
    break;
  case FORKED_OFTEN:
    for (int i = 0; i < 5; i++) {
      pid = fork();
      if (pid == 0) _exit(!all(a, BYTES, 1));
      int status = 1;
      waitpid(pid, &status, 0);
      IS(status == 0);
    }
    pid = fork();
    break;
  default: pid = fork();
  }
  if (pid == 0) _exit(child(NULL));
  return pid;
}

static volatile int stop;
static void *beside(void *unused) {
  while (!stop) {
    char *p = malloc(MB);
    memset(p, 3, MB);
    p = realloc(p, 3 * MB);
    if (!all(p, MB, 3)) wrong = 1;
    free(p);
  }
  return unused;
}

int main(void) {
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (enum how how = FORK; how < HOWS; how++) {
    a = malloc(BYTES), b = malloc(BYTES);
    memset(a, 1, BYTES), memset(b, 2, BYTES);
    set(0);
    int status = 1, pid = make_child(how);
    IS(pid > 0);
    memset(a, 3, BYTES), memset(b, 4, BYTES);
    set(1);
    wait_for(2);
    IS(all(a, BYTES, 3) && all(b, BYTES, 4));
    a = realloc(a, 3 * BYTES);
    IS(all(a, BYTES, 3));
    set(3);
    waitpid(pid, &status, 0);
    if (status) printf("child of kind %d: status %x\n", how, status);
    IS(status == 0);
    IS(all(a, BYTES, 3) && all(b, BYTES, 4));
    free(a), free(b);
    /* New zeros are zeros, though the old file is the child's as well. */
    a = calloc(4, BYTES);
    IS(all(a, 4 * BYTES, 0));
    free(a);
  }
  /* With threads that allocate and free at the same time. */
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, beside, NULL);
  for (int i = 0; i < 30; i++) {
    int status = 1, pid = fork();
    if (pid == 0) {
      char *p = malloc(MB); /* as glibc's, ours may be called in a child of many threads */
      memset(p, 1, MB);
      _exit(!all(p, MB, 1));
    }
    waitpid(pid, &status, 0);
    IS(status == 0);
  }
  stop = 1;
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  IS(system("true") == 0);
  return wrong;
}
