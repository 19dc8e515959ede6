// std::vector, new[] and std::pmr out of core, without a change of source; the same results as with memory for all.
// REQUIRES: memory-cgroup
// RUN: %plaincxx -std=c++17 -O2 %s -o %t.plain
// RUN: %cxx -std=c++17 -O2 --runahead-heap %s -o %t.ours
// RUN: %t.plain > %t.expected
// RUN: not %limited 32 %t.plain
// RUN: env RUNAHEAD_OOC_STATS=1 %limited 32 %t.ours > %t.out 2> %t.err
// RUN: diff %t.expected %t.out
// RUN: FileCheck %s < %t.err
// CHECK-DAG: nests entered {{[1-9]}}
// CHECK-DAG: prefetched {{[1-9][0-9]*}} in
// CHECK-DAG: heap: out of core {{[1-9]}}
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory_resource>
#include <new>
#include <numeric>
#include <vector>

int main() {
  std::vector<double> grown; // by push_back: through all sizes
  for (long i = 0; i < 6000000; i++) grown.push_back(double(i % 977));
  auto *array = new double[6000000];
  for (long i = 0; i < 6000000; i++) array[i] = grown[i] + 1;
  std::pmr::vector<uint64_t> keys(3000000, std::pmr::new_delete_resource());
  uint64_t x = 9;
  for (auto &key : keys) key = x = x * 6364136223846793005u + 1;
  std::sort(keys.begin(), keys.begin() + 500000);
  double sum = 0;
  for (long i = 0; i < 200000; i++) sum += array[keys[i] % 6000000] * 0.5 + grown[(keys[i] >> 20) % 6000000];
  std::printf("%.17g %lu\n", sum, (unsigned long)std::accumulate(keys.begin(), keys.end(), uint64_t(0)));
  grown.shrink_to_fit();
  struct alignas(256) Wide { double of[32]; };
  auto *wide = new Wide[60000];
  for (long i = 0; i < 60000; i++) wide[i].of[i % 32] = double(i);
  sum = 0;
  for (long i = 0; i < 60000; i++) sum += wide[i].of[i % 32];
  std::printf("%.17g %d\n", sum, int(reinterpret_cast<uintptr_t>(wide) % 256));
  bool refused = false;
  try {
    volatile size_t much = (size_t)1 << 62;
    delete[] new char[much];
  } catch (const std::bad_alloc &) {
    refused = true;
  }
  std::printf("%d\n", refused);
  delete[] wide;
  delete[] array;
}
