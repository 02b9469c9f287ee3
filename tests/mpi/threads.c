/*
 * MPI_THREAD_MULTIPLE: several threads, each with its own communicators, call all collectives at the same
 * time; meanwhile one thread makes and frees communicators, and one sends messages.
 */
#include <pthread.h>

#include "check.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define ALLREDUCE_INIT MPIX_Allreduce_init
#else
#define ALLREDUCE_INIT MPI_Allreduce_init
#endif

enum { THREADS = 4, ROUNDS = 40, ELEMENTS = 300, TAG = 21 };

typedef struct {
    int number;
    MPI_Comm comm;
    long mine;
    long sum;
    MPI_Request persistent; /* adds up `mine` */
} worker;

static void reduce_blocking(const worker *own, int round) {
    long mine[ELEMENTS];
    long sum[ELEMENTS];
    int length = round % 3 == 0 ? 1 : ELEMENTS;
    for (int at = 0; at < length; at++) {
        mine[at] = own->number * 1000 + world.rank + at;
    }
    MPI_Allreduce(mine, sum, length, MPI_LONG, MPI_SUM, own->comm);
    long base = (long)world.ranks * (own->number * 1000) + world.ranks * (world.ranks - 1) / 2;
    for (int at = 0; at < length; at++) {
        if (!check_equal(base + (long)at * world.ranks, sum[at], "MPI_Allreduce")) {
            return;
        }
    }
}

static void reduce_nonblocking(const worker *own, int round) {
    MPI_Request requests[3];
    int mine = own->number + world.rank;
    int max = -1;
    int word = world.rank == round % world.ranks ? 100 * own->number + round : -1;
    MPI_Iallreduce(&mine, &max, 1, MPI_INT, MPI_MAX, own->comm, &requests[0]);
    MPI_Ibcast(&word, 1, MPI_INT, round % world.ranks, own->comm, &requests[1]);
    MPI_Ibarrier(own->comm, &requests[2]);
    if (round % 2 == 0) {
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    } else {
        int flag = 0;
        while (!flag) {
            MPI_Testall(3, requests, &flag, MPI_STATUSES_IGNORE);
        }
    }
    check_equal(own->number + world.ranks - 1, max, "MPI_Iallreduce");
    check_equal(100 * own->number + round, word, "MPI_Ibcast");
}

/* Ended in one way or another, with an operation in between in some rounds. */
static void reduce_persistently(worker *own, int round) {
    int flag = 0;
    own->mine = own->number * 1000 + world.rank + round;
    own->sum = -1;
    MPI_Start(&own->persistent);
    if (round % 5 == 0) {
        MPI_Barrier(own->comm);
    }
    if (round % 3 == 0) {
        MPI_Wait(&own->persistent, MPI_STATUS_IGNORE);
    } else if (round % 3 == 1) {
        while (!flag) {
            MPI_Test(&own->persistent, &flag, MPI_STATUS_IGNORE);
        }
    } else {
        MPI_Waitany(1, &own->persistent, &flag, MPI_STATUS_IGNORE);
    }
    long base = (long)world.ranks * (own->number * 1000 + round) + world.ranks * (world.ranks - 1) / 2;
    check_equal(base, own->sum, "the persistent sum");
}

static void reduce_to_root(const worker *own, int round) {
    int one = own->number;
    int sum = 0;
    int root = (round + own->number) % world.ranks;
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, root, own->comm);
    check_equal(world.rank == root ? own->number * world.ranks : 0, sum, "MPI_Reduce");
    MPI_Barrier(own->comm);
}

static void make_communicator(const worker *own) {
    MPI_Comm made;
    int one = 1;
    int sum = 0;
    MPI_Comm_dup(own->comm, &made);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made);
    check_equal(world.ranks, sum, "MPI_Allreduce on a new communicator");
    MPI_Comm_free(&made);
}

static void exchange(const worker *own, int round) {
    int right = (world.rank + 1) % world.ranks;
    int left = (world.rank + world.ranks - 1) % world.ranks;
    int out = 10000 * own->number + round;
    int in = -1;
    MPI_Sendrecv(&out, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, own->comm,
                 MPI_STATUS_IGNORE);
    check_equal(out, in, "MPI_Sendrecv");
}

static void *work(void *argument) {
    worker *own = argument;
    ALLREDUCE_INIT(&own->mine, &own->sum, 1, MPI_LONG, MPI_SUM, own->comm, MPI_INFO_NULL,
                   &own->persistent);
    for (int round = 0; round < ROUNDS; round++) {
        check_case("thread %d round %d", own->number, round);
        reduce_blocking(own, round);
        reduce_nonblocking(own, round);
        reduce_persistently(own, round);
        if (own->number == 1 && round % 4 == 0) {
            make_communicator(own);
        } else if (own->number == 2) {
            exchange(own, round);
        } else {
            reduce_to_root(own, round);
        }
    }
    MPI_Request_free(&own->persistent);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    worker workers[THREADS];
    check_start(argc, argv, "threads", MPI_THREAD_MULTIPLE);
    for (int at = 0; at < THREADS; at++) {
        workers[at].number = at;
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[at].comm);
    }
    check_case("threads at work");
    for (int at = 1; at < THREADS; at++) {
        int code = pthread_create(&threads[at], NULL, work, &workers[at]);
        if (!check_equal(0, code, "pthread_create")) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    work(&workers[0]);
    check_case("waiting for the other threads");
    for (int at = 1; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
    }
    for (int at = 0; at < THREADS; at++) {
        MPI_Comm_free(&workers[at].comm);
    }
    return check_finish();
}
