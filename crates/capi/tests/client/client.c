/* A client of libsharp_coll: `client SCENARIO RANKS`. Ranks are processes; a scenario checks its results
 * itself. */
#define _GNU_SOURCE
#include "collectives.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct place open_place(struct group *world) {
    struct place place = {.rank = world->rank, .size = world->size};
    OK(open_context(world, &place.context));
    OK(open_comm(place.context, world, &place.comm));
    return place;
}

static void close_place(struct place *place) {
    OK(sharp_coll_comm_destroy(place->comm));
    OK(sharp_coll_finalize(place->context));
}

static void everything(struct group *world) {
    struct place place = open_place(world);
    check_everything(&place);
    OK(sharp_coll_progress(place.context));
    close_place(&place);
}

static void *operate(void *place) {
    for (int round = 0; round < 50; round++) {
        check_allreduce(place, 100 + round, 0);
        check_barrier(place);
        check_bcast(place, 33 + round, round % ((struct place *)place)->size);
    }
    return NULL;
}

/* Three communicators of one context and one of another, used by four threads at a time. */
static void several(struct group *world) {
    struct group half = group_of(world, 1 + world->rank % 2, world->rank / 2, (world->size + 1 - world->rank % 2) / 2);
    struct place places[4];
    pthread_t threads[4];
    places[0] = open_place(world);
    places[1] = places[0];
    OK(open_comm(places[0].context, world, &places[1].comm));
    places[2] = (struct place){.context = places[0].context, .rank = half.rank, .size = half.size};
    OK(open_comm(places[0].context, &half, &places[2].comm));
    places[3] = open_place(world);
    for (int at = 0; at < 4; at++) {
        places[at].nonblocking = at % 2;
        CHECK(pthread_create(&threads[at], NULL, operate, &places[at]) == 0);
    }
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    OK(sharp_coll_comm_destroy(places[1].comm));
    OK(sharp_coll_comm_destroy(places[2].comm));
    close_place(&places[3]);
    close_place(&places[0]);
}

/* Ends without freeing anything, with an operation under way. */
static void leaves(struct group *world) {
    struct place place = open_place(world);
    void *handle;
    check_allreduce(&place, 10, 0);
    OK(sharp_coll_do_barrier_nb(place.comm, &handle));
}

/* Frees in the wrong order: the request and the communicator while the operation is under way. */
static void frees_early(struct group *world) {
    struct place place = open_place(world);
    void *handle;
    for (int round = 0; round < 20; round++) {
        OK(sharp_coll_do_barrier_nb(place.comm, &handle));
        OK(sharp_coll_req_free(handle));
    }
    check_barrier(&place);
    OK(sharp_coll_do_barrier_nb(place.comm, &handle));
    OK(sharp_coll_comm_destroy(place.comm));
    CHECK(sharp_coll_do_barrier(place.comm) == SHARP_COLL_EINVAL);
    OK(sharp_coll_finalize(place.context));
    CHECK(sharp_coll_finalize(place.context) == SHARP_COLL_EINVAL);
    OK(sharp_coll_req_wait(handle));
}

/* Never frees a request, as some clients never do. */
static void never_frees(struct group *world) {
    struct place place = open_place(world);
    void *first = NULL, *handle;
    for (int round = 0; round < 70000; round++) {
        OK(sharp_coll_do_barrier_nb(place.comm, &handle));
        while (!sharp_coll_req_test(handle))
            ;
        if (round == 0)
            first = handle;
    }
    CHECK(sharp_coll_req_test(first) == 1);
    OK(sharp_coll_req_free(first));
    close_place(&place);
}

static struct place waiting;
static void *waited_for;
static int calls;

static int count_call(void) {
    calls++;
    OK(sharp_coll_progress(waiting.context));
    if (waited_for != NULL)
        sharp_coll_req_test(waited_for);
    return 0;
}

/* One rank waits long for the other: in a blocking call, and for a request. */
static void waits(struct group *world) {
    progress = count_call;
    waiting = open_place(world);
    for (int form = 0; form < 2; form++) {
        void *handle;
        calls = 0;
        if (world->rank > 0)
            usleep(50000);
        if (form == 0) {
            check_barrier(&waiting);
        } else {
            OK(sharp_coll_do_barrier_nb(waiting.comm, &handle));
            waited_for = handle;
            OK(sharp_coll_req_wait(handle));
            CHECK(sharp_coll_req_test(handle) == 1);
        }
        CHECK(world->rank > 0 || calls > 0);
    }
    waited_for = NULL;
    close_place(&waiting);
}

/* The last rank dies. The others learn of it from a blocking call and from waiting. */
static void loses_a_rank(struct group *world) {
    struct place place = open_place(world);
    void *handle;
    check_barrier(&place);
    if (world->rank == world->size - 1)
        raise(SIGKILL);
    if (world->rank % 2 == 0) {
        CHECK(sharp_coll_do_barrier(place.comm) == SHARP_COLL_ELOST);
    } else {
        OK(sharp_coll_do_barrier_nb(place.comm, &handle));
        CHECK(sharp_coll_req_wait(handle) == SHARP_COLL_ELOST);
        CHECK(sharp_coll_req_test(handle) == 0);
        OK(sharp_coll_req_free(handle));
    }
    CHECK(strstr(sharp_coll_strerror(SHARP_COLL_ELOST), "lost") != NULL);
    close_place(&place);
}

/* The same for clients that only test: they are aborted, or stay there. */
static void tests_for_a_lost_rank(struct group *world) {
    struct place place = open_place(world);
    void *handle;
    check_barrier(&place);
    if (world->rank == world->size - 1)
        raise(SIGKILL);
    OK(sharp_coll_do_barrier_nb(place.comm, &handle));
    for (int round = 0; round < 1000; round++) {
        CHECK(sharp_coll_req_test(handle) == 0);
        usleep(2000);
    }
    close_place(&place);
}

/* An out-of-band callback of one rank answers with a positive number. */
static void out_of_band_fails(struct group *world) {
    struct sharp_coll_context *context = (void *)-1L;
    world->fails_with = 3;
    CHECK(open_context(world, &context) == SHARP_COLL_EOOB);
    CHECK(context == NULL);
    CHECK(strstr(sharp_coll_strerror(SHARP_COLL_EOOB), "returned 3") != NULL);
}

/* One rank has a setting that is not allowed: all get its words. */
static void setting_of_one_rank(struct group *world) {
    struct sharp_coll_context *context = (void *)-1L;
    if (world->rank == 1)
        setenv("TRIBUTARY_WAIT", "never", 1);
    CHECK(open_context(world, &context) == SHARP_COLL_EINVAL);
    CHECK(context == NULL);
    const char *reason = sharp_coll_strerror(SHARP_COLL_EINVAL);
    CHECK(strstr(reason, "rank 1") != NULL && strstr(reason, "TRIBUTARY_WAIT") != NULL);
}

/* No manager is where one is named: direct links carry all, unless there must be a tree. */
static void no_manager(struct group *world) {
    if (getenv("TRIBUTARY_REQUIRE") == NULL) {
        struct place place = open_place(world);
        check_allreduce(&place, 100, 0);
        close_place(&place);
        return;
    }
    struct sharp_coll_context *context;
    struct sharp_coll_comm *comm;
    OK(open_context(world, &context));
    CHECK(open_comm(context, world, &comm) == SHARP_COLL_EJOB);
    CHECK(comm == NULL);
    const char *reason = sharp_coll_strerror(SHARP_COLL_EJOB);
    CHECK(strstr(reason, "127.0.0.1:9") != NULL && strstr(reason, "TRIBUTARY_REQUIRE=tree") != NULL);
    OK(sharp_coll_finalize(context));
}

/* Several hosts and no manager: a context, but no communicator. */
static void no_nodes(struct group *world) {
    struct sharp_coll_context *context;
    struct sharp_coll_comm *comm;
    OK(open_context(world, &context));
    CHECK(open_comm(context, world, &comm) == SHARP_COLL_ENO_RESOURCE);
    CHECK(comm == NULL);
    CHECK(strstr(sharp_coll_strerror(SHARP_COLL_ENO_RESOURCE), "TRIBUTARY_MANAGER") != NULL);
    OK(sharp_coll_finalize(context));
}

/* The manager has no room for a second group: direct links carry it, or nothing does. */
static void second_is_refused(struct group *world) {
    struct place place = open_place(world), second = place;
    const char *fallback = getenv("TRIBUTARY_FALLBACK");
    if (fallback != NULL) {
        CHECK(open_comm(place.context, world, &second.comm) == SHARP_COLL_ENO_RESOURCE);
        CHECK(second.comm == NULL);
        const char *reason = sharp_coll_strerror(SHARP_COLL_ENO_RESOURCE);
        CHECK(strstr(reason, "the manager holds 1 groups already") != NULL);
    } else {
        OK(open_comm(place.context, world, &second.comm));
        check_allreduce(&second, 100, 0);
        OK(sharp_coll_comm_destroy(second.comm));
    }
    check_allreduce(&place, 100, 0);
    close_place(&place);
}

static void tells(struct group *world) {
    struct place place = open_place(world);
    check_barrier(&place);
    OK(sharp_coll_log_early_init());
    OK(sharp_coll_print_config(stdout, SHARP_COLL_CONFIG_PRINT_CONFIG));
    OK(sharp_coll_dump_stats(place.context));
    close_place(&place);
}

static const struct {
    const char *name;
    void (*body)(struct group *world);
} SCENARIOS[] = {
    {"everything", everything},
    {"several", several},
    {"leaves", leaves},
    {"frees-early", frees_early},
    {"never-frees", never_frees},
    {"waits", waits},
    {"loses-a-rank", loses_a_rank},
    {"tests-for-a-lost-rank", tests_for_a_lost_rank},
    {"out-of-band-fails", out_of_band_fails},
    {"setting-of-one-rank", setting_of_one_rank},
    {"no-manager", no_manager},
    {"no-nodes", no_nodes},
    {"second-is-refused", second_is_refused},
    {"tells", tells},
};

int main(int count, char **arguments) {
    CHECK(count == 3);
    for (size_t at = 0; at < sizeof SCENARIOS / sizeof *SCENARIOS; at++) {
        if (strcmp(arguments[1], SCENARIOS[at].name) == 0) {
            int sum = run_ranks(atoi(arguments[2]), SCENARIOS[at].body);
            printf("statuses %d\n", sum);
            return 0;
        }
    }
    fprintf(stderr, "no scenario %s\n", arguments[1]);
    return 2;
}
