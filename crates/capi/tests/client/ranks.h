/* Ranks as processes of one machine, and the out-of-band callbacks between them. */
#ifndef RANKS_H
#define RANKS_H

#include <sharp/api/sharp.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the process unless `condition` holds. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* Ends the process unless a call of the library succeeds. */
#define OK(call)                                                                                             \
    do {                                                                                                     \
        int status_ = (call);                                                                                \
        if (status_ != SHARP_COLL_SUCCESS) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %s (%d)\n", __FILE__, __LINE__, #call, sharp_coll_strerror(status_), \
                    status_);                                                                                \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

enum { RANKS_MAX = 64 };

/* Some ranks, and this process's place among them. */
struct group {
    int rank, size;
    struct exchange *exchange;
    int fails_with; /* what its callbacks return, if not 0 */
};

/* Runs `body` as `size` processes. The statuses of all that did not exit with 0, added up. */
int run_ranks(int size, void (*body)(struct group *world));

/* The same ranks, for a second communicator; made before the ranks are: groups 0 to 3. */
struct group group_of(const struct group *world, int number, int rank, int size);

/* The callbacks, for a `struct group` as context. */
extern const struct sharp_coll_out_of_band_colls callbacks;

/* What the next context calls while it waits; NULL at first. */
extern int (*progress)(void);

/* A context over `world`. Members that the library does not need are garbage. */
int open_context(struct group *world, struct sharp_coll_context **context);
int open_comm(struct sharp_coll_context *context, struct group *group, struct sharp_coll_comm **comm);

#endif
