//! Offers: how the processes of a host come to share one segment.
//!
//! The leader makes an anonymous memory file (memfd_create(2), so the size of `/dev/shm` does not
//! matter) and describes it in an [`Offer`], plain bytes that the caller carries to the others;
//! they open the leader's descriptor through `/proc`. An anonymous file has no name to leak: the
//! kernel frees it with the last process that maps it, however that one ends. Where `/proc` does
//! not permit the access, the leader sends its descriptor over a socket instead; see `delivery`.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::delivery::{self, DeliveryError, Mailbox, MailboxName};
use super::segment::{Layout, RANKS_MAX, Segment};

const OFFER_VERSION: u32 = 3;

/// Where processes of this host find the segment of a group. Plain data, the same for every rank.
///
/// The leader makes it with [`HostGroup::offer`](crate::HostGroup::offer). It is valid on this
/// host, as long as the leader keeps the [`SegmentHandle`]. It is no secret: who may open the
/// leader's descriptors (the same user, as for ptrace(2)) may attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The leader, and the segment's number in its descriptor table.
    pid: u32,
    fd: u32,
    ranks: u32,
    size_bytes: u64,
    inode: u64,
    nonce: [u64; 2],
}

/// Why a leader could not make a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The caller asked for a group that cannot be.
    #[error("a host group has 1 to {RANKS_MAX} ranks, not {ranks}")]
    Ranks {
        /// The number asked for.
        ranks: u32,
    },
    /// The system refused; often a memory limit.
    #[error("cannot make a shared segment of {size_bytes} bytes: {call}: {errno}")]
    System {
        /// The call that failed.
        call: &'static str,
        /// Why.
        errno: Errno,
        /// The size of the segment (most of it is never touched).
        size_bytes: u64,
    },
}

/// Why bytes are not an offer; their sender is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferFormatError {
    /// Made by another version of this library.
    #[error("offer of version {got}, this library speaks version {OFFER_VERSION}")]
    Version {
        /// The version in the bytes.
        got: u32,
    },
    /// A field has a value that no leader writes.
    #[error("offer field {field} has value {value}")]
    Field {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// The leader's descriptor of an offered segment: others attach through it.
///
/// The leader drops it once every rank has attached, or given up. Ranks that have attached keep the
/// segment.
#[derive(Debug)]
pub struct SegmentHandle {
    file: OwnedFd,
}

impl SegmentHandle {
    /// Sends the segment's descriptor to a rank that got [`AttachError::NotPermitted`]. Never
    /// waits.
    ///
    /// # Errors
    /// No process of this network namespace has that mailbox, or the system refused.
    pub fn deliver(&self, to: MailboxName) -> Result<(), DeliveryError> {
        delivery::send(&self.file, to)
    }
}

impl Offer {
    /// Size of an offer as bytes.
    pub const BYTES: usize = 48;

    /// The offer as bytes, to be carried to processes of this host.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (index, word) in [OFFER_VERSION, self.pid, self.fd, self.ranks].into_iter().enumerate()
        {
            bytes[index * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let words = [self.size_bytes, self.inode, self.nonce[0], self.nonce[1]];
        for (index, word) in words.into_iter().enumerate() {
            bytes[16 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads an offer.
    ///
    /// # Errors
    /// The bytes were not made by [`to_bytes`](Self::to_bytes) of this version.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, OfferFormatError> {
        let half = |index: usize| {
            u32::from_le_bytes(bytes[index * 4..][..4].try_into().expect("four bytes"))
        };
        let word = |index: usize| {
            u64::from_le_bytes(bytes[16 + index * 8..][..8].try_into().expect("eight bytes"))
        };
        let refuse = |field, value| Err(OfferFormatError::Field { field, value });
        if half(0) != OFFER_VERSION {
            return Err(OfferFormatError::Version { got: half(0) });
        }
        let (pid, fd, ranks) = (half(1), half(2), half(3));
        if !(1..=RANKS_MAX).contains(&ranks) {
            return refuse("ranks", u64::from(ranks));
        }
        let size_bytes = word(0);
        if size_bytes != Layout::new(ranks).size_bytes() as u64 {
            return refuse("size_bytes", size_bytes);
        }
        Ok(Self { pid, fd, ranks, size_bytes, inode: word(1), nonce: [word(2), word(3)] })
    }

    /// The number of ranks that the segment was made for.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Makes a segment, and the offer of it.
    pub(super) fn make(ranks: u32) -> Result<(Self, SegmentHandle), OfferError> {
        let draft = Draft::new(ranks)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("tributary-host", flags)
            .map_err(|errno| draft.system_error("memfd_create", errno))?;
        let inode = draft.prepare(&file)?;
        // Nobody can shrink it under the others, which would kill them with SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|errno| draft.system_error("fcntl(F_ADD_SEALS)", errno))?;
        let fd = u32::try_from(file.as_raw_fd()).expect("a descriptor is not negative");
        let Draft { ranks, size_bytes, nonce } = draft;
        let offer = Self { pid: std::process::id(), fd, ranks, size_bytes, inode, nonce };
        Ok((offer, SegmentHandle { file }))
    }

    /// Opens the leader's descriptor and maps the segment.
    pub(super) fn open(&self) -> Result<Segment, AttachError> {
        let Self { pid, fd, .. } = *self;
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"));
        let file = file.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM | Errno::NOENT) | None => {
                AttachError::NotPermitted { pid }
            }
            Some(errno) => AttachError::System { call: "open", errno },
        })?;
        self.map(&file.into())
    }

    /// Maps the segment that the handle holds; at the leader.
    pub(super) fn open_with_handle(&self, handle: &SegmentHandle) -> Result<Segment, AttachError> {
        self.map(&handle.file)
    }

    /// Maps the segment that was delivered to `mailbox`.
    pub(super) fn open_delivered(&self, mailbox: &Mailbox) -> Result<Segment, AttachError> {
        while let Some(file) = mailbox.take() {
            // Anyone may write to a mailbox: what does not fit was not from the leader.
            match self.map(&file) {
                Err(AttachError::NotTheSegment) => {}
                outcome => return outcome,
            }
        }
        Err(AttachError::NotDelivered)
    }

    fn map(&self, file: &OwnedFd) -> Result<Segment, AttachError> {
        let status = rustix::fs::fstat(file)
            .map_err(|errno| AttachError::System { call: "fstat", errno })?;
        // Another file under the same number: the leader has gone, and its pid was taken over.
        if status.st_ino != self.inode || status.st_size as u64 != self.size_bytes {
            return Err(AttachError::NotTheSegment);
        }
        let segment = Segment::map(file, Layout::new(self.ranks))
            .map_err(|errno| AttachError::System { call: "mmap", errno })?;
        if segment.nonce() != self.nonce {
            return Err(AttachError::NotTheSegment);
        }
        Ok(segment)
    }
}

/// Why a rank could not attach to an offered segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The caller's number of ranks or local rank does not fit the offer.
    #[error("local rank {local_rank} of {ranks} does not fit an offer for {offered} ranks")]
    Ranks {
        /// The caller's local rank.
        local_rank: u32,
        /// The caller's number of ranks.
        ranks: u32,
        /// The number of ranks in the offer.
        offered: u32,
    },
    /// The leader's descriptors are not visible to this process; it may deliver the segment.
    #[error("process {pid} does not let this one open its descriptors")]
    NotPermitted {
        /// The leader.
        pid: u32,
    },
    /// The leader has delivered nothing that fits the offer.
    #[error("no segment was delivered")]
    NotDelivered,
    /// What was found is not the offered segment: the leader has gone, or is on another host.
    #[error("the offered segment is gone")]
    NotTheSegment,
    /// Another process or thread has this local rank.
    #[error("local rank {local_rank} is taken")]
    RankTaken {
        /// The rank in question.
        local_rank: u32,
    },
    /// The system refused.
    #[error("cannot attach: {call}: {errno}")]
    System {
        /// The call that failed.
        call: &'static str,
        /// Why.
        errno: Errno,
    },
}

/// A segment in the making.
struct Draft {
    ranks: u32,
    size_bytes: u64,
    nonce: [u64; 2],
}

impl Draft {
    fn new(ranks: u32) -> Result<Self, OfferError> {
        if !(1..=RANKS_MAX).contains(&ranks) {
            return Err(OfferError::Ranks { ranks });
        }
        let mut draft =
            Self { ranks, size_bytes: Layout::new(ranks).size_bytes() as u64, nonce: [0; 2] };
        let mut bytes = [0; 16];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| draft.system_error("getrandom", errno))?;
        assert_eq!(filled, 16, "getrandom fills up to 256 bytes at once");
        draft.nonce =
            [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
        Ok(draft)
    }

    /// Gives the file its size and its nonce; returns its inode.
    fn prepare(&self, file: &OwnedFd) -> Result<u64, OfferError> {
        rustix::fs::ftruncate(file, self.size_bytes)
            .map_err(|errno| self.system_error("ftruncate", errno))?;
        let mut head = [0; 16];
        head[..8].copy_from_slice(&self.nonce[0].to_ne_bytes());
        head[8..].copy_from_slice(&self.nonce[1].to_ne_bytes());
        let written = rustix::io::pwrite(file, &head, 0)
            .map_err(|errno| self.system_error("pwrite", errno))?;
        if written != head.len() {
            return Err(self.system_error("pwrite", Errno::NOSPC));
        }
        let status = rustix::fs::fstat(file).map_err(|errno| self.system_error("fstat", errno))?;
        Ok(status.st_ino)
    }

    fn system_error(&self, call: &'static str, errno: Errno) -> OfferError {
        OfferError::System { call, errno, size_bytes: self.size_bytes }
    }
}
