// hnswlib's own header: an index of 500 vectors is built, saved, read again, thinned, and asked; the answers are
// printed.
#include "hnswlib/hnswlib.h"
#include <cstdio>
#include <random>
#include <string>
#include <vector>

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  const int dim = 24, n = 500;
  std::mt19937 g(47);
  std::vector<float> data(dim * n);
  for (float &x : data) x = (float)(g() % 100000) / 100000;
  hnswlib::L2Space l2(dim);
  hnswlib::InnerProductSpace ip(dim);
  hnswlib::SpaceInterface<float> *spaces[] = {&l2, &ip};
  for (auto *space : spaces) {
    hnswlib::HierarchicalNSW<float> made(space, n, 16, 100, 100, true);
    for (int i = 0; i < n; i++) made.addPoint(&data[i * dim], i);
    made.saveIndex(argv[1]);
    hnswlib::HierarchicalNSW<float> index(space, std::string(argv[1]), false, 2 * n, true);
    for (int i = 0; i < n; i += 7) index.markDelete(i);
    for (int i = 0; i < 100; i++) index.addPoint(&data[(n - 1 - i) * dim], n + i);
    for (int i = 0; i < n; i += 23) {
      auto found = index.searchKnnCloserFirst(&data[i * dim], 8);
      printf("%d:", i);
      for (auto &pair : found) printf(" %zu %.7g", pair.second, pair.first);
      printf("\n");
    }
  }
}
