/*
 * Communicators come and go: attributes are copied and deleted as MPI says, names stay, many are
 * made and freed, and freeing one leaves the others alone.
 */
#include "check.h"

#include <string.h>

enum { CYCLES = 300, KEPT = 20 };

static int copies;
static int deletions;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag) {
    (void)comm, (void)key, (void)extra;
    copies++;
    *(void **)copy = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

static void sum_on(MPI_Comm comm, int expected) {
    int one = 1;
    int sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    check_equal(expected, sum, "sum");
}

static void check_attributes(void) {
    check_case("attributes");
    static int value = 42;
    int key = MPI_KEYVAL_INVALID;
    MPI_Comm first;
    MPI_Comm second;
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    MPI_Comm_set_attr(first, key, &value);
    MPI_Comm_dup(first, &second);
    check_equal(1, copies, "copies");
    int *found = NULL;
    int flag = 0;
    MPI_Comm_get_attr(second, key, &found, &flag);
    check_that(flag && found == &value, "the copy has another value");
    sum_on(second, world.ranks);
    MPI_Comm_free(&first);
    check_equal(1, deletions, "deletions after the first is freed");
    sum_on(second, world.ranks);
    MPI_Comm_free(&second);
    check_equal(2, deletions, "deletions after both are freed");
    MPI_Comm_free_keyval(&key);
}

static void check_names(void) {
    check_case("names");
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "mine");
    sum_on(comm, world.ranks);
    MPI_Comm_get_name(comm, name, &length);
    check_that(strcmp(name, "mine") == 0, "name is %s", name);
    MPI_Comm_free(&comm);
    check_that(comm == MPI_COMM_NULL, "a freed handle is not null");
}

static void check_cycles(void) {
    MPI_Comm kept[KEPT];
    for (int i = 0; i < KEPT; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &kept[i]);
    }
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        check_case("cycle %d", cycle);
        MPI_Comm comm;
        if (cycle % 2 == 0) {
            MPI_Comm_dup(kept[cycle % KEPT], &comm);
            sum_on(comm, world.ranks);
        } else {
            MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, -world.rank, &comm);
            sum_on(comm, (world.ranks + 1 - world.rank % 2) / 2);
        }
        if (cycle % 3 == 0) {
            MPI_Comm_disconnect(&comm);
        } else {
            MPI_Comm_free(&comm);
        }
    }
    for (int i = KEPT - 1; i >= 0; i--) {
        check_case("kept %d", i);
        sum_on(kept[i], world.ranks);
        MPI_Comm_free(&kept[i]);
    }
}

/* MPI lets a communicator be freed while its operations are under way. */
static void check_free_while_pending(void) {
    check_case("freed while an operation is under way");
    MPI_Comm comm;
    MPI_Request request;
    int one = 1;
    int sum = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    check_sleep_us(1000 * world.rank);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_equal(world.ranks, sum, "sum");
}

int main(int argc, char **argv) {
    check_start(argc, argv, "lifecycle", MPI_THREAD_SINGLE);
    check_attributes();
    check_names();
    check_cycles();
    for (int i = 0; i < 20; i++) {
        check_free_while_pending();
    }
    return check_finish();
}
