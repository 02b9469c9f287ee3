/*
 * A fault in the library: one bit of every result is wrong. Linked into a second preload library, around the
 * functions of the core (the linker's --wrap), so that planted.py can show that the tests notice. The
 * environment variable PLANTED says which results: `blocking`, `nonblocking` or `persistent` ones.
 */
#include "tributary_core.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 256

/* Operations that end in a call of their own, and where their results go. */
static struct {
    const void *operation; /* the request, or the prepared operation; null if the place is free */
    const void *request;   /* the same, or what stands for a prepared operation */
    const char *form;
    void *target;
} watched[MANY];

static void damage(const char *form, void *target) {
    const char *wanted = getenv("PLANTED");
    if (wanted == NULL) {
        fprintf(stderr, "planted: PLANTED is not set\n");
        abort();
    }
    if (target != NULL && strcmp(form, wanted) == 0) {
        *(unsigned char *)target ^= 1;
    }
}

/* Where it is in the table, or MANY. */
static size_t place_of(const void *key) {
    size_t at = 0;
    while (at < MANY && watched[at].operation != key && watched[at].request != key) {
        at++;
    }
    return at;
}

static void watch(const char *form, const void *key, const tributary_operation *operation) {
    size_t at = place_of(NULL);
    if (key == NULL || operation->elements == 0) {
        return;
    }
    if (at == MANY) {
        fprintf(stderr, "planted: more than %d operations at a time\n", MANY);
        abort();
    }
    watched[at].operation = key;
    watched[at].request = key;
    watched[at].form = form;
    watched[at].target = operation->target;
}

static void forget(const void *key) {
    size_t at = place_of(key);
    if (at < MANY) {
        watched[at].operation = NULL;
        watched[at].request = NULL;
    }
}

/* Damages the result of an operation that is done. */
static int ended(const void *key, int outcome) {
    size_t at = place_of(key);
    if (outcome == TRIBUTARY_DONE && at < MANY) {
        damage(watched[at].form, watched[at].target);
    }
    return outcome;
}

int __real_tributary_run(tributary_communicator *communicator, const tributary_operation *operation);
int __wrap_tributary_run(tributary_communicator *communicator, const tributary_operation *operation) {
    int outcome = __real_tributary_run(communicator, operation);
    if (outcome == 0 && operation->elements > 0) {
        damage("blocking", operation->target);
    }
    return outcome;
}

int __real_tributary_allreduce(const tributary_communicator *communicator, uint32_t pair,
                               uint64_t elements, const void *source, void *target);
int __wrap_tributary_allreduce(const tributary_communicator *communicator, uint32_t pair,
                               uint64_t elements, const void *source, void *target) {
    int outcome = __real_tributary_allreduce(communicator, pair, elements, source, target);
    damage("blocking", target);
    return outcome;
}

int __real_tributary_reduce(const tributary_communicator *communicator, uint32_t pair,
                            uint64_t elements, uint32_t root, const void *source, void *target);
int __wrap_tributary_reduce(const tributary_communicator *communicator, uint32_t pair,
                            uint64_t elements, uint32_t root, const void *source, void *target) {
    int outcome = __real_tributary_reduce(communicator, pair, elements, root, source, target);
    damage("blocking", target);
    return outcome;
}

int __real_tributary_broadcast(const tributary_communicator *communicator, uint64_t len_bytes,
                               uint32_t root, void *buffer);
int __wrap_tributary_broadcast(const tributary_communicator *communicator, uint64_t len_bytes,
                               uint32_t root, void *buffer) {
    int outcome = __real_tributary_broadcast(communicator, len_bytes, root, buffer);
    damage("blocking", buffer);
    return outcome;
}

tributary_request *__real_tributary_start(tributary_communicator *communicator,
                                          const tributary_operation *operation);
tributary_request *__wrap_tributary_start(tributary_communicator *communicator,
                                          const tributary_operation *operation) {
    tributary_request *request = __real_tributary_start(communicator, operation);
    watch("nonblocking", request, operation);
    return request;
}

int __real_tributary_test(tributary_request *request);
int __wrap_tributary_test(tributary_request *request) {
    return ended(request, __real_tributary_test(request));
}

void __real_tributary_request_free(tributary_request *request);
void __wrap_tributary_request_free(tributary_request *request) {
    forget(request);
    __real_tributary_request_free(request);
}

tributary_prepared *__real_tributary_prepare(tributary_communicator *communicator,
                                             const tributary_operation *operation);
tributary_prepared *__wrap_tributary_prepare(tributary_communicator *communicator,
                                             const tributary_operation *operation) {
    tributary_prepared *prepared = __real_tributary_prepare(communicator, operation);
    watch("persistent", prepared, operation);
    return prepared;
}

int __real_tributary_prepared_test(const tributary_prepared *prepared);
int __wrap_tributary_prepared_test(const tributary_prepared *prepared) {
    return ended(prepared, __real_tributary_prepared_test(prepared));
}

int __real_tributary_prepared_wait(const tributary_prepared *prepared);
int __wrap_tributary_prepared_wait(const tributary_prepared *prepared) {
    return ended(prepared, __real_tributary_prepared_wait(prepared));
}

tributary_request *__real_tributary_prepared_request(tributary_prepared *prepared);
tributary_request *__wrap_tributary_prepared_request(tributary_prepared *prepared) {
    tributary_request *request = __real_tributary_prepared_request(prepared);
    size_t at = place_of(prepared);
    if (at < MANY) {
        watched[at].request = request;
    }
    return request;
}

void __real_tributary_prepared_free(tributary_prepared *prepared);
void __wrap_tributary_prepared_free(tributary_prepared *prepared) {
    forget(prepared);
    __real_tributary_prepared_free(prepared);
}
