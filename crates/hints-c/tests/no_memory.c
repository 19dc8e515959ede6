/* Takes all memory that it may have, and gives hints. */
#define _GNU_SOURCE
#include <pthread.h>
#include <runahead.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static long size(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld", &pages) != 1) abort();
  fclose(file);
  return pages * 4096;
}

static void take_all_memory(void) {
  struct rlimit limit;
  limit.rlim_cur = limit.rlim_max = size() + (1 << 20);
  if (setrlimit(RLIMIT_AS, &limit)) abort();
  for (size_t piece = 1 << 20; piece >= 16;)
    if (!malloc(piece)) piece /= 2;
}

static struct runahead_segment segments[1000];
static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER;

static void *give_hints(void *path) {
  pthread_mutex_lock(&memory);
  for (int i = 0; i < 100; i++) {
    runahead_hint_batch(segments, 1000);
    runahead_hint(path, i, 1);
    runahead_cancel_path(path);
  }
  runahead_cancel_all();
  pthread_mutex_unlock(&memory);
  return NULL;
}

int main(int count, char **arguments) {
  int after = count > 1 && strcmp(arguments[1], "before the first hint");
  int in_thread = count > 1 && !strcmp(arguments[1], "after another thread's");
  for (int i = 0; i < 1000; i++) {
    segments[i].path = arguments[0];
    segments[i].offset = i * 8192;
  }
  if (after) {
    runahead_hint(arguments[0], 0, 0);
    usleep(50000);
  }
  pthread_t thread;
  pthread_mutex_lock(&memory);
  if (in_thread && pthread_create(&thread, NULL, give_hints, arguments[0])) abort();
  take_all_memory();
  pthread_mutex_unlock(&memory);
  if (in_thread) pthread_join(thread, NULL);
  give_hints(arguments[0]);
  usleep(50000);
  puts("went on");
  return 0;
}
