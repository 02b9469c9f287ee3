/* Packs, broadcasts and unpacks piece by piece. */
#include "pieces.h"
#include "failure.h"
#include "walk.h"

#include <stdlib.h>
#include <string.h>

/* Parts that are packed at once. */
#define PART_BYTES (INT64_C(1) << 20)

/* A broadcast on its way through the bytes of its vector. */
typedef struct passage {
    comm_record *record;
    const tributary_operation *operation;
    int64_t len_bytes;
    int64_t done_bytes; /* broadcast already */
    /* Of a rank that packs: */
    char *bytes;
    int64_t room_bytes;
    int64_t first; /* where in `bytes` those begin that are packed, or have come, and are not yet used */
    int64_t end;
} passage;

/* Broadcasts the next piece, of so many bytes. */
static int broadcast_piece(passage *of, char *bytes, int64_t len_bytes) {
    tributary_operation piece = *of->operation;
    piece.elements = (uint64_t)len_bytes;
    piece.source = bytes;
    piece.target = bytes;
    int outcome = of->done_bytes == 0 ? tributary_run(of->record->core, &piece)
                                      : tributary_run_on(of->record->core, &piece);
    of->done_bytes += len_bytes;
    return outcome == 0 ? MPI_SUCCESS : failure_raise(of->record, outcome);
}

static int64_t next_piece_bytes(const passage *of) {
    int64_t left = of->len_bytes - of->done_bytes;
    return left < STAGING_PIECE_BYTES ? left : STAGING_PIECE_BYTES;
}

/* Makes room behind the bytes that are not yet used. Raises the error. */
static int make_room(passage *of, int64_t len_bytes) {
    int64_t kept = of->end - of->first;
    if (kept + len_bytes > of->room_bytes) {
        char *grown = realloc(of->bytes, (size_t)(kept + len_bytes));
        if (grown == NULL) {
            underlying.Comm_call_errhandler(of->record->comm, MPI_ERR_NO_MEM);
            return MPI_ERR_NO_MEM;
        }
        of->bytes = grown;
        of->room_bytes = kept + len_bytes;
    }
    memmove(of->bytes, of->bytes + of->first, (size_t)kept);
    of->first = 0;
    of->end = kept;
    return MPI_SUCCESS;
}

static int raise_if(const passage *of, int error) {
    if (error != MPI_SUCCESS) {
        underlying.Comm_call_errhandler(of->record->comm, error);
    }
    return error;
}

/* The root packs a part, and broadcasts what makes whole pieces. */
static int send_part(void *context, const staging_side *part, int64_t len_bytes) {
    passage *of = context;
    int error = of->end + len_bytes <= of->room_bytes ? MPI_SUCCESS : make_room(of, len_bytes);
    if (error == MPI_SUCCESS) {
        error = raise_if(of, staging_pack_side(of->bytes, (int)(of->end + len_bytes), (int)of->end, part));
    }
    of->end += len_bytes;
    while (error == MPI_SUCCESS && of->end > of->first && of->end - of->first >= next_piece_bytes(of)) {
        int64_t piece_bytes = next_piece_bytes(of);
        error = broadcast_piece(of, of->bytes + of->first, piece_bytes);
        of->first += piece_bytes;
    }
    return error;
}

/* Another rank gets pieces until it has the part, and unpacks it. */
static int receive_part(void *context, const staging_side *part, int64_t len_bytes) {
    passage *of = context;
    int error = MPI_SUCCESS;
    while (error == MPI_SUCCESS && of->end - of->first < len_bytes) {
        int64_t piece_bytes = next_piece_bytes(of);
        error = make_room(of, piece_bytes);
        if (error == MPI_SUCCESS) {
            error = broadcast_piece(of, of->bytes + of->end, piece_bytes);
            of->end += piece_bytes;
        }
    }
    if (error == MPI_SUCCESS) {
        error = raise_if(of, staging_unpack_side(of->bytes, (int)(of->first + len_bytes), (int)of->first, part));
        of->first += len_bytes;
    }
    return error;
}

int pieces_broadcast(comm_record *record, const tributary_operation *operation, const staging *through) {
    passage of = {.record = record, .operation = operation, .len_bytes = (int64_t)operation->elements};
    int error = MPI_SUCCESS;
    if (through->is_dense) {
        while (error == MPI_SUCCESS && of.done_bytes < of.len_bytes) {
            error = broadcast_piece(&of, (char *)operation->target + of.done_bytes, next_piece_bytes(&of));
        }
        return error;
    }
    error = make_room(&of, STAGING_PIECE_BYTES + PART_BYTES);
    if (error == MPI_SUCCESS) {
        error = walk(&through->from, PART_BYTES, through->packs ? send_part : receive_part, &of);
    }
    free(of.bytes);
    return error;
}
