// trap: places are in vector registers when the program faults, which nobody outside can read: speculation begins without
// needs: flag avx2
// build: -O2 -mavx2
// run: read
// run: computed
// data: cold.bin 24M
// data: index.bin 8M
// modes: cold warm
#include "guest.h"
#include <immintrin.h>

enum { WORDS = (24 << 20) / 8, STEPS = 3000 };

static const long long *map(const char *path, size_t length) {
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    void *got = mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0);
    CHECK(got != MAP_FAILED && close(file) == 0);
    CHECK(madvise(got, length, MADV_RANDOM) == 0);
    return got;
}

// Four places at a time, below 2^21 of 3 * 2^20 words. What is the same in each step the compiler keeps in registers.
int main(int count, char **arguments) {
    CHECK(count == 2);
    bool computed = strcmp(arguments[1], "computed") == 0;
    const long long *data = map("cold.bin", (size_t)WORDS * 8), *index = map("index.bin", 8 << 20);
    const __m256i mask = _mm256_set1_epi64x((1 << 21) - 1), factor = _mm256_set1_epi64x(0x9e3779b1);
    __m256i sum = _mm256_setzero_si256(), at = _mm256_set_epi64x(1, 2, 3, 4);
    for (int step = 0; step < STEPS; step++) {
        if (computed)
            at = _mm256_add_epi64(_mm256_mul_epu32(at, factor), _mm256_srli_epi64(at, 32));
        else
            at = _mm256_loadu_si256((const __m256i *)(index + step * 4));
        __m256i place = _mm256_and_si256(_mm256_srli_epi64(at, 9), mask);
        sum = _mm256_add_epi64(_mm256_add_epi64(sum, sum), _mm256_i64gather_epi64(data, place, 8));
    }
    uint64_t sums[4];
    _mm256_storeu_si256((__m256i *)sums, sum);
    printf("sum %016" PRIx64 "\n", hash_bytes(sums, sizeof sums));
    return 0;
}
