/* Collectives offloaded to aggregation nodes: the interface of libsharp_coll, as Tributary implements it.
 *
 * The names are those that clients of the interface use, so that they build against it. Numbers and layouts
 * are Tributary's own. docs/sharp.md tells how to use it, and what differs from other implementations.
 *
 * Functions return 0, or a negative number of `enum sharp_error_no`, unless they say otherwise.
 * sharp_coll_strerror() has the reason. Handles that were never given out, or were freed, are refused; they
 * are not followed.
 *
 * All ranks of a communicator start the same collectives in the same order, blocking and nonblocking ones
 * in one line. Buffers are valid, and nobody else uses them, until the operation is over.
 */
#ifndef TRIBUTARY_SHARP_COLL_H
#define TRIBUTARY_SHARP_COLL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a process has of a job. */
struct sharp_coll_context;
/* What a process has of a communicator. */
struct sharp_coll_comm;

enum sharp_error_no {
    SHARP_COLL_SUCCESS = 0,
    SHARP_COLL_ERROR = -1,        /* anything without a number of its own */
    SHARP_COLL_ENOT_SUPP = -2,    /* asked for something that is not there */
    SHARP_COLL_ENOMEM = -3,       /* the system gives no memory */
    SHARP_COLL_EINVAL = -4,       /* an argument that can't be */
    SHARP_COLL_ENO_RESOURCE = -5, /* no place on aggregation nodes, or none left in this process */
    SHARP_COLL_EOOB = -6,         /* an out-of-band callback failed */
    SHARP_COLL_EJOB = -11,        /* the job can't have what TRIBUTARY_REQUIRE asks for */
    SHARP_COLL_ELOST = -12        /* another rank, its host or all ways to it are gone */
};

enum sharp_datatype {
    SHARP_DTYPE_UNSIGNED = 0,       /* uint32_t */
    SHARP_DTYPE_INT = 1,            /* int32_t */
    SHARP_DTYPE_UNSIGNED_LONG = 2,  /* uint64_t */
    SHARP_DTYPE_LONG = 3,           /* int64_t */
    SHARP_DTYPE_FLOAT = 4,          /* IEEE 754 binary32 */
    SHARP_DTYPE_DOUBLE = 5,         /* IEEE 754 binary64 */
    SHARP_DTYPE_UNSIGNED_SHORT = 6, /* uint16_t */
    SHARP_DTYPE_SHORT = 7,          /* int16_t */
    SHARP_DTYPE_FLOAT_SHORT = 8,    /* IEEE 754 binary16 */
    SHARP_DTYPE_BFLOAT16 = 9,       /* the upper half of a binary32 */
    SHARP_DTYPE_UINT8 = 10,         /* uint8_t */
    SHARP_DTYPE_INT8 = 11,          /* int8_t */
    SHARP_DTYPE_NULL = 12           /* none */
};

enum sharp_reduce_op {
    SHARP_OP_MAX = 0,
    SHARP_OP_MIN = 1,
    SHARP_OP_SUM = 2,
    SHARP_OP_PROD = 3,
    SHARP_OP_LAND = 4, /* logical and bitwise ones: integers only */
    SHARP_OP_BAND = 5,
    SHARP_OP_LOR = 6,
    SHARP_OP_BOR = 7,
    SHARP_OP_LXOR = 8,
    SHARP_OP_BXOR = 9,
    SHARP_OP_MAXLOC = 10, /* refused: no datatype above is a pair */
    SHARP_OP_MINLOC = 11,
    SHARP_OP_NULL = 12 /* none */
};

/* Which way an operation takes is the library's choice; the value is not looked at. */
enum sharp_aggregation_mode {
    SHARP_AGGREGATION_NONE = 0,
    SHARP_AGGREGATION_LOW_LATENCY = 1,
    SHARP_AGGREGATION_STREAMING = 2
};

enum sharp_data_buffer_type { SHARP_DATA_BUFFER = 0 };

enum sharp_data_memory_type {
    SHARP_MEM_TYPE_HOST = 0,
    SHARP_MEM_TYPE_CUDA = 1, /* refused: the library moves host memory only */
    SHARP_MEM_TYPE_LAST = 2
};

/* sharp_coll_config.flags */
enum sharp_coll_config_flags {
    SHARP_COLL_HIDE_ERRORS = 1 << 0, /* log why a job can't be had at debug level only */
    SHARP_COLL_DISABLE_LAZY_GROUP_RESOURCE_ALLOC = 1 << 1 /* always so */
};

struct sharp_coll_config {
    const char *ib_dev_list;     /* not looked at: routes decide, or TRIBUTARY_HOST_ADDRESS */
    int user_progress_num_polls; /* not looked at: see progress_func */
    int coll_timeout;            /* milliseconds; see sharp_coll_req_test() */
    uint32_t flags;
};

extern const struct sharp_coll_config sharp_coll_default_config;

/* What the ranks exchange bytes with before there is anything of ours between them. They are called only
 * in sharp_coll_init() and sharp_coll_comm_init(), in the thread that calls those, and return 0, or anything
 * else if they fail. */
struct sharp_coll_out_of_band_colls {
    /* The root's `len` bytes go to all. */
    int (*bcast)(void *context, void *buffer, int len, int root);
    int (*barrier)(void *context);
    /* `len` bytes of each rank go to the root, in rank order. `target` is used at the root only. */
    int (*gather)(void *context, int root, void *source, void *target, int len);
};

struct sharp_coll_init_spec {
    uint64_t job_id;           /* the same at all ranks; names the job in the report */
    int world_rank;            /* from 0 */
    int world_size;
    int world_local_rank;      /* not looked at */
    int (*progress_func)(void); /* may be NULL; called now and then while a blocking call waits
                                * long. May test requests, and not start or wait for anything */
    int group_channel_idx;     /* not looked at */
    int enable_thread_support; /* not looked at: any thread may call at any time */
    struct sharp_coll_config config;
    struct sharp_coll_out_of_band_colls oob_colls;
    void *oob_ctx; /* for the callbacks; used in sharp_coll_init() only */
};

struct sharp_coll_comm_init_spec {
    int rank; /* in the communicator, from 0 */
    int size;
    const uint32_t *group_world_ranks; /* not looked at */
    void *oob_ctx; /* for the callbacks, over these ranks; used in sharp_coll_comm_init() only */
};

/* Feature bits. */
enum sharp_feature {
    SHARP_FEATURE_SAT = 1 << 0 /* reduce-scatter and allgather; off with SHARP_COLL_ENABLE_SAT=0 */
};

struct sharp_coll_caps {
    struct {
        uint64_t dtypes;       /* 1 << a number of enum sharp_datatype */
        uint64_t feature_mask; /* of enum sharp_feature */
    } support_mask;
};

/* Which members of sharp_coll_reg_params count. */
enum sharp_coll_reg_field {
    SHARP_COLL_REG_FIELD_DMABUF_FD = 1 << 0,
    SHARP_COLL_REG_FIELD_DMABUF_OFFSET = 1 << 1,
    SHARP_COLL_REG_FIELD_DMABUF_DATA_DIRECT = 1 << 2
};

struct sharp_coll_reg_params {
    uint64_t field_mask;
    int dmabuf_fd; /* -1: plain memory */
    uint64_t dmabuf_offset;
};

struct sharp_coll_data_desc {
    enum sharp_data_buffer_type type;
    enum sharp_data_memory_type mem_type;
    struct {
        void *ptr;
        size_t length; /* bytes */
        void *mem_handle; /* a registration that covers the buffer, an ended one, or NULL */
    } buffer;
};

struct sharp_coll_reduce_spec {
    int root;                             /* sharp_coll_do_reduce() only */
    struct sharp_coll_data_desc sbuf_desc;
    struct sharp_coll_data_desc rbuf_desc; /* reduce: at the root only */
    enum sharp_datatype dtype;
    size_t length; /* elements; not looked at in a reduce-scatter */
    enum sharp_reduce_op op;
    enum sharp_aggregation_mode aggr_mode;
    size_t offset; /* bytes; reduce-scatter only */
};

struct sharp_coll_bcast_spec {
    int root;
    struct sharp_coll_data_desc buf_desc;
    size_t size; /* bytes */
};

struct sharp_coll_gather_spec {
    struct sharp_coll_data_desc sbuf_desc; /* this rank's part; mem_type is not looked at */
    struct sharp_coll_data_desc rbuf_desc;
    enum sharp_datatype dtype; /* not looked at: bytes are moved as they are */
    size_t size;               /* not looked at */
    size_t offset;             /* bytes */
};

/* ---- Context ---- */

/* Opens the job's context. Collective over the world; all ranks get the same outcome. The environment is
 * read now, and the spec is not used afterwards. */
int sharp_coll_init(struct sharp_coll_init_spec *spec, struct sharp_coll_context **context);

/* Ends it, with the communicators that are left, and writes the report if TRIBUTARY_REPORT is set. Not
 * collective. */
int sharp_coll_finalize(struct sharp_coll_context *context);

int sharp_coll_caps_query(struct sharp_coll_context *context, struct sharp_coll_caps *caps);

/* Goes on with nonblocking operations. Not needed: sharp_coll_req_test() does the same, and so does a thread
 * of the library, now and then. */
int sharp_coll_progress(struct sharp_coll_context *context);

/* ---- Communicators ---- */

/* Collective over its ranks; all get the same outcome. */
int sharp_coll_comm_init(struct sharp_coll_context *context, struct sharp_coll_comm_init_spec *spec,
                         struct sharp_coll_comm **comm);

/* Not collective. Operations under way go on. */
int sharp_coll_comm_destroy(struct sharp_coll_comm *comm);

/* ---- Collectives ----
 *
 * The nonblocking ones set *handle, to NULL if they fail. */

int sharp_coll_do_barrier(struct sharp_coll_comm *comm);
int sharp_coll_do_barrier_nb(struct sharp_coll_comm *comm, void **handle);

/* Source and target are one buffer, or do not overlap. */
int sharp_coll_do_allreduce(struct sharp_coll_comm *comm, struct sharp_coll_reduce_spec *spec);
int sharp_coll_do_allreduce_nb(struct sharp_coll_comm *comm, struct sharp_coll_reduce_spec *spec,
                               void **handle);

int sharp_coll_do_reduce(struct sharp_coll_comm *comm, struct sharp_coll_reduce_spec *spec);
int sharp_coll_do_reduce_nb(struct sharp_coll_comm *comm, struct sharp_coll_reduce_spec *spec, void **handle);

int sharp_coll_do_bcast(struct sharp_coll_comm *comm, struct sharp_coll_bcast_spec *spec);
int sharp_coll_do_bcast_nb(struct sharp_coll_comm *comm, struct sharp_coll_bcast_spec *spec, void **handle);

/* The whole vector is that of all ranks' blocks, each as long as rbuf; rank r's begins at byte r * rbuf.length.
 * sbuf is a window of it: the bytes from `offset` on, sbuf.length of them, the same at all ranks. What of the
 * window is in a rank's block goes to the same place in its rbuf. rbuf may lie in sbuf.
 *
 * Where both begin at the same address under the same registration (or both under none), the operation is in
 * place: rbuf.length is the length of the whole vector, and a rank's result goes to its block there. */
int sharp_coll_do_reduce_scatter(struct sharp_coll_comm *comm, struct sharp_coll_reduce_spec *spec);
int sharp_coll_do_reduce_scatter_nb(struct sharp_coll_comm *comm, struct sharp_coll_reduce_spec *spec,
                                    void **handle);

/* rbuf is a window of all ranks' sbuf, one behind the other: the bytes from `offset` on, rbuf.length of them,
 * the same at all ranks. sbuf may be this rank's own part of rbuf. */
int sharp_coll_do_allgather(struct sharp_coll_comm *comm, struct sharp_coll_gather_spec *spec);
int sharp_coll_do_allgather_nb(struct sharp_coll_comm *comm, struct sharp_coll_gather_spec *spec,
                               void **handle);

/* ---- Requests ---- */

/* Goes on with the operation: 1 if it is over, else 0. Both clients that are known take any other answer for
 * success, so an operation that failed stays at 0: the reason is logged at once, and after
 * config.coll_timeout milliseconds the process is aborted, unless TRIBUTARY_SHARP_FAILURE=stall. NULL, and
 * what is no request, stay at 0 too. */
int sharp_coll_req_test(void *handle);

/* Waits until the operation is over; returns its outcome. The request is freed, unless it failed. */
int sharp_coll_req_wait(void *handle);

/* Frees a request. An operation under way goes on. */
int sharp_coll_req_free(void *handle);

/* ---- Memory ----
 *
 * Nothing is pinned: a registration says that the memory is there. *mr is NULL after a failure. */

int sharp_coll_reg_mr(struct sharp_coll_context *context, void *buffer, size_t length, void **mr);
int sharp_coll_reg_mr_v2(struct sharp_coll_context *context, void *buffer, size_t length,
                         const struct sharp_coll_reg_params *params, void **mr);
int sharp_coll_dereg_mr(struct sharp_coll_context *context, void *mr);

/* ---- Telling ---- */

/* What a number means; where the calling thread's last failure had this number, its reason. The text is
 * never freed. */
const char *sharp_coll_strerror(int error);

enum config_print_flags { SHARP_COLL_CONFIG_PRINT_CONFIG = 1 << 0, SHARP_COLL_CONFIG_PRINT_HEADER = 1 << 1 };

/* Writes every setting, its value and where it comes from. */
int sharp_coll_print_config(FILE *stream, enum config_print_flags flags);

/* Writes the report of a context to standard error: which operations went through aggregation nodes. */
int sharp_coll_dump_stats(struct sharp_coll_context *context);

/* Takes the log level from the environment before any context does. */
int sharp_coll_log_early_init(void);

#ifdef __cplusplus
}
#endif

#endif
