// mmap64 by name, and mmap where _FILE_OFFSET_BITS makes it mmap64: both link with
// --runahead-mmap, and their mappings are registered.
// RUN: %cc -O2 --runahead-mmap -D_GNU_SOURCE -DMAP=mmap64 %s -o %t.name
// RUN: %cc -O2 --runahead-mmap -D_FILE_OFFSET_BITS=64 -DMAP=mmap %s -o %t.offset
// RUN: env RUNAHEAD_OOC_STATS=1 RUNAHEAD_OOC_MEMORY=1000000 %t.name %t.data > %t.1 2> %t.err1
// RUN: env RUNAHEAD_OOC_STATS=1 RUNAHEAD_OOC_MEMORY=1000000 %t.offset %t.data > %t.2 2> %t.err2
// RUN: FileCheck %s < %t.1
// RUN: FileCheck %s < %t.2
// RUN: FileCheck --check-prefix=STATS %s < %t.err1
// RUN: FileCheck --check-prefix=STATS %s < %t.err2
// CHECK: sum 1048576
// STATS: nests entered {{[1-9]}}
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) static long sum(const int *p, long n) {
  long s = 0;
  for (long i = 0; i < n; i++) s += p[i];
  return s;
}
int main(int count, char **argument) {
  const long n = 1 << 20;
  int file = open(argument[count - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ftruncate(file, n * 4)) return 1;
  int *data = MAP(NULL, n * 4, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return 1;
  for (long i = 0; i < n; i++) data[i] = 1;
  printf("sum %ld\n", sum(data, n));
  return munmap(data, n * 4);
}
