/* The helper: one thread of ours for what loops must not do themselves: watching, reading long runs of pages, and
 * writes that have to wait. It is there from the first region on and sleeps: a loop may be one in a signal
 * handler, where memory must not be allocated, and starting a thread does. It gets no signals, and ends with
 * the program.
 */
#define _GNU_SOURCE
#include "internal.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A tick with more major faults than this is a program that reads its disk. */
#define FAULTS_TO_REARM 32
#define WATCH_INTERVAL_NS 200000000

static uint64_t major_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (uint64_t)usage.ru_majflt;
}

/* Is nobody left but us, behind a main thread that has ended? */
static bool alone(void) {
  char text[512];
  int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  text[got > 0 ? got : 0] = 0;
  const char *state = strrchr(text, ')'); /* behind the name, which may be anything */
  char main_thread;
  unsigned threads;
  return state &&
         sscanf(state, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %u",
                &main_thread, &threads) == 2 &&
         main_thread == 'Z' && threads <= 2;
}

static void *help(void *unused) {
  uint64_t before = major_faults();
  while (!alone()) {
    errands_do(WATCH_INTERVAL_NS);
    uint64_t now = major_faults();
    if (!arm_is_set() && region_total_bytes() &&
        now - before > FAULTS_TO_REARM) {
      count(COUNT_REARMED, 1);
      arm_again();
    }
    before = now;
  }
  errands_do(0); /* what came while it was looked whether anybody is left */
  errands_set_helped(false);
  return unused;
}

/* A thread that gets no signals: the program's are not for it. */
static bool start_helper(void) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  pthread_t thread;
  bool started = pthread_create(&thread, &attributes, help, NULL) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return started;
}

/* The helper stayed with the parent. A child gets one of its own with its first region. */
static void in_child(void) {
  errands_set_helped(false);
  region_forget_lock();
  errands_forget();
}

void helper_get(void) {
  static _Atomic bool told;
  if (!arm_switched_on() || errands_set_helped(true)) return;
  if (!atomic_exchange(&told, true)) pthread_atfork(NULL, NULL, in_child);
  if (!start_helper()) errands_set_helped(false);
}
