/* The library's own session, from which its communicators come where the program has not called MPI_Init. */
#ifndef TRIBUTARY_SESSIONS_H
#define TRIBUTARY_SESSIONS_H

/* Ends it, if there is one. The shim is off. */
void sessions_end_own(void);

#endif
