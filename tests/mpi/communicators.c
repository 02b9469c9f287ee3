/*
 * As many communicators as a process has descriptors for, at two each, and no more: all work, the
 * program opens files of its own beside them, and once they are freed their descriptors are, too.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

/* The limit is that of most logins. */
enum { KEPT = 300, LIMIT = 1024, OWN_FILES = 100 };
/* What all may take as each is used twice, and what may be left once they are freed. */
enum { USED_TWICE_MAX = 64, LEFT_MAX = 16 };

static int count_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = -1; /* the folder's own */
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* A sum that only the right members give. */
static void use(MPI_Comm comm, int number) {
    long mine = (long)number * (world.rank + 1);
    long sum = -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
    check_equal((long)number * world.ranks * (world.ranks + 1) / 2, sum, "sum");
}

static void check_own_files(void) {
    FILE *files[OWN_FILES];
    for (int at = 0; at < OWN_FILES; at++) {
        files[at] = fopen("/proc/self/stat", "r");
        check_that(files[at] != NULL, "the program can't open its file %d", at);
    }
    for (int at = 0; at < OWN_FILES; at++) {
        if (files[at] != NULL) {
            fclose(files[at]);
        }
    }
}

int main(int argc, char **argv) {
    static MPI_Comm comms[KEPT];
    struct rlimit limit = {LIMIT, LIMIT};
    bool is_eager = getenv("TRIBUTARY_COMMUNICATORS_EAGER") != NULL;
    check_that(setrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit of descriptors can't be set");
    check_start(argc, argv, "communicators", MPI_THREAD_SINGLE);
    use(MPI_COMM_WORLD, 1);
    int before = count_descriptors();
    for (int at = 0; at < KEPT; at++) {
        check_case("communicator %d", at);
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[at]);
        use(comms[at], at);
    }
    check_case("all are kept");
    int with_all = count_descriptors();
    check_that(is_eager || with_all - before <= USED_TWICE_MAX, "%d communicators take %d descriptors",
               KEPT, with_all - before);
    check_own_files();
    for (int at = 0; at < KEPT; at++) {
        check_case("communicator %d once more", at);
        use(comms[at], KEPT - at);
        MPI_Comm_free(&comms[at]);
    }
    check_case("all are freed");
    use(MPI_COMM_WORLD, 2);
    int after = count_descriptors();
    check_that(after - before <= LEFT_MAX, "%d descriptors are left of %d communicators",
               after - before, KEPT);
    return check_finish();
}
