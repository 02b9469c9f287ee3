/* Collectives of int32 and of every other type, each compared with what it must give. */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include "ranks.h"

/* Where operations run: blocking, or started and tested. */
struct place {
    struct sharp_coll_context *context;
    struct sharp_coll_comm *comm;
    int rank, size;
    int nonblocking;
    int registered;
};

void check_allreduce(struct place *place, size_t count, int in_place);
void check_types(struct place *place);
void check_reduce(struct place *place, size_t count, int root, int in_place);
void check_bcast(struct place *place, size_t size, int root);
void check_barrier(struct place *place);
/* A window of `bytes` from `offset` on, of blocks of `block_bytes`. */
void check_reduce_scatter(struct place *place, size_t block_bytes, size_t offset, size_t bytes);
void check_reduce_scatter_in_place(struct place *place, size_t block_bytes);
void check_allgather(struct place *place, size_t block_bytes, size_t offset, size_t bytes, int in_place);
void check_everything(struct place *place);

#endif
