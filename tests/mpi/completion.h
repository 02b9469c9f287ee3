/* Every function that completes requests, behind one call: test programs go through all of them. */
#ifndef COMPLETION_H
#define COMPLETION_H

#include <mpi.h>

typedef enum { WAIT, WAITALL, WAITANY, WAITSOME, TEST, TESTALL, TESTANY, TESTSOME, STATUS, FAMILY }
    completion;

/* The functions' names. */
extern const char *const completion_names[FAMILY];

/* Requests, and what to do with those that are complete. */
typedef struct {
    int count;
    MPI_Request *requests;
    MPI_Status *statuses; /* one for each request */
    int one;              /* which request WAIT, TEST and STATUS are about */
    void *owner;          /* for the two functions */
    void (*on_done)(void *owner, int at, const MPI_Status *status);
    void (*on_all)(void *owner); /* all are complete, by one call, which has written `statuses` */
} completion_set;

/* Calls the function once, and checks what it says. */
void completion_call(const completion_set *set, completion how);

#endif
