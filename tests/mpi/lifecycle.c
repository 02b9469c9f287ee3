/*
 * Lifetimes of communicators: attributes are copied and deleted as without the preload library, names
 * stay, communicators may be freed in any order, thousands leave nothing behind, and an operation may
 * outlive the handle of its communicator.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { CYCLES = 2000, ALIVE = 24 };

static int copies;
static int deletions;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *value_in, void *value_out,
                          int *flag) {
    (void)comm;
    (void)key;
    copies++;
    *(void **)value_out = (char *)value_in + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

/* A sum that only the right members give. */
static void use(MPI_Comm comm) {
    int ranks;
    int rank;
    long mine;
    long sum = -1;
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_rank(comm, &rank);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
    check_equal((long)ranks * (ranks + 1) / 2, sum, "sum");
}

static void check_attributes(void) {
    MPI_Comm first;
    MPI_Comm second;
    int key;
    int step = 4;
    char place[16];
    char *value = NULL;
    int flag = 0;
    check_case("attributes");
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, &step);
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    check_equal(0, copies, "copies before there was an attribute");
    MPI_Comm_set_attr(first, key, place);
    MPI_Comm_dup(first, &second);
    check_equal(1, copies, "copies after MPI_Comm_dup");
    MPI_Comm_get_attr(second, key, &value, &flag);
    check_equal(1, flag, "the attribute of the copy is there");
    check_that(value == place + step, "the copied attribute is not what the copy function made");
    use(first);
    use(second);
    MPI_Comm_free(&first);
    check_equal(1, deletions, "deletions after freeing the first");
    use(second);
    MPI_Comm_free(&second);
    check_equal(2, deletions, "deletions after freeing the second");
    check_equal(1, copies, "copies at the end");
    MPI_Comm_free_keyval(&key);
}

static void check_predefined_attributes(void) {
    int *upper_bound = NULL;
    int flag = 0;
    check_case("predefined attributes");
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper_bound, &flag);
    check_that(flag && *upper_bound >= 32767, "MPI_TAG_UB is missing or below 32767");
}

static void check_names(void) {
    MPI_Comm comm;
    MPI_Comm copy;
    char name[MPI_MAX_OBJECT_NAME];
    int length = 0;
    check_case("names");
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    check_that(strcmp(name, "MPI_COMM_WORLD") == 0, "the name of the world is '%s'", name);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "tributary of the Danube");
    use(comm);
    MPI_Comm_get_name(comm, name, &length);
    check_that(strcmp(name, "tributary of the Danube") == 0, "the name is now '%s'", name);
    check_equal((long long)strlen(name), length, "its length");
    MPI_Comm_dup(comm, &copy);
    use(copy);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
}

/* Makes communicators and ends them by MPI_Comm_free or MPI_Comm_disconnect; uses every seventh. */
static void check_many(void) {
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        MPI_Comm comm;
        check_case("made and freed, cycle %d", cycle);
        if (cycle % 5 == 0) {
            MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, -world.rank, &comm);
        } else {
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        }
        if (cycle % 7 == 0) {
            use(comm);
        }
        if (cycle % 3 == 0) {
            MPI_Comm_disconnect(&comm);
        } else {
            MPI_Comm_free(&comm);
        }
        check_that(comm == MPI_COMM_NULL, "the freed handle is not null");
    }
}

/* Many at once, freed in another order; the others must go on working. */
static void check_alive_together(void) {
    MPI_Comm comms[ALIVE];
    check_case("%d communicators at once", ALIVE);
    for (int at = 0; at < ALIVE; at++) {
        MPI_Comm_dup(at == 0 ? MPI_COMM_WORLD : comms[at - 1], &comms[at]);
    }
    for (int step = 0; step < ALIVE; step++) {
        int at = (step * 7 + 3) % ALIVE; /* 7 and ALIVE have no common factor */
        use(comms[at]);
        MPI_Comm_free(&comms[at]);
        int other = ((step + 1) * 7 + 3) % ALIVE;
        if (step + 1 < ALIVE) {
            use(comms[other]);
        }
    }
    use(MPI_COMM_WORLD);
}

/* Open MPI 5.0 by itself crashes when a communicator is freed under a nonblocking collective. */
static bool crashes_beneath(void) {
#ifdef OPEN_MPI
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded == NULL || strstr(preloaded, "tributary") == NULL;
#else
    return false;
#endif
}

/* After MPI_Comm_free, pending operations complete normally (MPI 4.1, 7.4.3). */
static void check_free_while_pending(int round) {
    MPI_Comm comm;
    MPI_Request requests[2];
    int one = 1;
    int sum = 0;
    check_case("communicator freed before its operations are waited for, round %d", round);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    use(comm); /* sets it up, so that nonblocking operations on it are offloaded */
    check_sleep_us(200L * ((world.rank + round) % world.ranks));
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Ibarrier(comm, &requests[1]);
    MPI_Comm_free(&comm);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check_equal(world.ranks, sum, "sum");
}

static void check_disconnect(void) {
    MPI_Comm comm;
    check_case("MPI_Comm_disconnect");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    use(comm);
    MPI_Comm_disconnect(&comm);
    check_that(comm == MPI_COMM_NULL, "the disconnected handle is not null");
}

static void check_undefined_color(void) {
    MPI_Comm comm;
    bool member = world.rank % 2 == 0;
    check_case("MPI_Comm_split with MPI_UNDEFINED");
    MPI_Comm_split(MPI_COMM_WORLD, member ? 1 : MPI_UNDEFINED, 0, &comm);
    check_that((comm != MPI_COMM_NULL) == member, "membership is wrong");
    if (member) {
        use(comm);
        MPI_Comm_free(&comm);
    }
}

static void check_topologies(void) {
    MPI_Comm line;
    MPI_Comm part;
    MPI_Comm graph;
    int sizes[1] = {world.ranks};
    int no[1] = {0};
    int status = 0;
    int neighbour = (world.rank + 1) % world.ranks;
    int source = (world.rank + world.ranks - 1) % world.ranks;
    int weight[1] = {1};
    check_case("topology communicators");
    MPI_Cart_create(MPI_COMM_WORLD, 1, sizes, no, 0, &line);
    use(line);
    MPI_Topo_test(line, &status);
    check_equal(MPI_CART, status, "kind of topology");
    MPI_Cart_sub(line, no, &part);
    use(part);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &source, weight, 1, &neighbour, weight,
                                   MPI_INFO_NULL, 0, &graph);
    use(graph);
    MPI_Comm_free(&graph);
    MPI_Comm_free(&part);
    MPI_Comm_free(&line);
}

static void check_dup_with_info(void) {
    MPI_Comm comm;
    MPI_Info info;
    int verdict = -1;
    check_case("MPI_Comm_dup_with_info");
    MPI_Info_create(&info);
    MPI_Info_set(info, "some_key", "some value");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    MPI_Comm_compare(MPI_COMM_WORLD, comm, &verdict);
    check_equal(MPI_CONGRUENT, verdict, "MPI_Comm_compare");
    use(comm);
    MPI_Comm_free(&comm);
}

/* Several communicators made without blocking, the requests completed together. */
static void check_idup(void) {
    MPI_Comm comms[3];
    MPI_Request requests[3];
    check_case("three MPI_Comm_idup at once");
    for (int at = 0; at < 3; at++) {
        MPI_Comm_idup(MPI_COMM_WORLD, &comms[at], &requests[at]);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (int at = 2; at >= 0; at--) {
        use(comms[at]);
        MPI_Comm_free(&comms[at]);
    }
}

int main(int argc, char **argv) {
    check_start(argc, argv, "lifecycle", MPI_THREAD_SINGLE);
    check_attributes();
    check_predefined_attributes();
    check_names();
    check_alive_together();
    for (int round = 0; round < 20 && !crashes_beneath(); round++) {
        check_free_while_pending(round);
    }
    check_disconnect();
    check_undefined_color();
    check_topologies();
    check_dup_with_info();
    check_idup();
    check_many();
    use(MPI_COMM_WORLD);
    use(MPI_COMM_SELF);
    return check_finish();
}
