/*
 * A thread with a small stack, as user-level threads have, makes communicators and uses them. Setting one up takes more stack
 * than the thread has.
 */
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

enum { STACK_BYTES = 64 * 1024, COMMUNICATORS = 3, LONG = 40000, LENGTHS = 3 };
static const int lengths[LENGTHS] = {1, 500, LONG};

static long long sum_of(int at) { return (long long)world.ranks * (world.ranks - 1) / 2 + (long long)world.ranks * at; }

static void check_numbers(const int *numbers, int length, const char *what) {
    int wrong = 0;
    for (int at = 0; at < length; at++) {
        wrong += numbers[at] != sum_of(at);
    }
    check_equal(0, wrong, what);
}

static void use(MPI_Comm comm, int *own, int *result) {
    for (int number = 0; number < LENGTHS; number++) {
        int length = lengths[number];
        int root = number % world.ranks;
        MPI_Request request;
        for (int at = 0; at < length; at++) {
            own[at] = world.rank + at;
        }
        check_case("%d numbers", length);
        MPI_Allreduce(own, result, length, MPI_INT, MPI_SUM, comm);
        check_numbers(result, length, "numbers of MPI_Allreduce that are wrong");
        MPI_Reduce(own, result, length, MPI_INT, MPI_SUM, root, comm);
        if (world.rank == root) {
            check_numbers(result, length, "numbers of MPI_Reduce that are wrong");
        }
        MPI_Bcast(result, length, MPI_INT, root, comm);
        check_numbers(result, length, "numbers of MPI_Bcast that are wrong");
        MPI_Scan(own, result, length, MPI_INT, MPI_SUM, comm);
        MPI_Bcast(result, length, MPI_INT, world.ranks - 1, comm);
        check_numbers(result, length, "numbers of MPI_Scan that are wrong");
        MPI_Iallreduce(own, result, length, MPI_INT, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_numbers(result, length, "numbers of MPI_Iallreduce that are wrong");
        MPI_Barrier(comm);
    }
}

static void *run(void *memory) {
    int *own = memory;
    use(MPI_COMM_WORLD, own, own + LONG);
    for (int number = 0; number < COMMUNICATORS; number++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        use(comm, own, own + LONG);
        MPI_Comm_free(&comm);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_attr_t attributes;
    pthread_t thread;
    check_start(argc, argv, "small_stack", MPI_THREAD_SERIALIZED);
    int *memory = check_memory(2 * LONG * sizeof *memory);
    pthread_attr_init(&attributes);
    check_equal(0, pthread_attr_setstacksize(&attributes, STACK_BYTES), "pthread_attr_setstacksize");
    check_equal(0, pthread_create(&thread, &attributes, run, memory), "pthread_create");
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    free(memory);
    return check_finish();
}
