//! Goal: the structs and numbers of Rust are those of the header. Method: a program in C prints what its
//! compiler makes of the header, the lines that Rust makes of `abi` must be the same.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::fmt::Write;
use std::mem::{offset_of, size_of};

use sharp_coll::abi::{
    BcastSpec, Caps, CommInitSpec, Config, DATA_BUFFER, DataDesc, FEATURE_SAT, GatherSpec,
    HIDE_ERRORS, InitSpec, MEM_TYPE_HOST, OutOfBand, REG_FIELD_DMABUF_FD, ReduceSpec, RegParams,
    sharp_coll_default_config,
};
use sharp_coll::failure::Code;

/// The size of a struct, and the places of its members: their names in C, then in Rust where they differ.
macro_rules! layout {
    ($lines:ident, $c:literal, $rust:ty, $($member:literal => $($field:ident).+),+) => {
        writeln!($lines, "size {} {}", $c, size_of::<$rust>()).unwrap();
        $(writeln!($lines, "place {}.{} {}", $c, $member, offset_of!($rust, $($field).+)).unwrap();)+
    };
}

fn structs() -> String {
    let mut lines = String::new();
    layout!(lines, "sharp_coll_config", Config,
        "ib_dev_list" => ib_dev_list, "user_progress_num_polls" => user_progress_num_polls,
        "coll_timeout" => coll_timeout, "flags" => flags);
    layout!(lines, "sharp_coll_out_of_band_colls", OutOfBand,
        "bcast" => bcast, "barrier" => barrier, "gather" => gather);
    layout!(lines, "sharp_coll_init_spec", InitSpec,
        "job_id" => job_id, "world_rank" => world_rank, "world_size" => world_size,
        "world_local_rank" => world_local_rank, "progress_func" => progress_func,
        "group_channel_idx" => group_channel_idx, "enable_thread_support" => enable_thread_support,
        "config" => config, "oob_colls" => oob_colls, "oob_ctx" => oob_ctx);
    layout!(lines, "sharp_coll_comm_init_spec", CommInitSpec,
        "rank" => rank, "size" => size, "group_world_ranks" => group_world_ranks,
        "oob_ctx" => oob_ctx);
    layout!(lines, "sharp_coll_caps", Caps,
        "support_mask.dtypes" => dtypes, "support_mask.feature_mask" => feature_mask);
    layout!(lines, "sharp_coll_reg_params", RegParams,
        "field_mask" => field_mask, "dmabuf_fd" => dmabuf_fd, "dmabuf_offset" => dmabuf_offset);
    layout!(lines, "sharp_coll_data_desc", DataDesc,
        "type" => kind, "mem_type" => mem_type, "buffer.ptr" => buffer.ptr,
        "buffer.length" => buffer.length, "buffer.mem_handle" => buffer.mem_handle);
    layout!(lines, "sharp_coll_reduce_spec", ReduceSpec,
        "root" => root, "sbuf_desc" => sbuf_desc, "rbuf_desc" => rbuf_desc, "dtype" => dtype,
        "length" => length, "op" => op, "aggr_mode" => aggr_mode, "offset" => offset);
    layout!(lines, "sharp_coll_bcast_spec", BcastSpec,
        "root" => root, "buf_desc" => buf_desc, "size" => size);
    layout!(lines, "sharp_coll_gather_spec", GatherSpec,
        "sbuf_desc" => sbuf_desc, "rbuf_desc" => rbuf_desc, "dtype" => dtype, "size" => size,
        "offset" => offset);
    lines
}

fn numbers() -> String {
    let codes = [
        ("ERROR", Code::Error),
        ("ENOT_SUPP", Code::NotSupported),
        ("ENOMEM", Code::NoMemory),
        ("EINVAL", Code::Invalid),
        ("ENO_RESOURCE", Code::NoResource),
        ("EOOB", Code::OutOfBand),
        ("EJOB", Code::Job),
        ("ELOST", Code::Lost),
    ];
    assert_eq!(codes.map(|(_, code)| code), Code::ALL);
    let codes = codes.map(|(name, code)| (format!("SHARP_COLL_{name}"), code as i64));
    let others = [
        ("SHARP_COLL_HIDE_ERRORS", i64::from(HIDE_ERRORS)),
        ("SHARP_FEATURE_SAT", FEATURE_SAT.cast_signed()),
        ("SHARP_COLL_REG_FIELD_DMABUF_FD", REG_FIELD_DMABUF_FD.cast_signed()),
        ("SHARP_DATA_BUFFER", i64::from(DATA_BUFFER)),
        ("SHARP_MEM_TYPE_HOST", i64::from(MEM_TYPE_HOST)),
        (
            "sharp_coll_default_config.coll_timeout",
            i64::from(sharp_coll_default_config.coll_timeout),
        ),
        ("SHARP_COLL_SUCCESS == 0", 1),
        ("SHARP_API > SHARP_VERSION(3, 6)", 1),
        ("SHARP_API > ((3L << SHARP_MAJOR_BIT) | (6L << SHARP_MINOR_BIT))", 1),
    ];
    let others = others.map(|(name, number)| (name.to_owned(), number));
    let all = codes.into_iter().chain(others);
    all.map(|(name, number)| format!("number {name} {number}\n")).collect()
}

#[test]
fn rust_and_the_header_agree() {
    let printed = support::Program::compile(&["layout.c"]).command().output().unwrap();
    assert!(printed.status.success());
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), structs() + &numbers());
}
