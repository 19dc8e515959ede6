// A program may use the names that the run-time layer's parts have for themselves.
// RUN: %cc -O2 --runahead-heap --runahead-static --runahead-mmap %s -o %t
// RUN: %t
int count = 1, block = 2, blocks = 3, arena = 4, next = 5, file = 6, seen = 7, settings = 8;
int walk_range(int a) { return a + 1; }
int region_at(int a) { return a + 2; }
int limits_memory(int a) { return a + 3; }
int size_read(int a) { return a + 4; }
int main(int argc, char **argv) {
  (void)argv;
  int sum = count + block + blocks + arena + next + file + seen + settings;
  return sum + walk_range(argc) + region_at(argc) + limits_memory(argc) + size_read(argc) - 50;
}
