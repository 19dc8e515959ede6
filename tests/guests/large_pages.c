// trap: a file of large pages that the agent shows itself replaces what lies behind the place, where a large
// page may begin there run:
#include "guest.h"
#include <sys/personality.h>
#include <sys/resource.h>

#define LARGE (2l << 20)

// Each start has its libraries, and the agent, a page lower than the one before, up to a large page.
static void starts(char *itself) {
  long well = 0;
  for (long page = 0; page < LARGE / 4096; page++) {
    pid_t child = fork();
    if (child == 0) {
      struct rlimit limit;
      getrlimit(RLIMIT_STACK, &limit);
      limit.rlim_cur = (256l << 20) + page * 4096;
      if (setrlimit(RLIMIT_STACK, &limit) || personality(ADDR_NO_RANDOMIZE) < 0) _exit(3);
      execl("/proc/self/exe", itself, "reads", NULL);
      _exit(4);
    }
    int status = 0;
    if (waitpid(child, &status, 0) == child && status == 0) well++;
    else printf("%ld: %x\n", page, status);
  }
  printf("%ld\n", well);
}

int main(int words, char **word) {
  if (words < 2) {
    starts(word[0]);
    return 0;
  }
  char data[4096];
  int file = memfd_create("large", MFD_HUGETLB);
  if (file < 0 || ftruncate(file, 2 * LARGE)) return 0;
  for (int round = 0; round < 20; round++)
    if (pread(file, data, sizeof data, LARGE) != sizeof data || data[round]) return 1;
  return 0;
}
