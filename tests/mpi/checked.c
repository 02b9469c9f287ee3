/*
 * Under valgrind's memcheck, every byte of a result is initialised, and nothing breaks down: also where vectors would
 * go from process to process, which valgrind does not see.
 */
#include <stdlib.h>

#include <valgrind/memcheck.h>

#include "check.h"

enum { LONGEST = 40000 };

static void check_initialised(const void *at, size_t bytes, const char *what) {
    check_equal(0, VALGRIND_CHECK_MEM_IS_DEFINED(at, bytes) != 0, what);
}

/* Results go to memory that nothing has written to. */
static void use(int elements) {
    size_t bytes = sizeof(double) * (size_t)elements;
    double *source = check_memory(bytes);
    double *target = check_memory(bytes);
    double *all = check_memory(bytes * (size_t)world.ranks);
    double *blank = check_memory(bytes);
    MPI_Request request;
    for (int at = 0; at < elements; at++) {
        source[at] = world.rank + at;
    }
    MPI_Allreduce(source, target, elements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check_initialised(target, bytes, "MPI_Allreduce");
    MPI_Allgather(source, elements, MPI_DOUBLE, all, elements, MPI_DOUBLE, MPI_COMM_WORLD);
    check_initialised(all, bytes * (size_t)world.ranks, "MPI_Allgather");
    MPI_Bcast(world.rank == 0 ? source : blank, elements, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    check_initialised(world.rank == 0 ? source : blank, bytes, "MPI_Bcast");
    free(target);
    target = check_memory(bytes);
    MPI_Iallreduce(source, target, elements, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_initialised(target, bytes, "MPI_Iallreduce");
    free(source), free(target), free(all), free(blank);
}

int main(int argc, char **argv) {
    check_start(argc, argv, "checked", MPI_THREAD_SINGLE);
    check_case("memcheck");
    check_that(RUNNING_ON_VALGRIND != 0, "this program is for valgrind");
    for (int elements = 1; elements <= LONGEST; elements *= 25) {
        check_case("%d elements", elements);
        use(elements);
    }
    check_case("%d elements", LONGEST);
    use(LONGEST);
    return check_finish();
}
