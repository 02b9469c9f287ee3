/* MPI_Init, MPI_Init_thread and MPI_Finalize. */
#include "communicators.h"
#include "failure.h"
#include "fault_tolerance.h"
#include "maps.h"
#include "pending.h"
#include "persistent.h"
#include "report.h"
#include "shim.h"
#include "staging.h"

#include <stdio.h>
#include <stdlib.h>

atomic_bool shim_is_on;
MPI_Comm shim_self;
static bool report_wanted;
/* A copy of MPI_COMM_WORLD on which nobody ever sends. */
static MPI_Comm silent_world;
/* The source to probe for on it. */
static int silent_source = MPI_ANY_SOURCE;

void shim_drive_mpi(void) {
    int found = 0;
    /*
     * A probe progresses messages and takes none. It must not be on a communicator of one rank, where
     * MPICH only checks its queue, nor on one that carries messages: a probe that finds a message at
     * once progresses nothing.
     */
    underlying.Iprobe(silent_source, MPI_ANY_TAG, silent_world, &found, MPI_STATUS_IGNORE);
}

static void open_core(void) {
    int rank = 0;
    int size = 0;
    MPI_Comm world = MPI_COMM_WORLD;
    underlying.Comm_rank(world, &rank);
    underlying.Comm_size(world, &size);
    tributary_bootstrap members = communicators_bootstrap(&world, rank, size);
    int level = MPI_THREAD_MULTIPLE;
    underlying.Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) {
        tributary_take_turns();
    }
    if (tributary_open(&members) != 0 && rank == 0) {
        char message[FAILURE_MESSAGE_BYTES];
        tributary_message(message, sizeof message);
        fprintf(stderr, "tributary: %s; collectives go to the underlying MPI\n", message);
    }
}

/* One rank warns. With the wrong ABI MPI can't tell the rank, but the launcher's environment does. */
static void warn_once(const char *message) {
    static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t at = 0; at < sizeof rank_names / sizeof *rank_names; at++) {
        const char *rank = getenv(rank_names[at]);
        if (rank != NULL && rank[0] != '0') {
            return;
        }
    }
    fprintf(stderr, "tributary: %s; collectives go to the underlying MPI\n", message);
}

static void start(void) {
    char why_not[FAILURE_MESSAGE_BYTES];
    if (!underlying_is_expected_library(why_not, sizeof why_not)) {
        warn_once(why_not);
        return;
    }
    maps_fill();
    failure_open();
    if (communicators_open() != MPI_SUCCESS ||
        underlying.Comm_dup(MPI_COMM_SELF, &shim_self) != MPI_SUCCESS ||
        underlying.Comm_set_errhandler(shim_self, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
        underlying.Comm_dup(MPI_COMM_WORLD, &silent_world) != MPI_SUCCESS ||
        underlying.Comm_set_errhandler(silent_world, MPI_ERRORS_RETURN) != MPI_SUCCESS) {
        return; /* MPI has raised the error */
    }
    fault_tolerance_open();
    if (fault_tolerance_is_on()) {
        /* Once a rank has failed, MPI refuses a probe for any source. */
        underlying.Comm_rank(silent_world, &silent_source);
    }
    staging_open();
    report_wanted = report_is_wanted();
    open_core();
    communicators_add(MPI_COMM_WORLD, "world");
    communicators_add(MPI_COMM_SELF, "self");
    /* Pairs with the acquire in shim_enter(). */
    atomic_store_explicit(&shim_is_on, true, memory_order_release);
}

INTERPOSED int MPI_Init(int *argc, char ***argv) {
    underlying_ensure();
    int error = underlying.Init(argc, argv);
    if (error == MPI_SUCCESS) {
        start();
    }
    return error;
}

INTERPOSED int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    underlying_ensure();
    int error = underlying.Init_thread(argc, argv, required, provided);
    if (error == MPI_SUCCESS) {
        start();
    }
    return error;
}

/* Waits for operations whose requests the program has freed, reports, and frees everything. */
static void stop(void) {
    pending_drain();
    atomic_store_explicit(&shim_is_on, false, memory_order_release);
    if (report_wanted) {
        MPI_Comm survivors = fault_tolerance_survivors(silent_world);
        report_collect(survivors != MPI_COMM_NULL ? survivors : silent_world);
        if (survivors != MPI_COMM_NULL) {
            underlying.Comm_free(&survivors);
        }
    }
    persistent_close();
    communicators_close();
    tributary_close();
    underlying.Comm_free(&silent_world);
    underlying.Comm_free(&shim_self);
}

INTERPOSED int MPI_Finalize(void) {
    if (shim_enter()) {
        stop();
    }
    return underlying.Finalize();
}
