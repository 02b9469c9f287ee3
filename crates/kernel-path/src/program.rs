//! The program in the kernel: loaded, and attached to interfaces for as long as this process lives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use aya::maps::{HashMap, Map, MapData};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use tributary_ebpf::causes;

use crate::host::{Host, MissingPrerequisite};
use crate::memory::Memory;
use crate::tables::{Directory, Tables};

/// Whether the program was compiled with this crate: that needs a clang.
pub const IS_BUILT: bool = cfg!(program_built);

/// Why there is no kernel path.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There was no clang when this program was built.
    #[error("the kernel path was not built: no clang")]
    NotBuilt,
    /// The machine or the process can't.
    #[error(transparent)]
    MissingPrerequisite(#[from] MissingPrerequisite),
    /// The kernel does not take the object.
    #[error("the kernel does not load the program: {}", causes(.0))]
    Load(#[from] EbpfError),
    /// The kernel does not take the program.
    #[error("the kernel does not take the program: {}", causes(.0))]
    Program(#[from] ProgramError),
    /// The tables can't be mapped.
    #[error("the program's tables can't be mapped: {0}")]
    Map(#[from] io::Error),
    /// There is no such interface.
    #[error("no network interface is called {interface}")]
    NoInterface {
        /// The name.
        interface: String,
    },
    /// An interface can't have it.
    #[error("interface {interface}: {}", causes(.source))]
    Attach {
        /// Its name.
        interface: String,
        /// What the kernel says.
        source: ProgramError,
    },
}

/// The loaded program. It is detached when this is dropped, or the process ends however it ends:
/// its links are file descriptors, and nothing pins them.
pub struct Program {
    ebpf: Ebpf,
}

const OBJECT: &[u8] = tributary_ebpf::object!("node.o");

impl Program {
    /// Loads the program on this machine. Needs Linux 6.6 that compiles programs, `CAP_BPF`, `CAP_NET_ADMIN`
    /// and `CAP_PERFMON`.
    ///
    /// # Errors
    /// If it was not built, the machine or the process can't, or the kernel refuses it.
    pub fn load() -> Result<(Self, Tables), LoadError> {
        Self::load_on(&Host::here())
    }

    /// Loads the program, if this is what the machine and the process are.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_on(host: &Host) -> Result<(Self, Tables), LoadError> {
        if !IS_BUILT {
            return Err(LoadError::NotBuilt);
        }
        host.check()?;
        let mut ebpf = Ebpf::load(OBJECT)?;
        classifier(&mut ebpf).load()?;
        let mut map = |name| ebpf.take_map(name).expect("the object has this map");
        let (places, slots, counters) = (map("MAP_PLACES"), map("MAP_SLOTS"), map("MAP_COUNTERS"));
        let memory = Memory::of_maps(array(&places), array(&slots), array(&counters))?;
        let directory = HashMap::try_from(map("MAP_DIRECTORY")).expect("the directory is a hash");
        let tables = Tables::new(Arc::new(memory), Box::new(Entries(directory)));
        Ok((Self { ebpf }, tables))
    }

    /// Attaches the program where packets enter through an interface.
    ///
    /// # Errors
    /// If there is no such interface, or the kernel refuses it there.
    pub fn attach(&mut self, interface: &str) -> Result<(), LoadError> {
        if !is_interface(interface) {
            return Err(LoadError::NoInterface { interface: interface.to_owned() });
        }
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        classifier(&mut self.ebpf)
            .attach_with_options(interface, TcAttachType::Ingress, options)
            .map(drop)
            .map_err(|source| LoadError::Attach { interface: interface.to_owned(), source })
    }

    /// The loaded program, to be run on test packets.
    pub fn classifier(&mut self) -> &mut SchedClassifier {
        classifier(&mut self.ebpf)
    }
}

/// Whether this network namespace has it, as far as that can be asked.
fn is_interface(name: &str) -> bool {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .is_ok_and(|asked| name_to_index(asked, name).is_ok())
}

fn classifier(ebpf: &mut Ebpf) -> &mut SchedClassifier {
    let program = ebpf.program_mut("aggregate").expect("the object has this program");
    program.try_into().expect("it is a classifier")
}

fn array(map: &Map) -> BorrowedFd<'_> {
    match map {
        Map::Array(data) => data.fd().as_fd(),
        _ => panic!("this map is an array"),
    }
}

/// The directory in the kernel.
struct Entries(HashMap<MapData, u64, u32>);

impl Directory for Entries {
    fn enter(&mut self, key: u64, place: u32) -> io::Result<()> {
        self.0.insert(key, place, 0).map_err(io::Error::other)
    }

    fn leave(&mut self, key: u64) -> io::Result<()> {
        self.0.remove(&key).map_err(io::Error::other)
    }
}
