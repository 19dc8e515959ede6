// trap: a program that reads through io_uring
// needs: kernel 5.15
// data: cold.bin 4M
#include "guest.h"
#include <linux/io_uring.h>

int main(void) {
    struct io_uring_params parameters = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 64, &parameters);
    if (ring < 0) {
        // Switched off on this machine: the same alone and under Runahead.
        printf("io_uring: errno %d\n", errno);
        return 0;
    }
    size_t submission_size = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    size_t completion_size = parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe);
    char *submission = mmap(NULL, submission_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    char *completion = mmap(NULL, completion_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, parameters.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    CHECK(submission != MAP_FAILED && completion != MAP_FAILED && entries != MAP_FAILED);
    unsigned *submission_tail = (unsigned *)(submission + parameters.sq_off.tail);
    unsigned submission_mask = *(unsigned *)(submission + parameters.sq_off.ring_mask);
    unsigned *array = (unsigned *)(submission + parameters.sq_off.array);
    unsigned *completion_head = (unsigned *)(completion + parameters.cq_off.head);
    unsigned *completion_tail = (unsigned *)(completion + parameters.cq_off.tail);
    unsigned completion_mask = *(unsigned *)(completion + parameters.cq_off.ring_mask);
    struct io_uring_cqe *completions = (struct io_uring_cqe *)(completion + parameters.cq_off.cqes);
    int file = open("cold.bin", O_RDONLY);
    static char blocks[32][4096];
    uint64_t sum = 0;
    for (int round = 0; round < 20; round++) {
        // Its own reads in between, on the same file.
        sum = sum * 31 + stride("cold.bin", 10);
        for (unsigned at = 0; at < 32; at++) {
            unsigned tail = *submission_tail, index = tail & submission_mask;
            entries[index] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = file, .off = (round * 32 + at) * 37 % 1000 * 4096,
                                                   .addr = (uint64_t)(uintptr_t)blocks[at], .len = 4096, .user_data = at};
            array[index] = index;
            __atomic_store_n(submission_tail, tail + 1, __ATOMIC_RELEASE);
        }
        int done = 0;
        long entered = syscall(SYS_io_uring_enter, ring, 32, 32, IORING_ENTER_GETEVENTS, NULL, 0);
        CHECK(entered == 32);
        while (done < 32) {
            unsigned head = *completion_head;
            CHECK(head != __atomic_load_n(completion_tail, __ATOMIC_ACQUIRE));
            CHECK(completions[head & completion_mask].res == 4096);
            __atomic_store_n(completion_head, head + 1, __ATOMIC_RELEASE);
            done++;
        }
        for (int at = 0; at < 32; at++) sum = sum * 31 + hash_bytes(blocks[at], 4096);
    }
    printf("sum %016" PRIx64 "\n", sum);
}
