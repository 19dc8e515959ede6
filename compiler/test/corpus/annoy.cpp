// annoy's own header: an index of 4000 vectors is built, saved, mapped, and asked; the answers are printed.
#include <cstdio>
#include <random>
#include <vector>
#include "kissrandom.h"
#include "annoylib.h"
using namespace Annoy;

template <typename Distance> static void run(const char *name, const char *file) {
  const int f = 40, n = 4000;
  typedef AnnoyIndex<int, float, Distance, Kiss32Random, AnnoyIndexSingleThreadedBuildPolicy> Index;
  Index t(f);
  std::mt19937 g(7);
  std::vector<float> v(f);
  for (int i = 0; i < n; i++) {
    for (float &x : v) x = (float)(g() % 20000) / 10000 - 1;
    t.add_item(i, v.data());
  }
  t.build(10);
  t.save(file);
  Index u(f);
  u.load(file);
  for (int i = 0; i < n; i += 97) {
    std::vector<int> found;
    std::vector<float> far;
    u.get_nns_by_item(i, 10, -1, &found, &far);
    printf("%s %d:", name, i);
    for (size_t j = 0; j < found.size(); j++) printf(" %d %.6g", found[j], far[j]);
    printf("\n");
  }
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  run<Angular>("angular", argv[1]);
  run<Euclidean>("euclidean", argv[1]);
  run<Manhattan>("manhattan", argv[1]);
}
