// Static arrays on a file: same results, children keep their own copy, and without
// a directory to put them the program runs plainly and says so.
// RUN: %cc -O2 --runahead-static %s -o %t
// RUN: env RUNAHEAD_OOC_STATS=1 %t > %t.out 2> %t.err
// RUN: FileCheck %s < %t.out
// RUN: FileCheck --check-prefix=STATS %s < %t.err
// RUN: env RUNAHEAD_OOC_DIR=/nonexistent %t > %t.out2 2> %t.err2
// RUN: diff %t.out %t.out2
// RUN: FileCheck --check-prefix=PLAIN %s < %t.err2
// CHECK: initialised 42 sum 499999500000
// CHECK: child wrote 1, parent sees 7
// CHECK: child sees 999999, parent wrote 3
// STATS: regions 1{{[0-9]}} MB
// PLAIN: static arrays stay in memory
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
long initialised = 42;
static long big[1000000];
static double other[1000000];
int main(void) {
  for (long i = 0; i < 1000000; i++) big[i] = i, other[i] = 1;
  long sum = 0;
  for (long i = 0; i < 1000000; i++) sum += big[i];
  printf("initialised %ld sum %ld\n", initialised, sum);
  big[5] = 7;
  fflush(stdout);
  if (fork() == 0) {
    big[5] = 1;
    _exit((int)big[5]);
  }
  int status;
  wait(&status);
  printf("child wrote %d, parent sees %ld\n", WEXITSTATUS(status), big[5]);
  /* What the parent writes after the fork is not for the child: it has its copy by then. */
  fflush(stdout);
  int pipes[2];
  if (pipe(pipes)) return 1;
  pid_t child = fork();
  if (child == 0) {
    long seen = big[999999];
    _exit(write(pipes[1], &seen, sizeof seen) != sizeof seen);
  }
  big[999999] = 3;
  long seen = 0;
  if (read(pipes[0], &seen, sizeof seen) != sizeof seen || waitpid(child, &status, 0) != child)
    return 1;
  printf("child sees %ld, parent wrote %ld\n", seen, big[999999]);
  return other[7] != 1;
}
