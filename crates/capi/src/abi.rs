//! The structs and numbers of `include/sharp/api/sharp_coll.h`; `tests/layout.rs` holds the two together.
//!
//! Callers leave members that an operation does not use uninitialised, so every member may have any bits:
//! there are only integers and pointers here, and functions in `Option`.

use std::ffi::{c_char, c_int, c_void};

/// `sharp_coll_config`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    /// Not looked at.
    pub ib_dev_list: *const c_char,
    /// Not looked at.
    pub user_progress_num_polls: c_int,
    /// How long a failed request stays at 0 before the process is aborted, in milliseconds.
    pub coll_timeout: c_int,
    /// `HIDE_ERRORS`.
    pub flags: u32,
}

// SAFETY: nothing follows the pointer.
unsafe impl Sync for Config {}

/// `SHARP_COLL_HIDE_ERRORS`.
pub const HIDE_ERRORS: u32 = 1 << 0;

/// `sharp_coll_default_config`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "clients copy it by this name")]
pub static sharp_coll_default_config: Config = Config {
    ib_dev_list: std::ptr::null(),
    user_progress_num_polls: 999,
    coll_timeout: 1000,
    flags: 0,
};

/// `sharp_coll_out_of_band_colls`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OutOfBand {
    /// The root's bytes go to all.
    pub bcast: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int) -> c_int>,
    /// Not called.
    pub barrier: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    /// Every rank's bytes go to the root.
    pub gather:
        Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut c_void, c_int) -> c_int>,
}

/// `sharp_coll_init_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InitSpec {
    /// Names the job in the report.
    pub job_id: u64,
    /// From 0.
    pub world_rank: c_int,
    /// Ranks of the job.
    pub world_size: c_int,
    /// Not looked at.
    pub world_local_rank: c_int,
    /// Called now and then in long waits.
    pub progress_func: Option<unsafe extern "C" fn() -> c_int>,
    /// Not looked at.
    pub group_channel_idx: c_int,
    /// Not looked at.
    pub enable_thread_support: c_int,
    /// By value.
    pub config: Config,
    /// By value.
    pub oob_colls: OutOfBand,
    /// For the callbacks.
    pub oob_ctx: *mut c_void,
}

/// `sharp_coll_comm_init_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CommInitSpec {
    /// From 0.
    pub rank: c_int,
    /// Ranks of the communicator.
    pub size: c_int,
    /// Not looked at.
    pub group_world_ranks: *const u32,
    /// For the callbacks.
    pub oob_ctx: *mut c_void,
}

/// `sharp_coll_caps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Caps {
    /// One bit for each number of `enum sharp_datatype`.
    pub dtypes: u64,
    /// `FEATURE_SAT`.
    pub feature_mask: u64,
}

/// `SHARP_FEATURE_SAT`.
pub const FEATURE_SAT: u64 = 1 << 0;

/// `sharp_coll_reg_params`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RegParams {
    /// Which of the others count.
    pub field_mask: u64,
    /// -1 for plain memory.
    pub dmabuf_fd: c_int,
    /// Not looked at.
    pub dmabuf_offset: u64,
}

/// `SHARP_COLL_REG_FIELD_DMABUF_FD`.
pub const REG_FIELD_DMABUF_FD: u64 = 1 << 0;

/// The `buffer` of `sharp_coll_data_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    /// Where it begins.
    pub ptr: *mut c_void,
    /// Bytes.
    pub length: usize,
    /// A registration, or null.
    pub mem_handle: *mut c_void,
}

/// `sharp_coll_data_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DataDesc {
    /// `DATA_BUFFER`.
    pub kind: u32,
    /// `MEM_TYPE_HOST`, or what is refused.
    pub mem_type: u32,
    /// The memory.
    pub buffer: Buffer,
}

/// `SHARP_DATA_BUFFER`.
pub const DATA_BUFFER: u32 = 0;
/// `SHARP_MEM_TYPE_HOST`.
pub const MEM_TYPE_HOST: u32 = 0;

/// `sharp_coll_reduce_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReduceSpec {
    /// In a reduce only.
    pub root: c_int,
    /// This rank's contribution.
    pub sbuf_desc: DataDesc,
    /// The result's place.
    pub rbuf_desc: DataDesc,
    /// A number of `enum sharp_datatype`.
    pub dtype: u32,
    /// Elements; not in a reduce-scatter.
    pub length: usize,
    /// A number of `enum sharp_reduce_op`.
    pub op: u32,
    /// Not looked at.
    pub aggr_mode: u32,
    /// Bytes; in a reduce-scatter only.
    pub offset: usize,
}

/// `sharp_coll_bcast_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BcastSpec {
    /// The rank that has the bytes.
    pub root: c_int,
    /// Where they are, or come.
    pub buf_desc: DataDesc,
    /// How many.
    pub size: usize,
}

/// `sharp_coll_gather_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GatherSpec {
    /// This rank's part.
    pub sbuf_desc: DataDesc,
    /// A window of all parts.
    pub rbuf_desc: DataDesc,
    /// Not looked at.
    pub dtype: u32,
    /// Not looked at.
    pub size: usize,
    /// Where the window begins, in bytes.
    pub offset: usize,
}
