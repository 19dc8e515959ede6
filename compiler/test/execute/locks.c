// A program that keeps a lock (fcntl) on a file that it maps, and unmaps, still has it then.
// RUN: %cc -O2 --runahead-mmap %s -o %t
// RUN: %t %t.data | FileCheck %s
// CHECK: still locked
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **argument) {
  const long bytes = 4 << 20;
  int file = open(argument[count - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ftruncate(file, bytes)) return 1;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(file, F_SETLK, &lock)) return 1;
  char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return 1;
  for (long i = 0; i < bytes; i++) data[i] = (char)i;
  munmap(data, bytes);
  pid_t other = fork();
  if (other == 0) _exit(fcntl(file, F_SETLK, &lock) == 0);
  int status = 1;
  waitpid(other, &status, 0);
  puts(status ? "no longer locked" : "still locked");
  return 0;
}
