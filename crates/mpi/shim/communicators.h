/*
 * The record that this library keeps of each communicator.
 *
 * A table finds the record by the communicator's handle, without locks. The record is made when the
 * communicator is created; setting it up is then possible, because both are collective. A communicator
 * that was created by a call that is not interposed gets its record at its first collective. An
 * attribute on the communicator tells when MPI frees it.
 */
#ifndef TRIBUTARY_COMMUNICATORS_H
#define TRIBUTARY_COMMUNICATORS_H

#include "underlying.h"
#include "tributary_core.h"

typedef enum comm_state {
    COMM_LATE,    /* not set up yet; a blocking collective does it */
    COMM_READY,   /* offloads */
    COMM_WATCHED, /* offloads unless MPI knows that it is revoked, or what is in the record below says no */
    COMM_PASSES,  /* never offloads, for the record's `pass_reason` */
} comm_state;

/* How a communicator's reductions add floats, as a program says it by the info key tributary_sums; empty if it says nothing. */
typedef struct sums_word {
    char text[16];
} sums_word;

#define SUMS_AS_SET ((sums_word){""})

typedef struct comm_record {
    MPI_Comm comm;
    tributary_communicator *core;
    int rank;
    int size;
    _Atomic comm_state state;
    atomic_bool is_freed; /* `comm` is no handle any more */
    atomic_int holds; /* one for the communicator, one for each nonblocking or persistent operation */
    sums_word sums;
    bool all_have_library; /* all members do, although not all are of this world */
    _Atomic uint32_t uses_to_join; /* of a late one: blocking collectives until the one that sets it up */
    _Atomic uint32_t pass_reason; /* TRIBUTARY_PASS_*; written before `state` is COMM_PASSES */
    /* Written before `state` is COMM_READY or COMM_WATCHED. */
    bool asks_devices;        /* whether buffers are their memory */
    bool keeps_from_rounding; /* reductions: they would be rounded in another way than the program wants, or not alike */
    bool is_on_one_host;
    bool takes_fast_path; /* on one host, and nobody measures its operations */
    bool is_numbered;     /* the two numbers below are known: this rank has called here while it was measured */
    uint32_t times_number;
    uint32_t trace_number;
    uint64_t longest_bytes[TRIBUTARY_COLLECTIVES]; /* of a rank's contribution that is offloaded */
} comm_record;

/* Called once per process, after MPI is initialised. Nonzero: MPI refused. */
int communicators_open(void);

/*
 * Makes the record of a communicator that all its members have just created, and sets it up unless
 * many have been created already. Ignores MPI_COMM_NULL.
 */
void communicators_add(MPI_Comm comm, const char *label, sums_word sums);

/* The word of a communicator, and that of an info object. */
sums_word communicators_sums_of(MPI_Comm comm);
sums_word communicators_sums_in(MPI_Info info);

/* The same for a communicator whose members may be of several worlds. */
void communicators_add_merged(MPI_Comm comm, const char *label);

/* The record of `comm`, made if there is none. Null: MPI must judge this handle. */
comm_record *communicators_find(MPI_Comm comm);

/* One more blocking collective of a late communicator: sets it up if it is the one to do so. Collective over its members. */
void communicators_join_in_time(comm_record *record);

/* Sets a late communicator up. Collective over its members. */
void communicators_join(comm_record *record);

/* Whether MPI knows that it is revoked; false if the program has freed it. */
bool communicators_is_revoked(comm_record *record);

/* The communicator whose error handler is to be called: shim_comm_for_errors() if the program has freed this one. */
MPI_Comm communicators_for_errors(comm_record *record);

/* The program has revoked it: passes every later operation on `record` to MPI, which refuses it. */
void communicators_revoked(comm_record *record);

/* Keep a record and the core's communicator alive while an operation is outstanding. */
void communicators_hold(comm_record *record);
void communicators_let_go(comm_record *record);

/* Gives up every communicator. No other thread may be in MPI. */
void communicators_close(void);

/*
 * What holds at any member, as bits. Collective over them, and the same at all. Without an answer everything holds:
 * MPI has failed, or there is no memory for the answers.
 */
uint8_t communicators_agree(const tributary_bootstrap *members, uint8_t here);

/* The bootstrap that gathers over `*comm`. */
tributary_bootstrap communicators_bootstrap(MPI_Comm *comm, int rank, int size);

#endif
