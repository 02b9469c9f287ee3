//! Goal: peers of the same wire version understand each other, whenever they were built. Method: the bytes of every
//! kind of frame are kept in `frames.txt`. What is there never changes within a version; what is new is added with
//! `TRIBUTARY_BLESS=1`.

use std::fmt::Write as _;
use std::num::NonZeroU16;
use std::path::Path;

use tributary_wire::frame::{
    Abort, AbortReason, Called, Contribution, Disagreement, Edge, Header, Message, Part, Question,
    RetransmitState, Shape, StreamRequest, StreamShape, Subscription, Target, Versions, Waiting,
    announcing_code,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, EndpointId, Epoch, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence,
};

const KEPT: &str = include_str!("frames.txt");

const TARGETS: [(&str, Target); 5] = [
    ("all", Target::All),
    ("member", Target::Member(EndpointId(0x2122_2324))),
    ("external-receiver", Target::ExternalReceiver),
    ("all-and-external-receiver", Target::AllAndExternalReceiver),
    ("member-and-external-receiver", Target::MemberAndExternalReceiver(EndpointId(0x3132_3334))),
];

fn part(operator: Operator, datatype: Datatype, target: Target, has_data: bool) -> Part {
    Part {
        operation: OperationNumber(0xFFFF_FF01),
        segment: SegmentIndex(0x0102_0304),
        sequence: Sequence(0xFFFF_FF0A),
        shape: Shape::new(operator, datatype, 6).expect("six elements are few"),
        target,
        has_data,
        retransmit: RetransmitState { attempt: 3, behind: 0 },
    }
}

fn sum(target: Target, has_data: bool) -> Part {
    part(Operator::Sum, Datatype::F64, target, has_data)
}

/// One of every kind of message, and of every value that a field with few values has.
fn messages() -> Vec<(String, Message)> {
    let mut all: Vec<(String, Message)> = Vec::new();
    let mut add = |name: &str, message| all.push((name.to_owned(), message));
    add("join", Message::Join);
    add("joined", Message::Joined);
    add("leave", Message::Leave);
    add("datagrams", Message::Datagrams(NonZeroU16::new(0x1D2E)));
    add("datagrams none", Message::Datagrams(None));
    add("probe", Message::Probe(7));
    add("probed", Message::Probed(7));
    add("ack", Message::Ack { sequence: Sequence(0xFFFF_FF0A), attempt: 3 });
    add("nack", Message::Nack { sequence: Sequence(0xFFFF_FF0A) });
    let operation = OperationNumber(0xFFFF_FF01);
    add("stream-grant", Message::StreamGrant(operation));
    add("stream-done", Message::StreamDone(operation));
    for subscription in Subscription::ALL {
        add(&format!("subscribed {subscription:?}"), Message::Subscribed(subscription));
    }
    for reason in AbortReason::ALL {
        let abort = Abort { reason, at_fault: EndpointId(0x4142_4344) };
        add(&format!("abort {reason:?}"), Message::Abort(abort));
    }
    for (name, target) in TARGETS {
        add(&format!("request to {name}"), Message::Request(sum(target, true)));
    }
    let nothing = part(Operator::Broadcast, Datatype::U8, Target::All, false);
    add("request without data", Message::Request(nothing));
    let behind = RetransmitState { attempt: 255, behind: 0x0506 };
    let late = Part { retransmit: behind, ..sum(Target::All, true) };
    add("result", Message::Result(late));
    add("result without data", Message::Result(sum(Target::All, false)));
    let chunk = Part { retransmit: RetransmitState::default(), ..sum(Target::All, true) };
    add("chunk", Message::Chunk(chunk));
    add("chunk-result", Message::ChunkResult(chunk));
    let shape = StreamShape::new(Operator::Sum, Datatype::F64, 0x0807_0605).expect("1 GiB");
    let request = StreamRequest { operation, shape, target: Target::All };
    add("stream-request", Message::StreamRequest(request));
    let [one, other] = [(3, Operator::Broadcast, Datatype::U8), (1, Operator::Max, Datatype::F64)]
        .map(|(collective, operator, datatype)| Called { collective, operator, datatype });
    add("waiting", Message::Waiting(Waiting { operation, called: one, digest: 0x5152_5354 }));
    let members = [EndpointId(0x6162_6364), EndpointId(0x6566_6768)];
    let disagreement = Disagreement { members, called: [one, other] };
    add("disagreement", Message::Disagreement(disagreement));
    let own = sum(Target::Member(EndpointId(0x7172_7374)), true);
    for (name, repeated_bytes) in [("contribution", 0), ("contribution and the one before", 72)] {
        add(name, Message::Contribution(Contribution { part: own, repeated_bytes }));
    }
    add("level sum", Message::LevelSum(own));
    add("passed", Message::Passed { part: own, of: 63 });
    for (name, of) in [("its own", None), ("that of a dead one", Some(63))] {
        let question = Question { operation, level: 2, of };
        add(&format!("ask for {name}"), Message::Ask(question));
        add(&format!("not yet {name}"), Message::NotYet(question));
    }
    add("ask for sum", Message::AskForSum { operation, level: 2 });
    add("departure", Message::Departure { before: operation, level: 2 });
    add("farewell", Message::Farewell { level: 2 });
    for operator in Operator::ALL {
        for datatype in Datatype::ALL {
            if Shape::new(operator, datatype, 6).is_ok() {
                let part = part(operator, datatype, Target::All, true);
                add(&format!("request {operator:?} {datatype:?}"), Message::Request(part));
            }
        }
    }
    all
}

fn header(message: Message) -> Header {
    let edge = Edge {
        group: GroupId(0x5152_5354),
        epoch: Epoch(0x6162_6364),
        child: ChildIndex(0x7172),
        capability: Capability::from_bytes(*b"0123456789abcdef"),
        version: Versions::SPOKEN.newest,
    };
    Header { edge, message }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings take all");
        text
    })
}

/// A line for every frame.
fn lines() -> Vec<String> {
    let mut lines: Vec<String> = messages()
        .into_iter()
        .map(|(name, message)| {
            let bytes = header(message).encode();
            assert_eq!(Header::decode(&bytes), Ok(header(message)), "{name} is read");
            format!("{name}: {}", hex(&bytes))
        })
        .collect();
    let authenticated = announcing_code(header(Message::Join).encode());
    lines.push(format!("join with a code: {}", hex(&authenticated)));
    lines
}

#[test]
fn frames_have_the_bytes_that_they_had() {
    let now = lines();
    let version = Versions::SPOKEN.newest;
    let first = format!("version {version}");
    let kept: Vec<&str> = KEPT.lines().collect();
    let is_same_version = kept.first() == Some(&first.as_str());
    let changed = || kept.iter().skip(1).filter(|line| !now.iter().any(|it| it == *line));
    if is_same_version {
        assert_eq!(
            changed().count(),
            0,
            "changed within version {version}: {:?}",
            changed().next()
        );
    }
    let text =
        std::iter::once(&first).chain(&now).map(|line| format!("{line}\n")).collect::<String>();
    if std::env::var_os("TRIBUTARY_BLESS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frames.txt");
        std::fs::write(path, text).expect("the sources can be written");
    } else {
        assert_eq!(KEPT, text, "add what is new with TRIBUTARY_BLESS=1");
    }
}
