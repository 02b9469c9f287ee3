//! Goal: a host that lacks the last result when the tree is lost gets it from one that has it, and has left. Method: hosts are
//! threads; their aggregator is one that gives the result to some, waits until these have left, and goes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;

use tributary_algorithms::CollectiveKind;
use tributary_transport::{Link as _, Listener as _, Sent, TcpAcceptor, TcpLink, TcpOptions};
use tributary_wire::control::{EndpointGrant, GroupGrant, NodeAddress};
use tributary_wire::frame::{Header, Message, Part, Versions};
use tributary_wire::{Capability, ChildIndex, Datatype, Epoch, GroupId, Operator};

use super::*;
use crate::direct::{Identity, Listener};
use crate::kernels::kernel;
use crate::tree::Approach;
use tributary_algorithms::Collective;
use tributary_settings::{ChannelChoice, TransportChoice};

const HOSTS: u32 = 3;
const WATCHDOG: Duration = Duration::from_secs(60);

/// What the aggregator does with the result, and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// These hosts have it, one bit each, and leave; the aggregator dies.
    DiesBehind(u32),
    /// These hosts have it, and the aggregator dies before they leave: the round that brought the result found that out.
    DiesBefore(u32),
    /// All have it and leave; it says so, and they go.
    InOrder,
}

fn grant(aggregator: SocketAddr) -> GroupGrant {
    let endpoint = |host: u32| EndpointGrant {
        endpoint: EndpointId(host),
        address: NodeAddress {
            tcp: aggregator.to_string(),
            machine: "elsewhere".to_owned(),
            shm: None,
        },
        child: ChildIndex(host as u16),
        capability: Capability::from_bytes([host as u8 + 1; 16]),
    };
    GroupGrant {
        group: GroupId(1),
        epoch: Epoch(2),
        frame_version: Versions::SPOKEN.newest,
        osos: 4,
        payload_max_bytes: 1000,
        stream: None,
        in_kernel: false,
        endpoints: (0..HOSTS).map(endpoint).collect(),
        multicast: None,
        external_receiver: None,
        key: None,
    }
}

/// A link of the aggregator, and what it has to know of the member there.
struct Child {
    link: TcpLink,
    request: Option<(Header, Part)>,
    has_left: bool,
}

impl Child {
    fn say(&mut self, header: Header, message: Message, payload: &[u8]) {
        let header = Header { message, ..header };
        assert_eq!(self.link.send(&header.encode(), payload), Ok(Sent::Taken));
    }

    /// Says that all have left, and waits until the member has closed its link, which it keeps until then.
    fn end(&mut self) {
        assert!(matches!(self.link.receive(), Ok(None)), "it has left and stays");
        let (header, _) = self.request.expect("all have requested");
        self.say(header, Message::Leave, &[]);
        while self.link.receive().is_ok() {
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Takes what has come; adds a contribution to `sum`.
    fn take(&mut self, sum: &mut u64) {
        while let Ok(Some(frame)) = self.link.receive() {
            let header = frame.header;
            match header.message {
                Message::Join => self.say(header, Message::Joined, &[]),
                Message::Request(part) => {
                    *sum += u64::from_le_bytes(frame.payload.try_into().expect("one element"));
                    self.request = Some((header, part));
                }
                Message::Probe(number) => self.say(header, Message::Probed(number), &[]),
                Message::Leave => self.has_left = true,
                other => panic!("{other:?} is not to be expected"),
            }
        }
    }
}

fn aggregate(mut acceptor: TcpAcceptor, ending: Ending) {
    let mut children: Vec<Child> = Vec::new();
    let (mut sum, mut is_served) = (0, false);
    let has_result = |child: &Child| match (ending, child.request) {
        (Ending::DiesBehind(hosts) | Ending::DiesBefore(hosts), Some((header, _))) => {
            hosts >> header.edge.child.0 & 1 == 1
        }
        (ending, _) => ending == Ending::InOrder,
    };
    loop {
        while let Ok(Some(link)) = acceptor.accept(std::time::Instant::now()) {
            children.push(Child { link, request: None, has_left: false });
        }
        children.iter_mut().for_each(|child| child.take(&mut sum));
        let requests = children.iter().filter(|child| child.request.is_some()).count();
        if requests == HOSTS as usize && !is_served {
            is_served = true;
            for child in children.iter_mut().filter(|child| has_result(child)) {
                let (header, part) = child.request.expect("all have requested");
                child.say(header, Message::Result(part), &sum.to_le_bytes());
            }
        }
        let mut served = children.iter().filter(|it| has_result(it));
        let may_die = matches!(ending, Ending::DiesBefore(_));
        if is_served && (may_die || served.all(|child| child.has_left)) {
            if ending == Ending::InOrder {
                children.iter_mut().for_each(Child::end);
            }
            return;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// A host's part: one sum, and leaving.
fn run_host(mut tree: FailoverTree, host: u32, ending: Ending) -> Result<u64, Abort> {
    let (source, mut target) = (u64::from(host) + 1, 0_u64);
    let operation = InterHostOperation {
        collective: Collective::Allreduce,
        called: CollectiveKind::Allreduce,
        operator: Operator::Sum,
        datatype: Datatype::U64,
        elements: 1,
        element_bytes: 8,
        kernel: kernel(Operator::Sum, Datatype::U64),
        source: std::ptr::from_ref(&source).cast(),
        target: std::ptr::from_mut(&mut target).cast(),
        ..InterHostOperation::BARRIER
    };
    // SAFETY: both numbers live until the operation is over.
    unsafe { tree.start(&operation)? };
    while !tree.poll()? {
        tree.sleep(Duration::from_millis(5));
        tree.check();
    }
    if let (State::InTree(member), Ending::DiesBefore(_)) = (&mut tree.state, ending) {
        member.pump_until_gone();
    }
    tree.leave();
    Ok(target)
}

/// What the hosts have in the end.
fn run(ending: Ending) -> Vec<Result<u64, Abort>> {
    let options = TcpOptions::new(1000).expect("a length within bounds");
    let acceptor = TcpAcceptor::bind((Ipv4Addr::LOCALHOST, 0).into(), options).expect("a port");
    let grant = grant(acceptor.address().expect("it has one"));
    let aggregator = thread::spawn(move || aggregate(acceptor, ending));
    let listen = |_| Listener::bind(Ipv4Addr::LOCALHOST.into(), None).expect("a port");
    let listeners: Vec<_> = (0..HOSTS).map(listen).collect();
    let addresses: Vec<_> = listeners.iter().map(|(_, address)| *address).collect();
    let (report, reports) = mpsc::channel();
    for ((listener, _), host) in listeners.into_iter().zip(0..) {
        let (grant, addresses, report) = (grant.clone(), addresses.clone(), report.clone());
        thread::spawn(move || {
            let approach = Approach {
                transport: TransportChoice::Tcp,
                channel: ChannelChoice::Tcp,
                bypass: None,
            };
            let identity = Identity::from_bytes([9; Identity::BYTES], false);
            let links = DirectLinks::new(host, identity, listener, addresses);
            let member = TreeMember::enter(&grant, host, &approach, "here", None).expect("a place");
            let terms = Terms {
                approach,
                machine: "here".to_owned(),
                stream_min_bytes: None,
                stream: None,
                osos_max: 4,
            };
            let request: Request = Arc::new(|| Err("there is no manager".to_owned()));
            let alarm = Alarm::new().expect("descriptors");
            let tree = FailoverTree::new(member, links, terms, request, alarm);
            report.send((host, run_host(tree, host, ending))).expect("the test waits");
        });
    }
    let mut results = vec![None; HOSTS as usize];
    for _ in 0..HOSTS {
        let (host, result) = reports.recv_timeout(WATCHDOG).expect("every host comes to an end");
        results[host as usize] = Some(result);
    }
    aggregator.join().expect("the aggregator expects what comes");
    results.into_iter().map(|result| result.expect("each has reported")).collect()
}

#[test]
fn a_host_that_has_left_supplies_the_last_result() {
    for hosts in 1..(1 << HOSTS) - 1 {
        assert_eq!(run(Ending::DiesBehind(hosts)), [Ok(6); 3], "hosts {hosts:03b} had it");
    }
}

#[test]
fn a_host_that_finds_the_tree_lost_with_the_last_result_supplies_it() {
    for hosts in 1..(1 << HOSTS) - 1 {
        assert_eq!(run(Ending::DiesBefore(hosts)), [Ok(6); 3], "hosts {hosts:03b} had it");
    }
}

#[test]
fn a_host_that_has_left_goes_once_all_have() {
    assert_eq!(run(Ending::InOrder), [Ok(6); 3]);
}
