//! The program at an interface that steers datagrams to the sockets of AF_XDP that one job has there, and its two tables.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;

use aya::Ebpf;
use aya::maps::{HashMap, MapData, XskMap};
use aya::programs::{Xdp, XdpMode};
use tributary_af_xdp::Destination;
use xdp::nic::NicIndex;

use crate::IS_BUILT;
use crate::error::{SOCKETS_NEED, ServeError};
use crate::hook::Hook;
use crate::sockets::{self, OpenedSocket};

/// As in the program. Packets of a queue beyond go to the network stack.
const QUEUES_MAX: u32 = 64;

const OBJECT: &[u8] = tributary_ebpf::object!("steer.o");

/// As the program knows where datagrams of IPv4 go to: the address, the port, and two zeros.
type Target = [u8; 8];

/// The program, attached. It is detached when this is dropped, or the process ends, however that ends: its link is a file descriptor, and
/// nothing pins it.
pub(crate) struct Steering {
    interface: String,
    ports: HashMap<MapData, Target, u32>,
    steered: BTreeSet<Destination>,
    /// Holds the link, and the table of sockets.
    _program: Ebpf,
    _sockets: XskMap<MapData>,
}

impl Steering {
    /// Opens a socket for each queue of an interface, and attaches the program.
    pub(crate) fn attach(
        interface: &str,
        index: u32,
        hook: Hook,
    ) -> Result<(Self, Vec<OpenedSocket>), ServeError> {
        if !IS_BUILT {
            return Err(ServeError::NotBuilt);
        }
        if hook == Hook::Native && is_bond(interface) {
            return Err(ServeError::NotOffered(format!(
                "interface {interface}: what programs in the drivers of a bond's adapters steer is lost, for its sockets are the bond's; \
                 the service could have --hook xdp"
            )));
        }
        let refused = |error: &(dyn std::error::Error + 'static)| {
            ServeError::at(interface, SOCKETS_NEED, error)
        };
        let counts = NicIndex::new(index).queue_counts().map_err(|error| refused(&error))?;
        let count = counts.rx_count().clamp(1, QUEUES_MAX);
        let mut program = Ebpf::load(OBJECT).map_err(|error| refused(&error))?;
        let mut map = |name| program.take_map(name).expect("the object has this map");
        let ports = HashMap::try_from(map("PORTS")).expect("ports are a hash");
        let mut table = XskMap::try_from(map("SOCKETS")).expect("sockets are AF_XDP's");
        let steer: &mut Xdp = program
            .program_mut("steer")
            .expect("the object has this program")
            .try_into()
            .expect("it is of XDP");
        let mode = if hook == Hook::Native { XdpMode::Driver } else { XdpMode::Skb };
        steer
            .load()
            .and_then(|()| steer.attach(interface, mode))
            .map_err(|error| refused(&error))?;
        let mut opened = Vec::new();
        for number in 0..count {
            let socket = sockets::open(index, number, count, hook != Hook::Native)
                .map_err(|error| refused(&error))?;
            table.set(number, socket.socket.as_raw_fd(), 0).map_err(|error| refused(&error))?;
            opened.push(socket);
        }
        let steering = Self {
            interface: interface.to_owned(),
            ports,
            steered: BTreeSet::new(),
            _program: program,
            _sockets: table,
        };
        Ok((steering, opened))
    }

    /// Steers what goes to an address of IPv4 to the sockets.
    pub(crate) fn steer(&mut self, target: Destination) -> Result<(), ServeError> {
        let Some(key) = key_of(target) else {
            return Err(ServeError::NotOffered("AF_XDP is for IPv4 only".to_owned()));
        };
        self.ports
            .insert(key, 0, 0)
            .map_err(|_| ServeError::Full { interface: self.interface.clone() })?;
        self.steered.insert(target);
        Ok(())
    }

    /// Leaves what goes to an address to the network stack. Does nothing if it is not steered.
    pub(crate) fn leave(&mut self, target: Destination) {
        if let Some(key) = key_of(target).filter(|_| self.steered.remove(&target)) {
            // An entry that is not there is what is asked for.
            let _ = self.ports.remove(&key);
        }
    }
}

/// Whether an interface consists of several adapters.
fn is_bond(interface: &str) -> bool {
    Path::new("/sys/class/net").join(interface).join("bonding").exists()
}

fn key_of(target: Destination) -> Option<Target> {
    let SocketAddr::V4(address) = SocketAddr::from(target) else { return None };
    let mut key = [0; 8];
    key[..4].copy_from_slice(&address.ip().octets());
    key[4..6].copy_from_slice(&address.port().to_be_bytes());
    Some(key)
}
