/* Prints what the compiler makes of the header: sizes, places and numbers, one a line. */
#include <sharp/api/sharp.h>

#define SIZE(type) printf("size %s %zu\n", #type, sizeof(struct type))
#define PLACE(type, member) printf("place %s.%s %zu\n", #type, #member, offsetof(struct type, member))
#define NUMBER(name) printf("number %s %lld\n", #name, (long long)(name))

static void structs(void) {
    SIZE(sharp_coll_config);
    PLACE(sharp_coll_config, ib_dev_list);
    PLACE(sharp_coll_config, user_progress_num_polls);
    PLACE(sharp_coll_config, coll_timeout);
    PLACE(sharp_coll_config, flags);
    SIZE(sharp_coll_out_of_band_colls);
    PLACE(sharp_coll_out_of_band_colls, bcast);
    PLACE(sharp_coll_out_of_band_colls, barrier);
    PLACE(sharp_coll_out_of_band_colls, gather);
    SIZE(sharp_coll_init_spec);
    PLACE(sharp_coll_init_spec, job_id);
    PLACE(sharp_coll_init_spec, world_rank);
    PLACE(sharp_coll_init_spec, world_size);
    PLACE(sharp_coll_init_spec, world_local_rank);
    PLACE(sharp_coll_init_spec, progress_func);
    PLACE(sharp_coll_init_spec, group_channel_idx);
    PLACE(sharp_coll_init_spec, enable_thread_support);
    PLACE(sharp_coll_init_spec, config);
    PLACE(sharp_coll_init_spec, oob_colls);
    PLACE(sharp_coll_init_spec, oob_ctx);
    SIZE(sharp_coll_comm_init_spec);
    PLACE(sharp_coll_comm_init_spec, rank);
    PLACE(sharp_coll_comm_init_spec, size);
    PLACE(sharp_coll_comm_init_spec, group_world_ranks);
    PLACE(sharp_coll_comm_init_spec, oob_ctx);
    SIZE(sharp_coll_caps);
    PLACE(sharp_coll_caps, support_mask.dtypes);
    PLACE(sharp_coll_caps, support_mask.feature_mask);
    SIZE(sharp_coll_reg_params);
    PLACE(sharp_coll_reg_params, field_mask);
    PLACE(sharp_coll_reg_params, dmabuf_fd);
    PLACE(sharp_coll_reg_params, dmabuf_offset);
    SIZE(sharp_coll_data_desc);
    PLACE(sharp_coll_data_desc, type);
    PLACE(sharp_coll_data_desc, mem_type);
    PLACE(sharp_coll_data_desc, buffer.ptr);
    PLACE(sharp_coll_data_desc, buffer.length);
    PLACE(sharp_coll_data_desc, buffer.mem_handle);
    SIZE(sharp_coll_reduce_spec);
    PLACE(sharp_coll_reduce_spec, root);
    PLACE(sharp_coll_reduce_spec, sbuf_desc);
    PLACE(sharp_coll_reduce_spec, rbuf_desc);
    PLACE(sharp_coll_reduce_spec, dtype);
    PLACE(sharp_coll_reduce_spec, length);
    PLACE(sharp_coll_reduce_spec, op);
    PLACE(sharp_coll_reduce_spec, aggr_mode);
    PLACE(sharp_coll_reduce_spec, offset);
    SIZE(sharp_coll_bcast_spec);
    PLACE(sharp_coll_bcast_spec, root);
    PLACE(sharp_coll_bcast_spec, buf_desc);
    PLACE(sharp_coll_bcast_spec, size);
    SIZE(sharp_coll_gather_spec);
    PLACE(sharp_coll_gather_spec, sbuf_desc);
    PLACE(sharp_coll_gather_spec, rbuf_desc);
    PLACE(sharp_coll_gather_spec, dtype);
    PLACE(sharp_coll_gather_spec, size);
    PLACE(sharp_coll_gather_spec, offset);
}

static void numbers(void) {
    NUMBER(SHARP_COLL_ERROR);
    NUMBER(SHARP_COLL_ENOT_SUPP);
    NUMBER(SHARP_COLL_ENOMEM);
    NUMBER(SHARP_COLL_EINVAL);
    NUMBER(SHARP_COLL_ENO_RESOURCE);
    NUMBER(SHARP_COLL_EOOB);
    NUMBER(SHARP_COLL_EJOB);
    NUMBER(SHARP_COLL_ELOST);
    NUMBER(SHARP_COLL_HIDE_ERRORS);
    NUMBER(SHARP_FEATURE_SAT);
    NUMBER(SHARP_COLL_REG_FIELD_DMABUF_FD);
    NUMBER(SHARP_DATA_BUFFER);
    NUMBER(SHARP_MEM_TYPE_HOST);
    NUMBER(sharp_coll_default_config.coll_timeout);
    NUMBER(SHARP_COLL_SUCCESS == 0);
    NUMBER(SHARP_API > SHARP_VERSION(3, 6));
    NUMBER(SHARP_API > ((3L << SHARP_MAJOR_BIT) | (6L << SHARP_MINOR_BIT)));
}

#if SHARP_API > SHARP_VERSION(3, 0)
int main(void) {
    structs();
    numbers();
    return 0;
}
#endif
