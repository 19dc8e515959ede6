// An unmodified C++ program that maps a file: its mapping is registered at link time's
// request, exceptions and containers work.
// RUN: %cxx -O2 --runahead-mmap %s -o %t
// RUN: env RUNAHEAD_OOC_STATS=1 RUNAHEAD_OOC_MEMORY=1000000 %t %t.data 2> %t.err | FileCheck %s
// RUN: FileCheck --check-prefix=STATS %s < %t.err
// CHECK: caught 3, sum 2097152
// STATS: nests entered {{[1-9]}}
#include <cstdio>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
__attribute__((noinline)) static long total(const std::vector<int> &index, const int *data) {
  long sum = 0;
  for (std::size_t i = 0; i < index.size(); i++) {
    int v = data[index.at(i)];
    if (v < 0) throw v;
    sum += v;
  }
  return sum;
}
int main(int, char **argv) {
  const size_t n = 1 << 21;
  int f = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (ftruncate(f, n * 4)) return 1;
  int *data = static_cast<int *>(mmap(nullptr, n * 4, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0));
  for (size_t i = 0; i < n; i++) data[i] = 1;
  std::vector<int> index(n);
  for (size_t i = 0; i < n; i++) index[i] = int(i * 2654435761u % n);
  int caught = 0;
  data[1234567] = -3;
  try { total(index, data); } catch (int v) { caught = -v; }
  data[1234567] = 1;
  std::printf("caught %d, sum %ld\n", caught, total(index, data));
  munmap(data, n * 4);
}
