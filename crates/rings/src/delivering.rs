//! The program at an interface that delivers datagrams, and its tables.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{Array, ArrayOfMaps, HashMap, IterableMap, MapData, MapError};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::{Ebpf, Pod};

use tributary_af_xdp::{Admission, Destination, RING_BYTES, RINGS_MAX};

use crate::IS_BUILT;
use crate::error::{RINGS_NEED, ServeError};
use crate::hook::Hook;

const OBJECT: &[u8] = tributary_ebpf::object!("deliver.o");

/// As in the program: a flag of maps that a process may map.
const MAPPABLE: u32 = 1 << 10;

/// A process that has rings: its number in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receiver(u32);

/// As in the program.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    word: [u8; 8],
    offset_bytes: u32,
    receiver: u32,
    first: u32,
    others: u32,
}

// SAFETY: numbers without padding between or behind them, and any values are valid.
#[allow(unsafe_code, reason = "the trait is unsafe to implement")]
unsafe impl Pod for Entry {}

type Rings = Array<MapData, [u8; RING_BYTES]>;

/// As the program knows where datagrams go to ([`Destination::to_bytes`]).
type Target = [u8; 20];

/// The program, attached. It is detached when the process ends, however that ends: its link is a file descriptor, and nothing pins it.
pub(crate) struct Program {
    interface: String,
    targets: HashMap<MapData, Target, Entry>,
    rings: ArrayOfMaps<MapData, Rings>,
    /// Rings that nobody maps, in the places of receivers that are not there.
    nobodys: Rings,
    /// By receiver, whether it is there.
    is_taken: Vec<bool>,
    owners: BTreeMap<Destination, Receiver>,
    /// Holds the link.
    _loaded: Ebpf,
}

impl Program {
    pub(crate) fn load(interface: &str, hook: Hook) -> Result<Self, ServeError> {
        if !IS_BUILT {
            return Err(ServeError::NotBuilt);
        }
        let refused = |error: &(dyn std::error::Error + 'static)| {
            ServeError::at(interface, RINGS_NEED, error)
        };
        let mut loaded = Ebpf::load(OBJECT).map_err(|error| refused(&error))?;
        let mut map = |name| loaded.take_map(name).expect("the object has this map");
        let targets = HashMap::try_from(map("TARGETS")).expect("targets are a hash");
        let rings: ArrayOfMaps<_, Rings> =
            ArrayOfMaps::try_from(map("RINGS")).expect("rings are an array of maps");
        let nobodys = new_rings().map_err(|error| refused(&error))?;
        let is_taken = vec![false; rings.len() as usize];
        attach(&mut loaded, interface, hook).map_err(|error| refused(&error))?;
        let interface = interface.to_owned();
        let owners = BTreeMap::new();
        Ok(Self { interface, targets, rings, nobodys, is_taken, owners, _loaded: loaded })
    }

    /// Makes the rings of one more receiver, which it maps.
    pub(crate) fn add_receiver(&mut self) -> Result<(Receiver, OwnedFd), ServeError> {
        let free = self.is_taken.iter().position(|is_taken| !is_taken);
        let free = free.ok_or_else(|| ServeError::Full { interface: self.interface.clone() })?;
        let rings = new_rings().map_err(|error| self.refusal(&error))?;
        let descriptor = rings.map().fd().as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(|error| self.refusal(&error))?;
        self.rings.set(free as u32, &rings, 0).map_err(|error| self.refusal(&error))?;
        self.is_taken[free] = true;
        Ok((Receiver(free as u32), descriptor))
    }

    /// Delivers nothing more to a receiver. What still writes into its rings has ended when this returns.
    pub(crate) fn remove_receiver(&mut self, receiver: Receiver) {
        let is_its = |(_, owner): &(&Destination, &Receiver)| **owner == receiver;
        let targets: Vec<_> =
            self.owners.iter().filter(is_its).map(|(target, _)| *target).collect();
        for target in targets {
            self.leave(receiver, target);
        }
        // The kernel waits for all that have looked up the map that is replaced. A place that can't be cleared is never given again.
        if self.rings.set(receiver.0, &self.nobodys, 0).is_ok() {
            self.is_taken[receiver.0 as usize] = false;
        }
    }

    pub(crate) fn has_receivers(&self) -> bool {
        self.is_taken.contains(&true)
    }

    /// Delivers what goes to `target` into these rings of a receiver: a bit for each, at least one.
    pub(crate) fn enter(
        &mut self,
        receiver: Receiver,
        target: Destination,
        admission: Admission,
        rings: u32,
    ) -> Result<(), ServeError> {
        if self.owners.get(&target).is_some_and(|owner| *owner != receiver) {
            return Err(ServeError::Claimed {
                interface: self.interface.clone(),
                target: target.into(),
            });
        }
        let entry = Entry::new(receiver, admission, rings);
        self.targets
            .insert(target.to_bytes(), entry, 0)
            .map_err(|_| ServeError::Full { interface: self.interface.clone() })?;
        self.owners.insert(target, receiver);
        Ok(())
    }

    /// Leaves what goes to `target` to the network stack again. Does nothing if it is not this receiver's.
    pub(crate) fn leave(&mut self, receiver: Receiver, target: Destination) {
        if self.owners.get(&target) == Some(&receiver) {
            self.owners.remove(&target);
            // What can't be removed goes on to rings that nobody reads, which are full soon and leave the rest to the stack.
            let _ = self.targets.remove(&target.to_bytes());
        }
    }

    fn refusal(&self, error: &(dyn std::error::Error + 'static)) -> ServeError {
        ServeError::at(&self.interface, RINGS_NEED, error)
    }
}

impl Entry {
    fn new(receiver: Receiver, admission: Admission, rings: u32) -> Self {
        let first = rings.trailing_zeros();
        Self {
            word: admission.word,
            offset_bytes: admission.offset_bytes.into(),
            receiver: receiver.0,
            first,
            others: rings & rings.wrapping_sub(1),
        }
    }
}

fn new_rings() -> Result<Rings, MapError> {
    Rings::create(RINGS_MAX as u32, MAPPABLE)
}

fn attach(loaded: &mut Ebpf, interface: &str, hook: Hook) -> Result<(), ProgramError> {
    let mode = match hook {
        Hook::TrafficControl => None,
        Hook::Generic => Some(XdpMode::Skb),
        Hook::Native => Some(XdpMode::Driver),
    };
    let name = if mode.is_none() { "deliver_at_traffic_control" } else { "deliver_by_xdp" };
    let found = loaded.program_mut(name).expect("the object has this program");
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
