/*
 * Every member tells rank 0 that it has the library, and rank 0 tells those that did whether all have.
 *
 * Only a rank that has the library is sent anything, with one exception: if rank 0 lacks it, the others' messages stay
 * there. They have the highest tag that MPI allows, so a program does not receive them unless it receives any message of
 * any sender.
 */
#include "presence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* After MPI_Init all processes are there, and a message takes no longer than a busy core needs to come round. */
#define PRESENCE_TIMEOUT_S 10
/* Rank 0 is to give up first, and say who is missing. */
#define ANSWER_TIMEOUT_S (PRESENCE_TIMEOUT_S + 5)
/* Most missing ranks that are named. */
#define NAMED_MAX 8
/* Polls before the wait begins to sleep, which leaves the core to a rank that needs it. */
#define EAGER_POLLS 1000
#define NAP_NS 50000
/* Ranks that say on standard error that rank 0 lacks the library: nobody knows who else does. */
#define TELLERS 4
#define CONSEQUENCE                                                                                \
    "collectives go to the underlying MPI. Is the file on every host, and does the launcher hand on " \
    "LD_PRELOAD (Open MPI: -x LD_PRELOAD)?"

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int tag_of(MPI_Comm comm) {
    int *upper_bound = NULL;
    int found = 0;
    underlying.Comm_get_attr(comm, MPI_TAG_UB, (void *)&upper_bound, &found);
    return found ? *upper_bound : 32767; /* what MPI guarantees */
}

/*
 * Waits until all of `requests` are complete, or `timeout_s` is over. Completed ones become MPI_REQUEST_NULL. Returns how many
 * are left.
 */
static int await(int count, MPI_Request *requests, double timeout_s) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    double deadline = now_s() + timeout_s;
    int left = 0;
    for (int at = 0; at < count; at++) {
        left += requests[at] != MPI_REQUEST_NULL;
    }
    for (long polls = 0; left > 0 && (polls < EAGER_POLLS || now_s() < deadline); polls++) {
        for (int at = 0; at < count; at++) {
            int is_complete = 0;
            if (requests[at] != MPI_REQUEST_NULL &&
                underlying.Test(&requests[at], &is_complete, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
                is_complete) {
                left--;
            }
        }
        if (polls >= EAGER_POLLS) {
            nanosleep(&nap, NULL);
        }
    }
    return left;
}

/* Takes back a receive that nothing has matched. */
static void take_back(MPI_Request *request) {
    underlying.Cancel(request);
    underlying.Wait(request, MPI_STATUS_IGNORE);
}

static void say_missing(int size, int missing, const MPI_Request *requests) {
    char ranks[NAMED_MAX * 12 + 8] = "";
    int named = 0;
    for (int rank = 1; rank < size && named < NAMED_MAX; rank++) {
        if (requests[rank] != MPI_REQUEST_NULL) {
            size_t used = strlen(ranks);
            snprintf(ranks + used, sizeof ranks - used, "%s%d", named++ == 0 ? "" : ", ", rank);
        }
    }
    fprintf(stderr,
            "tributary: %d of %d ranks do not have this library (rank %s%s); " CONSEQUENCE "\n", missing,
            size, ranks, missing > named ? ", ..." : "");
}

static bool collect(MPI_Comm comm, int size, int tag) {
    MPI_Request *requests = malloc((size_t)size * sizeof *requests);
    char *told = malloc((size_t)size);
    if (requests == NULL || told == NULL) {
        abort(); /* the others wait for a decision */
    }
    requests[0] = MPI_REQUEST_NULL;
    for (int rank = 1; rank < size; rank++) {
        underlying.Irecv(&told[rank], 1, MPI_BYTE, rank, tag, comm, &requests[rank]);
    }
    int missing = await(size, requests, PRESENCE_TIMEOUT_S);
    if (missing > 0) {
        say_missing(size, missing, requests);
    }
    char all = missing == 0;
    for (int rank = 1; rank < size; rank++) {
        if (requests[rank] == MPI_REQUEST_NULL) {
            underlying.Send(&all, 1, MPI_BYTE, rank, tag, comm);
        } else {
            take_back(&requests[rank]);
        }
    }
    free(told);
    free(requests);
    return missing == 0;
}

static bool ask(MPI_Comm comm, int rank, int tag) {
    char here = 1;
    char all = 0;
    MPI_Request answer;
    underlying.Irecv(&all, 1, MPI_BYTE, 0, tag, comm, &answer);
    underlying.Send(&here, 1, MPI_BYTE, 0, tag, comm);
    if (await(1, &answer, ANSWER_TIMEOUT_S) == 0) {
        return all == 1;
    }
    take_back(&answer);
    if (rank <= TELLERS) {
        fprintf(stderr, "tributary: rank 0 does not have this library; " CONSEQUENCE "\n");
    }
    return false;
}

bool presence_is_complete(MPI_Comm comm) {
    int rank = 0;
    int size = 0;
    underlying.Comm_rank(comm, &rank);
    underlying.Comm_size(comm, &size);
    return rank == 0 ? collect(comm, size, tag_of(comm)) : ask(comm, rank, tag_of(comm));
}

bool presence_has_foreigners(MPI_Comm comm, MPI_Comm world) {
    MPI_Group members;
    MPI_Group known;
    int size = 0;
    bool found = false;
    underlying.Comm_group(comm, &members);
    underlying.Comm_group(world, &known);
    underlying.Comm_size(comm, &size);
    for (int rank = 0; rank < size && !found; rank++) {
        int in_world = MPI_UNDEFINED;
        underlying.Group_translate_ranks(members, 1, &rank, known, &in_world);
        found = in_world == MPI_UNDEFINED;
    }
    underlying.Group_free(&members);
    underlying.Group_free(&known);
    return found;
}
