//! The program at an interface that steers datagrams to sockets, and its two tables.

use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;

use aya::Ebpf;
use aya::maps::{HashMap, MapData, XskMap};
use aya::programs::{Xdp, XdpMode};

use crate::error::{OpenError, PORTS_NEED};
use crate::target::Target;
use crate::{IS_BUILT, Mode};

/// As in the program.
pub(crate) const QUEUES_MAX: u32 = 64;

const OBJECT: &[u8] = tributary_ebpf::object!("steer.o");

/// The program, attached. It is detached when the process ends, however that ends: its link is a file descriptor, and
/// nothing pins it.
pub(crate) struct Steering {
    ports: HashMap<MapData, Target, u32>,
    sockets: XskMap<MapData>,
    /// Holds the link.
    _program: Ebpf,
}

impl Steering {
    pub(crate) fn attach(interface: &str, mode: Mode) -> Result<Self, OpenError> {
        if !IS_BUILT {
            return Err(OpenError::NotBuilt);
        }
        let mut program =
            Ebpf::load(OBJECT).map_err(|error| OpenError::at(interface, PORTS_NEED, &error))?;
        let mut map = |name| program.take_map(name).expect("the object has this map");
        let ports = HashMap::try_from(map("PORTS")).expect("ports are a hash");
        let sockets = XskMap::try_from(map("SOCKETS")).expect("sockets are AF_XDP's");
        let steer: &mut Xdp = program
            .program_mut("steer")
            .expect("the object has this program")
            .try_into()
            .expect("it is of XDP");
        let mode = match mode {
            Mode::Generic => XdpMode::Skb,
            Mode::Native => XdpMode::Driver,
        };
        steer
            .load()
            .and_then(|()| steer.attach(interface, mode))
            .map_err(|error| OpenError::at(interface, PORTS_NEED, &error))?;
        Ok(Self { ports, sockets, _program: program })
    }

    /// Gives a queue's datagrams to a socket.
    pub(crate) fn give(
        &mut self,
        interface: &str,
        queue: u32,
        socket: &impl AsRawFd,
    ) -> Result<(), OpenError> {
        self.sockets
            .set(queue, socket.as_raw_fd(), 0)
            .map_err(|error| OpenError::at(interface, PORTS_NEED, &error))
    }

    /// Steers what goes to an address. False if the table is full.
    pub(crate) fn steer(&mut self, target: SocketAddrV4) -> bool {
        self.ports.insert(Target::from(target), 0, 0).is_ok()
    }

    /// Leaves what goes to an address to the network stack.
    pub(crate) fn leave(&mut self, target: SocketAddrV4) {
        // An entry that is not there is what is asked for.
        let _ = self.ports.remove(&Target::from(target));
    }
}
