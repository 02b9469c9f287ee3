/* The sessions that are open: the program's, and the library's own, from which its communicators come where the program
 * has not called MPI_Init. */
#ifndef TRIBUTARY_SESSIONS_H
#define TRIBUTARY_SESSIONS_H

#include <stdbool.h>

/* Whether there is any, of either kind. */
bool sessions_any_open(void);

/* Ends the library's own, if there is one. The shim is off. */
void sessions_end_own(void);

#endif
