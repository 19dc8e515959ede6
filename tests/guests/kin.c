// trap: short processes of one executable, one after the other: those that come later know what became of the earlier ones
// data: cold.bin 4M
// run: 10
#include "guest.h"

int main(int argc, char **argv) {
    if (argc == 3) {
        printf("%s: %016" PRIx64 "\n", argv[2], wander("cold.bin", 12));
        describe_onlookers();
        return 0;
    }
    CHECK(argc == 2);
    for (int child = 0; child < atoi(argv[1]); child++) {
        make_cold("cold.bin");
        pid_t process = fork();
        CHECK(process >= 0);
        if (process == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", child);
            execv(argv[0], (char *[]){argv[0], argv[1], number, NULL});
            CHECK(!"exec came back");
        }
        printf("status %d\n", exit_status_of(process));
        fflush(stdout);
    }
}
