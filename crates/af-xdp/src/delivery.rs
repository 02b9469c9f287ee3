//! Datagrams of several senders, delivered into a ring in this process's memory.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::{Ebpf, Pod};

use crate::IS_BUILT;
use crate::error::{DELIVERIES_NEED, OpenError};
use crate::headers::read_from_ip;
use crate::interface::{Namespace, find, host};
use crate::ring::{self, RINGS_MAX, Reader};
use crate::target::Target;

const OBJECT: &[u8] = tributary_ebpf::object!("deliver.o");

/// Where the program of [`Delivery`]s sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Where packets enter the network stack (tcx, Linux 6.6). Other programs may sit there, too.
    TrafficControl,
    /// As [`Mode::Generic`](crate::Mode::Generic).
    Generic,
    /// As [`Mode::Native`](crate::Mode::Native).
    Native,
}

/// What a datagram shows to be delivered. A stranger that knows it can forge datagrams: the receiver judges each as if it had
/// come by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Where in the datagram the word is.
    pub offset_bytes: u16,
    /// The word.
    pub word: [u8; 8],
}

/// As in the program.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    word: [u8; 8],
    offset_bytes: u32,
    first: u32,
    others: u32,
    reserved: u32,
}

// SAFETY: numbers without padding between or behind them, and any values are valid.
#[allow(unsafe_code, reason = "the trait is unsafe to implement")]
unsafe impl Pod for Entry {}

/// Datagrams to some addresses of one process, as they arrive at one interface. They come here until it is dropped, and a socket that
/// is bound to their address gets what the program does not deliver: fragments, trains of datagrams, datagrams that do not
/// show the admission, or find the ring full.
///
/// Not for children that the process forks: one that has a copy may only drop it.
pub struct Delivery {
    table: Arc<Table>,
    /// There until this is dropped.
    reader: Option<Reader>,
    targets: Vec<SocketAddrV4>,
    process: u32,
}

impl Delivery {
    /// Takes a ring at the interface that has the address `at`. Nothing is delivered yet.
    ///
    /// # Errors
    /// If this process may not, the kernel refuses, or all rings are taken.
    pub fn open(at: Ipv4Addr, hook: Hook) -> Result<Self, OpenError> {
        let table = Table::with_address(at, hook)?;
        let reader = table.take_ring()?;
        Ok(Self { table, reader: Some(reader), targets: Vec::new(), process: process::id() })
    }

    /// Delivers what goes to `target`: an address of the interface, or a multicast address that a socket has subscribed to there.
    ///
    /// # Errors
    /// If another ring gets it with another admission, or the table is full.
    pub fn add(&mut self, target: SocketAddrV4, admission: Admission) -> Result<(), OpenError> {
        self.table.enter(target, admission, self.reader().index())?;
        self.targets.push(target);
        Ok(())
    }

    /// The next datagram, copied to the start of `buffer`: its length and its source, which can be forged. A datagram
    /// that is damaged, or longer than the buffer, is dropped. Several that were sent as a train may come as one.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddrV4)> {
        loop {
            let copied = self.reader_mut().read(|packet| {
                let (source, payload) = read_from_ip(packet)?;
                buffer.get_mut(..payload.len())?.copy_from_slice(payload);
                Some((payload.len(), source))
            })?;
            if copied.is_some() {
                return copied;
            }
        }
    }

    /// Whether there is nothing to receive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reader().is_empty()
    }

    /// Gets ready to sleep until one of the sockets is readable, as it will be when the last of so many datagrams has come.
    /// False if there is a datagram already.
    #[must_use]
    pub fn arm(&mut self, lacking: u32) -> bool {
        self.reader().arm(lacking)
    }

    /// Ends what [`Delivery::arm`] began.
    pub fn disarm(&mut self) {
        self.reader().disarm();
    }

    fn reader(&self) -> &Reader {
        self.reader.as_ref().expect("there until this is dropped")
    }

    fn reader_mut(&mut self) -> &mut Reader {
        self.reader.as_mut().expect("there until this is dropped")
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        // The table is the parent's, too.
        if self.process == process::id()
            && let Some(reader) = self.reader.take()
        {
            self.table.leave(&self.targets, reader);
        }
    }
}

/// The program at an interface, as one process has it. It is detached when the process ends, however that ends: its link is a
/// file descriptor, and nothing pins it.
struct Table {
    interface: String,
    key: Key,
    shared: Mutex<Shared>,
    _namespace: Namespace,
    /// Holds the link.
    _program: Ebpf,
}

/// Tells tables apart, also those of different network namespaces, and of a process and its child.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    process: u32,
    namespace: u64,
    index: u32,
    hook: Hook,
}

struct Shared {
    targets: HashMap<MapData, Target, Entry>,
    known: BTreeMap<SocketAddrV4, Receivers>,
    free: Vec<Reader>,
}

/// What goes to an address.
#[derive(Clone, Copy)]
struct Receivers {
    admission: Admission,
    /// A bit for each ring.
    rings: u32,
}

const _: () = assert!(RINGS_MAX <= u32::BITS as usize);

impl Table {
    /// That of the interface that has an address, opened if this process does not have it yet. It stays open until the process ends:
    /// programs make and free communicators, and a program that is loaded anew takes milliseconds and 25 MiB, in which aya reads
    /// the kernel's types.
    fn with_address(address: Ipv4Addr, hook: Hook) -> Result<Arc<Self>, OpenError> {
        static OPEN: Mutex<Vec<Arc<Table>>> = Mutex::new(Vec::new());
        let (interface, index) = find(address)?;
        let namespace = Namespace::open()?;
        let key = Key { process: process::id(), namespace: namespace.number, index, hook };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.iter().find(|it| it.key == key) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(Self::open(interface, key, namespace)?);
        open.push(Arc::clone(&opened));
        Ok(opened)
    }

    fn open(interface: String, key: Key, namespace: Namespace) -> Result<Self, OpenError> {
        if !IS_BUILT {
            return Err(OpenError::NotBuilt);
        }
        let refused = |error: &(dyn std::error::Error + 'static)| {
            OpenError::at(&interface, DELIVERIES_NEED, error)
        };
        let mut program = Ebpf::load(OBJECT).map_err(|error| refused(&error))?;
        let mut map = |name| program.take_map(name).expect("the object has this map");
        let (targets, rings) = (map("TARGETS"), map("RINGS"));
        let Map::Array(rings) = rings else { panic!("rings are an array") };
        let free = ring::map(rings.fd().as_fd()).map_err(host("memory for rings"))?;
        attach(&mut program, &interface, key.hook).map_err(|error| refused(&error))?;
        let targets = HashMap::try_from(targets).expect("targets are a hash");
        let shared = Mutex::new(Shared { targets, known: BTreeMap::new(), free });
        Ok(Self { interface, key, shared, _namespace: namespace, _program: program })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nobody panics between two changes that belong together.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ring that nothing is in.
    fn take_ring(&self) -> Result<Reader, OpenError> {
        let free = &mut self.lock().free;
        // A program that still wrote for the ring's last owner may be at work.
        while let Some(mut reader) = free.pop() {
            if reader.drain() {
                return Ok(reader);
            }
        }
        Err(OpenError::Full { interface: self.interface.clone() })
    }

    fn enter(
        &self,
        target: SocketAddrV4,
        admission: Admission,
        ring: usize,
    ) -> Result<(), OpenError> {
        let Shared { targets, known, .. } = &mut *self.lock();
        let rings = match known.get(&target) {
            Some(receivers) if receivers.admission != admission => {
                return Err(OpenError::Claimed { interface: self.interface.clone(), target });
            }
            Some(receivers) => receivers.rings | 1 << ring,
            None => 1 << ring,
        };
        let receivers = Receivers { admission, rings };
        targets
            .insert(Target::from(target), receivers.entry(), 0)
            .map_err(|_| OpenError::Full { interface: self.interface.clone() })?;
        known.insert(target, receivers);
        Ok(())
    }

    /// Delivers nothing more into a ring that these addresses had.
    fn leave(&self, left: &[SocketAddrV4], reader: Reader) {
        let Shared { targets, known, free } = &mut *self.lock();
        for target in left {
            let Some(receivers) = known.get_mut(target) else { continue };
            receivers.rings &= !(1 << reader.index());
            let key = Target::from(*target);
            // What can't be changed goes on to a ring that nobody reads, which is full soon and leaves the rest to the stack.
            if receivers.rings == 0 {
                known.remove(target);
                let _ = targets.remove(&key);
            } else {
                let _ = targets.insert(key, receivers.entry(), 0);
            }
        }
        // The rings that were used last come last, when nobody writes into them any more.
        free.insert(0, reader);
    }
}

impl Receivers {
    fn entry(self) -> Entry {
        let first = self.rings.trailing_zeros();
        Entry {
            word: self.admission.word,
            offset_bytes: self.admission.offset_bytes.into(),
            first,
            others: self.rings & !(1 << first),
            reserved: 0,
        }
    }
}

fn attach(program: &mut Ebpf, interface: &str, hook: Hook) -> Result<(), ProgramError> {
    let mode = match hook {
        Hook::TrafficControl => None,
        Hook::Generic => Some(XdpMode::Skb),
        Hook::Native => Some(XdpMode::Driver),
    };
    let name = if mode.is_none() { "deliver_at_traffic_control" } else { "deliver_by_xdp" };
    let found = program.program_mut(name).expect("the object has this program");
    match mode {
        None => {
            let program: &mut SchedClassifier = found.try_into()?;
            program.load()?;
            let options = TcAttachOptions::TcxOrder(LinkOrder::default());
            program.attach_with_options(interface, TcAttachType::Ingress, options).map(drop)
        }
        Some(mode) => {
            let program: &mut Xdp = found.try_into()?;
            program.load()?;
            program.attach(interface, mode).map(drop)
        }
    }
}
