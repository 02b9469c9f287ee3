/*
 * MPI_Op_create_c, where the MPI lacks it: MPI_Op_create with a function that counts by int and calls the
 * program's.
 *
 * MPI tells the function nothing of the operator that it is called for. So every function of the program gets
 * one of ours, and keeps it: MPI may call it after MPI_Op_free. A program has few such functions.
 */
#include "stand_ins.h"
#include "shim.h"

#include <pthread.h>

#define FUNCTIONS_MAX 64

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static MPI_User_function_c *_Atomic functions[FUNCTIONS_MAX];

/* Relaxed: MPI got the operator after the function was written. */
#define COUNTS_BY_INT(number)                                                                      \
    static void counts_by_int_##number(void *in, void *inout, int *length, MPI_Datatype *type) {   \
        MPI_Count count = *length;                                                                 \
        atomic_load_explicit(&functions[number], memory_order_relaxed)(in, inout, &count, type);   \
    }

#define EIGHT(X, tens)                                                                             \
    X(0##tens##0) X(0##tens##1) X(0##tens##2) X(0##tens##3)                                        \
    X(0##tens##4) X(0##tens##5) X(0##tens##6) X(0##tens##7)
/* The numbers from 0 to 63, in octal. */
#define SIXTY_FOUR(X)                                                                              \
    EIGHT(X, 0) EIGHT(X, 1) EIGHT(X, 2) EIGHT(X, 3) EIGHT(X, 4) EIGHT(X, 5) EIGHT(X, 6) EIGHT(X, 7)

SIXTY_FOUR(COUNTS_BY_INT)

static MPI_User_function *const counting_by_int[FUNCTIONS_MAX] = {
#define ENTRY(number) [number] = counts_by_int_##number,
    SIXTY_FOUR(ENTRY)
#undef ENTRY
};

/* Ours that calls `function`; null if there are too many. */
static MPI_User_function *counting_by_int_for(MPI_User_function_c *function) {
    pthread_mutex_lock(&adding);
    size_t at = 0;
    while (at < FUNCTIONS_MAX && functions[at] != NULL && functions[at] != function) {
        at++;
    }
    if (at < FUNCTIONS_MAX) {
        functions[at] = function;
    }
    pthread_mutex_unlock(&adding);
    return at < FUNCTIONS_MAX ? counting_by_int[at] : NULL;
}

STAND_IN(Op_create_c, (MPI_User_function_c * function, int commute, MPI_Op *op)) {
    MPI_User_function *by_int = counting_by_int_for(function);
    if (by_int == NULL) {
        return shim_raise(MPI_ERR_NO_MEM);
    }
    return underlying.Op_create(by_int, commute, op);
}
