/* The operators that the program made, and what combines with them. */
#include "combining.h"
#include "deciding.h"
#include "held.h"
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * Operators that MPI_Op_create or MPI_Op_create_c made and MPI_Op_free has not freed. Other handles are left to MPI: asking it
 * about a handle that is none would raise an error where the program expects none.
 *
 * The list is kept while the shim is off, too. Making an operator is local: in the sessions model one rank may
 * make it before the shim turns on, and another one after that, and both must decide alike.
 */
typedef struct made_operator {
    MPI_Op op;
    bool commutes;
} made_operator;

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static made_operator *made;
static size_t made_count;
static size_t made_room;

/* Where `op` is in the list, or made_count. Newest first: programs use what they have just made. */
static size_t place_of(MPI_Op op) {
    for (size_t at = made_count; at-- > 0;) {
        if (made[at].op == op) {
            return at;
        }
    }
    return made_count;
}

/* False: out of memory. */
static bool list(MPI_Op op, bool commutes) {
    pthread_mutex_lock(&changing);
    if (made_count == made_room) {
        size_t room = made_room == 0 ? 16 : 2 * made_room;
        made_operator *grown = realloc(made, room * sizeof *made);
        made_room = grown != NULL ? room : made_room;
        made = grown != NULL ? grown : made;
    }
    bool has_room = made_count < made_room;
    if (has_room) {
        made[made_count++] = (made_operator){op, commutes};
    }
    pthread_mutex_unlock(&changing);
    return has_room;
}

/*
 * Lists what MPI has made. An operator that is not listed goes to MPI, at this rank alone; so if there is no
 * memory, the program gets no operator.
 */
static int list_made(int error, int commute, MPI_Op *op) {
    if (error != MPI_SUCCESS || list(*op, commute != 0)) {
        return error;
    }
    underlying.Op_free(op);
    return shim_raise(MPI_ERR_NO_MEM);
}

static void unlist(MPI_Op op) {
    pthread_mutex_lock(&changing);
    size_t at = place_of(op);
    if (at < made_count) {
        made[at] = made[--made_count];
    }
    pthread_mutex_unlock(&changing);
}

static bool is_listed(MPI_Op op, bool *commutes) {
    pthread_mutex_lock(&changing);
    size_t at = place_of(op);
    bool found = at < made_count;
    *commutes = found && made[at].commutes;
    pthread_mutex_unlock(&changing);
    return found;
}

INTERPOSE_ALWAYS(Op_create, (MPI_User_function * function, int commute, MPI_Op *op)) {
    return list_made(underlying.Op_create(function, commute, op), commute, op);
}

INTERPOSE_ALWAYS(Op_create_c, (MPI_User_function_c * function, int commute, MPI_Op *op)) {
    return list_made(underlying.Op_create_c(function, commute, op), commute, op);
}

static held_handles held_operators = HELD_HANDLES_NONE;
static held_handles held_datatypes = HELD_HANDLES_NONE;

/* Before MPI frees it: another thread's MPI_Op_create may get the same handle at once. */
INTERPOSE_ALWAYS(Op_free, (MPI_Op * op)) {
    if (op == NULL) {
        return underlying.Op_free(op);
    }
    unlist(*op);
    if (held_frees(&held_operators, (uintptr_t)*op)) {
        *op = MPI_OP_NULL;
        return MPI_SUCCESS;
    }
    return underlying.Op_free(op);
}

INTERPOSE(Type_free, (MPI_Datatype * datatype)) {
    if (datatype != NULL && held_frees(&held_datatypes, (uintptr_t)*datatype)) {
        *datatype = MPI_DATATYPE_NULL;
        return MPI_SUCCESS;
    }
    return underlying.Type_free(datatype);
}

static void let_datatype_go(MPI_Datatype datatype) {
    if (held_give(&held_datatypes, (uintptr_t)datatype)) {
        underlying.Type_free(&datatype);
    }
}

bool combining_hold(const tributary_combiner *combiner) {
    if (combiner->combine == NULL) {
        return true;
    }
    if (!held_take(&held_datatypes, (uintptr_t)combiner->context[0])) {
        return false;
    }
    if (!held_take(&held_operators, (uintptr_t)combiner->context[1])) {
        let_datatype_go((MPI_Datatype)(uintptr_t)combiner->context[0]);
        return false;
    }
    return true;
}

void combining_let_go(const tributary_combiner *combiner) {
    if (combiner->combine == NULL) {
        return;
    }
    let_datatype_go((MPI_Datatype)(uintptr_t)combiner->context[0]);
    MPI_Op op = (MPI_Op)(uintptr_t)combiner->context[1];
    if (held_give(&held_operators, (uintptr_t)op)) {
        underlying.Op_free(&op);
    }
}

static combining_elements can_combine(MPI_Aint extent, bool commutes) {
    return (combining_elements){
        .judged = commutes ? VERDICT_COMBINE : VERDICT_COMBINE_IN_ORDER,
        .bytes = extent > 0 && extent < UINT32_MAX ? (uint32_t)extent : UINT32_MAX,
    };
}

static combining_elements cannot_combine(uint32_t reason) {
    return (combining_elements){.judged = verdict_pass(reason)};
}

/* A predefined operator on a predefined datatype that no kernel has. */
static combining_elements judge_predefined(const datatype_entry *entry, MPI_Datatype datatype,
                                          uint32_t operator_) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (entry->datatype != 0 || entry->operators == 0) {
        return cannot_combine(TRIBUTARY_PASS_DATATYPE);
    }
    if ((entry->operators >> operator_ & 1) == 0) {
        return cannot_combine(TRIBUTARY_PASS_COMBINATION);
    }
    if (underlying.Type_get_extent(datatype, &lower, &extent) != MPI_SUCCESS) {
        return cannot_combine(TRIBUTARY_PASS_ARGUMENTS);
    }
    return can_combine(extent, true);
}

/* Whether a datatype fills its extent, from its address on. Elements are then moved as they lie. */
static bool is_dense(MPI_Datatype datatype, MPI_Aint *extent) {
    int size = MPI_UNDEFINED;
    MPI_Aint lower = 0;
    MPI_Aint true_lower = 0;
    MPI_Aint true_extent = 0;
    return underlying.Type_size(datatype, &size) == MPI_SUCCESS && size != MPI_UNDEFINED &&
           underlying.Type_get_extent(datatype, &lower, extent) == MPI_SUCCESS &&
           underlying.Type_get_true_extent(datatype, &true_lower, &true_extent) == MPI_SUCCESS &&
           lower == 0 && true_lower == 0 && true_extent == *extent && size == *extent;
}

/* An operator of the program on any datatype. Padding of a predefined pair may be overwritten. */
static combining_elements judge_made(MPI_Datatype datatype, bool commutes) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (datatype == MPI_DATATYPE_NULL) {
        return cannot_combine(TRIBUTARY_PASS_ARGUMENTS);
    }
    if (maps_datatype(datatype) != NULL) {
        bool known = underlying.Type_get_extent(datatype, &lower, &extent) == MPI_SUCCESS;
        return known ? can_combine(extent, commutes) : cannot_combine(TRIBUTARY_PASS_ARGUMENTS);
    }
    if (!staging_accepts(datatype)) {
        return cannot_combine(TRIBUTARY_PASS_ARGUMENTS);
    }
    if (!is_dense(datatype, &extent)) {
        return cannot_combine(TRIBUTARY_PASS_GAPS);
    }
    return can_combine(extent, commutes);
}

static bool reduces_locally;

void combining_open(void) {
    reduces_locally = UNDERLYING_HAS(Reduce_local) && UNDERLYING_HAS(Type_get_true_extent);
#ifdef OPEN_MPI
    /* Its MPI_Reduce_local reads MPI_COMM_WORLD, which a program of sessions alone does not have. */
    reduces_locally = reduces_locally && shim_has_predefined;
#endif
}

__attribute__((cold, noinline)) combining_elements combining_judge(MPI_Datatype datatype, MPI_Op op) {
    uint32_t operator_ = maps_operator(op);
    bool commutes = true;
    bool is_made = operator_ == 0 && is_listed(op, &commutes);
    if (operator_ == 0 && !is_made) {
        return cannot_combine(TRIBUTARY_PASS_USER_OPERATOR);
    }
    if (!reduces_locally) {
        return cannot_combine(is_made ? TRIBUTARY_PASS_USER_OPERATOR : TRIBUTARY_PASS_DATATYPE);
    }
    if (is_made) {
        return judge_made(datatype, commutes);
    }
    const datatype_entry *entry = maps_datatype(datatype);
    if (entry == NULL) {
        return cannot_combine(TRIBUTARY_PASS_DATATYPE);
    }
    return judge_predefined(entry, datatype, operator_);
}

int combining_call(void *const context[2], const void *left, void *right, uint64_t elements) {
    MPI_Datatype datatype = (MPI_Datatype)(uintptr_t)context[0];
    MPI_Op op = (MPI_Op)(uintptr_t)context[1];
    return underlying.Reduce_local(left, right, (int)elements, datatype, op);
}
