#define _GNU_SOURCE
#include "collectives.h"

#include <sched.h>
#include <string.h>

/* A descriptor whose other members are garbage, as clients leave them. */
static struct sharp_coll_data_desc desc(struct place *place, void *ptr, size_t length, void *share) {
    struct sharp_coll_data_desc desc;
    memset(&desc, 0xA5, sizeof desc);
    desc.type = SHARP_DATA_BUFFER;
    desc.mem_type = SHARP_MEM_TYPE_HOST;
    desc.buffer.ptr = ptr;
    desc.buffer.length = length;
    desc.buffer.mem_handle = share;
    if (place->registered && share == NULL && length > 0)
        OK(sharp_coll_reg_mr(place->context, ptr, length, &desc.buffer.mem_handle));
    return desc;
}

static void release(struct place *place, struct sharp_coll_data_desc *desc) {
    OK(sharp_coll_dereg_mr(place->context, desc->buffer.mem_handle));
}

static void finish(int code, void *handle) {
    OK(code);
    CHECK(handle != NULL);
    for (int done; (done = sharp_coll_req_test(handle)) != 1;) {
        CHECK(done == 0);
        sched_yield();
    }
    CHECK(sharp_coll_req_test(handle) == 1);
    OK(sharp_coll_req_free(handle));
}

/* Both forms of a collective. */
#define PERFORM(place, name, ...)                                                                            \
    do {                                                                                                     \
        void *handle = (void *)-1L;                                                                          \
        if ((place)->nonblocking) {                                                                          \
            int code = sharp_coll_do_##name##_nb((place)->comm, ##__VA_ARGS__, &handle);                     \
            finish(code, handle);                                                                            \
        } else                                                                                               \
            OK(sharp_coll_do_##name((place)->comm, ##__VA_ARGS__));                                          \
    } while (0)

static int32_t value(int rank, size_t at) { return (int32_t)((rank + 1) * 1000003u + at * 7u); }

static int32_t sum(int size, size_t at) {
    uint32_t total = 0;
    for (int rank = 0; rank < size; rank++)
        total += (uint32_t)value(rank, at);
    return (int32_t)total;
}

static int32_t *numbers(size_t count) {
    int32_t *all = malloc(count * sizeof *all + 1);
    CHECK(all != NULL);
    memset(all, 0xEE, count * sizeof *all);
    return all;
}

static int32_t *contribution(int rank, size_t count, size_t first) {
    int32_t *all = numbers(count);
    for (size_t at = 0; at < count; at++)
        all[at] = value(rank, first + at);
    return all;
}

static struct sharp_coll_reduce_spec reduce_spec(size_t count) {
    struct sharp_coll_reduce_spec spec;
    memset(&spec, 0xA5, sizeof spec);
    spec.length = count;
    spec.dtype = SHARP_DTYPE_INT;
    spec.op = SHARP_OP_SUM;
    return spec;
}

void check_allreduce(struct place *place, size_t count, int in_place) {
    int32_t *source = contribution(place->rank, count, 0), *target = in_place ? source : numbers(count);
    struct sharp_coll_reduce_spec spec = reduce_spec(count);
    spec.sbuf_desc = desc(place, source, count * 4, NULL);
    spec.rbuf_desc = desc(place, target, count * 4, in_place ? spec.sbuf_desc.buffer.mem_handle : NULL);
    PERFORM(place, allreduce, &spec);
    for (size_t at = 0; at < count; at++)
        CHECK(target[at] == sum(place->size, at));
    release(place, &spec.sbuf_desc);
    if (!in_place) {
        release(place, &spec.rbuf_desc);
        free(target);
    }
    free(source);
}

/* 1 as each type; the sum of ones is the number of ranks. */
static const struct {
    enum sharp_datatype dtype;
    size_t bytes;
    uint64_t one, of_four;
} TYPES[] = {
    {SHARP_DTYPE_UNSIGNED, 4, 1, 4},          {SHARP_DTYPE_INT, 4, 1, 4},
    {SHARP_DTYPE_UNSIGNED_LONG, 8, 1, 4},     {SHARP_DTYPE_LONG, 8, 1, 4},
    {SHARP_DTYPE_FLOAT, 4, 0x3f800000, 0x40800000},
    {SHARP_DTYPE_DOUBLE, 8, 0x3ff0000000000000, 0x4010000000000000},
    {SHARP_DTYPE_UNSIGNED_SHORT, 2, 1, 4},    {SHARP_DTYPE_SHORT, 2, 1, 4},
    {SHARP_DTYPE_FLOAT_SHORT, 2, 0x3c00, 0x4400},
    {SHARP_DTYPE_BFLOAT16, 2, 0x3f80, 0x4080},
    {SHARP_DTYPE_UINT8, 1, 1, 4},             {SHARP_DTYPE_INT8, 1, 1, 4},
};

static void check_type(struct place *place, size_t which, enum sharp_reduce_op op, uint64_t expected) {
    enum { COUNT = 33 };
    size_t bytes = TYPES[which].bytes;
    char source[COUNT * 8], target[COUNT * 8];
    for (int at = 0; at < COUNT; at++)
        memcpy(source + at * bytes, &TYPES[which].one, bytes);
    struct sharp_coll_reduce_spec spec = reduce_spec(COUNT);
    spec.dtype = TYPES[which].dtype;
    spec.op = op;
    spec.sbuf_desc = desc(place, source, COUNT * bytes, NULL);
    spec.rbuf_desc = desc(place, target, COUNT * bytes, NULL);
    PERFORM(place, allreduce, &spec);
    for (int at = 0; at < COUNT; at++)
        CHECK(memcmp(target + at * bytes, &expected, bytes) == 0);
    release(place, &spec.sbuf_desc);
    release(place, &spec.rbuf_desc);
}

/* Only for four ranks: the sums are in the table. */
void check_types(struct place *place) {
    static const enum sharp_reduce_op of_ones[] = {SHARP_OP_MAX, SHARP_OP_MIN, SHARP_OP_PROD};
    static const enum sharp_reduce_op of_integers[] = {SHARP_OP_LAND, SHARP_OP_LOR, SHARP_OP_BAND, SHARP_OP_BOR};
    struct sharp_coll_caps caps;
    OK(sharp_coll_caps_query(place->context, &caps));
    for (size_t which = 0; which < sizeof TYPES / sizeof *TYPES; which++) {
        CHECK(caps.support_mask.dtypes & (1 << TYPES[which].dtype));
        if (place->size == 4)
            check_type(place, which, SHARP_OP_SUM, TYPES[which].of_four);
        for (int op = 0; op < 3; op++)
            check_type(place, which, of_ones[op], TYPES[which].one);
        for (int op = 0; TYPES[which].one == 1 && op < 4; op++)
            check_type(place, which, of_integers[op], 1);
        if (TYPES[which].one == 1) {
            check_type(place, which, SHARP_OP_LXOR, place->size % 2);
            check_type(place, which, SHARP_OP_BXOR, place->size % 2);
        }
    }
}

void check_reduce(struct place *place, size_t count, int root, int in_place) {
    int is_root = place->rank == root;
    int32_t *source = contribution(place->rank, count, 0), *target = in_place ? source : numbers(count);
    struct sharp_coll_reduce_spec spec = reduce_spec(count);
    spec.root = root;
    spec.sbuf_desc = desc(place, source, count * 4, NULL);
    /* Garbage everywhere else. */
    if (is_root)
        spec.rbuf_desc = desc(place, target, count * 4, in_place ? spec.sbuf_desc.buffer.mem_handle : NULL);
    PERFORM(place, reduce, &spec);
    for (size_t at = 0; is_root && at < count; at++)
        CHECK(target[at] == sum(place->size, at));
    release(place, &spec.sbuf_desc);
    if (is_root && !in_place)
        release(place, &spec.rbuf_desc);
    if (!in_place)
        free(target);
    free(source);
}

void check_bcast(struct place *place, size_t size, int root) {
    struct sharp_coll_bcast_spec spec;
    char *bytes = malloc(size + 1);
    memset(&spec, 0xA5, sizeof spec);
    for (size_t at = 0; at < size; at++)
        bytes[at] = place->rank == root ? (char)(at * 5 + root) : 0;
    spec.root = root;
    spec.size = size;
    spec.buf_desc = desc(place, bytes, size, NULL);
    PERFORM(place, bcast, &spec);
    for (size_t at = 0; at < size; at++)
        CHECK(bytes[at] == (char)(at * 5 + root));
    if (size > 0)
        release(place, &spec.buf_desc);
    free(bytes);
}

void check_barrier(struct place *place) { PERFORM(place, barrier); }

/* What a window has in this rank's block: from where in the block, and how much. */
static size_t own_part(struct place *place, size_t block, size_t offset, size_t bytes, size_t *skipped) {
    size_t start = place->rank * block, from = offset > start ? offset : start;
    size_t end = start + block < offset + bytes ? start + block : offset + bytes;
    *skipped = from - start;
    return end > from ? end - from : 0;
}

void check_reduce_scatter(struct place *place, size_t block_bytes, size_t offset, size_t bytes) {
    size_t skipped, own = own_part(place, block_bytes, offset, bytes, &skipped);
    int32_t *source = contribution(place->rank, bytes / 4, offset / 4), *target = numbers(block_bytes / 4);
    struct sharp_coll_reduce_spec spec = reduce_spec((size_t)-1);
    spec.offset = offset;
    spec.sbuf_desc = desc(place, source, bytes, NULL);
    spec.rbuf_desc = desc(place, target, block_bytes, NULL);
    PERFORM(place, reduce_scatter, &spec);
    for (size_t at = 0; at < block_bytes / 4; at++) {
        int is_own = at * 4 >= skipped && at * 4 < skipped + own;
        int32_t whole_sum = sum(place->size, place->rank * block_bytes / 4 + at);
        CHECK(target[at] == (is_own ? whole_sum : (int32_t)0xEEEEEEEE));
    }
    release(place, &spec.sbuf_desc);
    release(place, &spec.rbuf_desc);
    free(source);
    free(target);
}

void check_reduce_scatter_in_place(struct place *place, size_t block_bytes) {
    size_t count = block_bytes / 4, first = place->rank * count;
    int32_t *whole = contribution(place->rank, count * place->size, 0);
    struct sharp_coll_reduce_spec spec = reduce_spec(count);
    spec.offset = 0;
    spec.rbuf_desc = desc(place, whole, block_bytes * place->size, NULL);
    /* UCC's tl/sharp states the whole length times the number of ranks here. */
    spec.sbuf_desc = spec.rbuf_desc;
    spec.sbuf_desc.buffer.length *= place->size;
    PERFORM(place, reduce_scatter, &spec);
    for (size_t at = 0; at < count; at++)
        CHECK(whole[first + at] == sum(place->size, first + at));
    release(place, &spec.rbuf_desc);
    free(whole);
}

void check_allgather(struct place *place, size_t block_bytes, size_t offset, size_t bytes, int in_place) {
    struct sharp_coll_gather_spec spec;
    size_t count = block_bytes / 4, own = place->rank * count;
    int32_t *source = contribution(place->rank, count, own), *target = numbers(bytes / 4);
    memset(&spec, 0xA5, sizeof spec);
    spec.offset = offset;
    spec.sbuf_desc = desc(place, source, block_bytes, NULL);
    spec.rbuf_desc = desc(place, target, bytes, NULL);
    spec.sbuf_desc.mem_type = spec.rbuf_desc.mem_type = (enum sharp_data_memory_type)0xA5A5;
    if (in_place) {
        memcpy(target + own, source, block_bytes);
        release(place, &spec.sbuf_desc);
        spec.sbuf_desc.buffer.ptr = target + own;
        spec.sbuf_desc.buffer.mem_handle = spec.rbuf_desc.buffer.mem_handle;
    }
    PERFORM(place, allgather, &spec);
    for (size_t at = 0; at < bytes / 4; at++) {
        size_t whole_at = offset / 4 + at;
        CHECK(target[at] == value((int)(whole_at / count), whole_at));
    }
    if (!in_place)
        release(place, &spec.sbuf_desc);
    release(place, &spec.rbuf_desc);
    free(source);
    free(target);
}

void check_everything(struct place *place) {
    static const size_t counts[] = {0, 1, 7, 1000, 70001};
    size_t size = place->size;
    for (int form = 0; form < 4; form++) {
        place->nonblocking = form % 2;
        place->registered = form / 2;
        for (size_t which = 0; which < sizeof counts / sizeof *counts; which++) {
            check_allreduce(place, counts[which], form % 2);
            check_reduce(place, counts[which], (int)(which % size), form % 2);
            check_bcast(place, counts[which], (int)(size - 1 - which % size));
            check_barrier(place);
        }
        check_types(place);
        for (size_t block = 4; block <= 40000; block *= 100) {
            check_reduce_scatter(place, block, 0, block * size);
            check_reduce_scatter_in_place(place, block);
            check_allgather(place, block, 0, block * size, form % 2);
        }
        /* Windows: within one block, over the border of two, the end. */
        check_reduce_scatter(place, 400, 100, 200);
        check_allgather(place, 400, 100, 200, 0);
        if (size > 1) {
            check_reduce_scatter(place, 400, 300, 200);
            check_allgather(place, 400, 300, 200, 0);
            check_reduce_scatter(place, 4000, 2000, 4000 * size - 2000);
            check_allgather(place, 4000, 2000, 4000 * size - 2000, 0);
        }
    }
}
