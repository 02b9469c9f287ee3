//! Goal: `docs/wire.md` says what the code does. Method: its tables are read and compared with the
//! enums and with encoded frames, in both directions.

use tributary_wire::frame::{
    Abort, AbortReason, Called, Contribution, DecodeError, Disagreement, Edge, HEADER_BYTES,
    Header, MAGIC, Message, Part, Question, REPEATED_BYTES_MAX, REPEATED_HEAD_BYTES,
    RetransmitState, STREAM_BYTES_MAX, Shape, StreamRequest, StreamShape, Target, Versions,
    Waiting,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, EndpointId, Epoch, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence,
};

const PAGE: &str = include_str!("../../../docs/wire.md");

/// The rows of the table below a heading, without its head, as trimmed cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) =
        PAGE.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().expect("a heading has a section");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn code(row: &[&str]) -> u8 {
    row[0].parse().unwrap_or_else(|_| panic!("{row:?} starts with a code"))
}

fn part(target: Target) -> Part {
    Part {
        operation: OperationNumber(0x1111_1111),
        segment: SegmentIndex(0x2222_2222),
        sequence: Sequence(0x3333_3333),
        shape: Shape::new(Operator::Sum, Datatype::F32, 0x101).expect("a sum of floats"),
        target,
        has_data: true,
        retransmit: RetransmitState { attempt: 0x99, behind: 0 },
    }
}

fn encode(message: Message) -> [u8; HEADER_BYTES] {
    let edge = Edge {
        group: GroupId(0x4444_4444),
        epoch: Epoch(0x5555_5555),
        child: ChildIndex(0x6666),
        capability: Capability::from_bytes([0x77; 16]),
        version: Versions::SPOKEN.newest,
    };
    Header { edge, message }.encode()
}

/// The bytes of a field named in the table, by its place there.
fn field<'a>(frame: &'a [u8; HEADER_BYTES], name: &str) -> &'a [u8] {
    let row = table("Header").into_iter().find(|row| row[2] == name).expect("a field of the table");
    let number = |cell: &str| cell.parse::<usize>().expect("a number of bytes");
    let (offset, bytes) = (number(row[0]), number(row[1]));
    &frame[offset..offset + bytes]
}

#[test]
fn fields_lie_where_the_table_says() {
    let frame = encode(Message::Request(part(Target::Member(EndpointId(0x0888_8888)))));
    let expected: [(&str, &[u8]); 19] = [
        ("magic", &MAGIC),
        ("version", &[Versions::SPOKEN.newest.0]),
        ("kind", &[3]),
        ("has data", &[1]),
        ("reason", &[0]),
        ("payload bytes", &(4 * 0x101_u32).to_le_bytes()),
        ("group", &[0x44; 4]),
        ("epoch", &[0x55; 4]),
        ("operation", &[0x11; 4]),
        ("segment", &[0x22; 4]),
        ("sequence", &[0x33; 4]),
        ("elements", &0x101_u32.to_le_bytes()),
        ("member", &0x0888_8888_u32.to_le_bytes()),
        ("target", &[2]),
        ("datatype", &[Datatype::F32.code()]),
        ("operator", &[Operator::Sum.code()]),
        ("attempt", &[0x99]),
        ("child", &[0x66; 2]),
        ("capability", &[0x77; 16]),
    ];
    for (name, bytes) in expected {
        assert_eq!(field(&frame, name), bytes, "{name}");
    }
    assert_eq!(field(&encode(message("result")), "detail"), [0xAA; 2]);
    assert_eq!(table("Header").len(), expected.len() + 1, "and the detail");
}

#[test]
fn fields_fill_the_header_without_gap_or_overlap() {
    let mut end = 0;
    for row in table("Header") {
        assert_eq!(row[0].parse(), Ok(end), "{row:?} follows what is before it");
        end += row[1].parse::<usize>().unwrap();
    }
    assert_eq!(end, HEADER_BYTES);
}

const CALLED: Called = Called { collective: 3, operator: Operator::Sum, datatype: Datatype::F64 };

const QUESTION: Question = Question { operation: OperationNumber(3), level: 2, of: Some(6) };

fn message(kind: &str) -> Message {
    let abort = Abort { reason: AbortReason::Misbehaved, at_fault: EndpointId(9) };
    match kind {
        "join" => Message::Join,
        "joined" => Message::Joined,
        "request" => Message::Request(part(Target::Member(EndpointId(5)))),
        "result" => {
            let mut part = part(Target::Member(EndpointId(5)));
            part.retransmit.behind = 0xAAAA;
            Message::Result(part)
        }
        "datagrams" => Message::Datagrams(core::num::NonZeroU16::new(0xBBBB)),
        "probe" => Message::Probe(3),
        "probed" => Message::Probed(4),
        "ack" => Message::Ack { sequence: Sequence(0xCCCC_CCCC), attempt: 5 },
        "subscribed" => Message::Subscribed(tributary_wire::frame::Subscription::Here),
        "nack" => Message::Nack { sequence: Sequence(0xDDDD_DDDD) },
        "abort" => Message::Abort(abort),
        "leave" => Message::Leave,
        "stream request" => Message::StreamRequest(StreamRequest {
            operation: OperationNumber(3),
            shape: StreamShape::new(Operator::Sum, Datatype::F64, 1 << 28).expect("2 GiB"),
            target: Target::Member(EndpointId(5)),
        }),
        "stream grant" => Message::StreamGrant(OperationNumber(3)),
        "chunk" => Message::Chunk(part(Target::Member(EndpointId(5)))),
        "chunk result" => Message::ChunkResult(part(Target::Member(EndpointId(5)))),
        "stream done" => Message::StreamDone(OperationNumber(3)),
        "waiting" => Message::Waiting(Waiting {
            operation: OperationNumber(3),
            called: CALLED,
            digest: 0xEEEE_EEEE,
        }),
        "disagreement" => Message::Disagreement(Disagreement {
            members: [EndpointId(5), EndpointId(6)],
            called: [CALLED; 2],
        }),
        "contribution" => Message::Contribution(Contribution {
            part: part(Target::Member(EndpointId(5))),
            repeated_bytes: 40,
        }),
        "level sum" => Message::LevelSum(part(Target::Member(EndpointId(5)))),
        "passed" => Message::Passed { part: part(Target::Member(EndpointId(5))), of: 6 },
        "ask" => Message::Ask(QUESTION),
        "not yet" => Message::NotYet(QUESTION),
        "ask for sum" => Message::AskForSum { operation: OperationNumber(3), level: 2 },
        "departure" => Message::Departure { before: OperationNumber(3), level: 2 },
        "farewell" => Message::Farewell { level: 2 },
        other => panic!("{other} is no kind"),
    }
}

#[test]
fn kinds_have_their_codes_and_set_their_fields_only() {
    let rows = table("Kinds");
    assert_eq!(rows.len(), 27);
    let common = ["magic", "version", "kind", "group", "epoch", "child", "capability"];
    let parts = "operation segment sequence elements target datatype operator has-data payload-bytes attempt";
    for row in &rows {
        let frame = encode(message(row[1]));
        assert_eq!(field(&frame, "kind"), [code(row)], "{row:?}");
        for field_row in table("Header").into_iter() {
            let name = field_row[2];
            let is_of_part = parts.split(' ').any(|it| it.replace('-', " ") == name);
            let is_set = common.contains(&name)
                || row[4].split(", ").any(|it| it == name)
                || (row[4].starts_with("part") && is_of_part);
            assert_eq!(field(&frame, name).iter().any(|it| *it != 0), is_set, "{} {name}", row[2]);
            if !is_set {
                let mut bytes = frame;
                bytes[field_row[0].parse::<usize>().unwrap()] = 1;
                assert!(Header::decode(&bytes).is_err(), "{} with {name}", row[1]);
            }
        }
    }
    let known: Vec<u8> = rows.iter().map(|row| code(row)).collect();
    for kind in (0..=255).filter(|kind| !known.contains(kind)) {
        let mut bytes = encode(Message::Join);
        bytes[5] = kind;
        assert_eq!(Header::decode(&bytes), Err(DecodeError::UnknownKind(kind)));
    }
}

#[test]
fn targets_have_their_codes_and_all_others_are_refused() {
    let defined: Vec<_> = table("Targets").into_iter().filter(|it| it[2] != "reserved").collect();
    assert_eq!(defined.len(), 5);
    for target in 0..=255 {
        let mut bytes = encode(Message::Request(part(Target::All)));
        bytes[40] = target;
        let name = match Header::decode(&bytes).map(|header| header.message) {
            Ok(Message::Request(Part { target: Target::All, .. })) => "all",
            Ok(Message::Request(Part { target: Target::Member(_), .. })) => "member",
            Ok(Message::Request(Part { target: Target::ExternalReceiver, .. })) => {
                "external receiver"
            }
            Ok(Message::Request(Part { target: Target::AllAndExternalReceiver, .. })) => {
                "all and external receiver"
            }
            Ok(Message::Request(Part { target: Target::MemberAndExternalReceiver(_), .. })) => {
                "member and external receiver"
            }
            Err(DecodeError::UnknownTarget(it)) if it == target => "",
            other => panic!("target {target}: {other:?}"),
        };
        let row = defined.iter().find(|row| code(row) == target);
        assert_eq!(name, row.map_or("", |row| row[1]), "target {target}");
    }
}

#[test]
fn streams_are_refused_the_targets_that_the_page_names() {
    assert!(PAGE.contains("targets 3, 5 and 6 in a stream request are refused"));
    for (target, is_refused) in [(1, false), (2, false), (3, true), (5, true), (6, true)] {
        let shape = StreamShape::new(Operator::Sum, Datatype::U8, 40).unwrap();
        let operation = OperationNumber::FIRST;
        let request = StreamRequest { operation, shape, target: Target::All };
        let mut bytes = encode(Message::StreamRequest(request));
        bytes[40] = target;
        let refusal = Header::decode(&bytes).err();
        assert_eq!(refusal, is_refused.then_some(DecodeError::StreamTarget(target)));
    }
}

#[test]
fn datatypes_have_their_codes_names_and_sizes() {
    let rows = table("Datatypes");
    assert_eq!(rows.len(), Datatype::ALL.len());
    for (row, datatype) in rows.iter().zip(Datatype::ALL) {
        assert_eq!((code(row), row[1]), (datatype.code(), datatype.name()));
        assert_eq!(row[2].parse(), Ok(datatype.size_bytes()), "{row:?}");
    }
}

#[test]
fn operators_have_their_codes_names_and_domains() {
    let rows = table("Operators");
    assert_eq!(rows.len(), Operator::ALL.len());
    for (row, operator) in rows.iter().zip(Operator::ALL) {
        assert_eq!((code(row), row[1]), (operator.code(), operator.name()));
        for datatype in Datatype::ALL {
            let is_defined = match row[2] {
                "numbers" => !datatype.is_pair(),
                "ordered numbers" => !datatype.is_pair() && !datatype.is_complex(),
                "pairs" => datatype.is_pair(),
                "integers" => datatype.is_integer(),
                "everything" => true,
                "nothing" => false,
                other => panic!("{other} is no set of datatypes"),
            };
            assert_eq!(operator.applies_to(datatype), is_defined, "{row:?} {}", datatype.name());
        }
    }
}

#[test]
fn abort_reasons_have_their_codes_and_words() {
    let rows = table("Abort reasons");
    assert_eq!(rows.len(), AbortReason::ALL.len());
    for (row, reason) in rows.iter().zip(AbortReason::ALL) {
        assert_eq!((code(row), row[1]), (reason as u8, reason.to_string().as_str()));
    }
}

#[test]
fn limits_and_starts_are_the_stated_ones() {
    assert!(PAGE.contains("1,048,576 bytes"));
    assert_eq!(tributary_wire::frame::PAYLOAD_BYTES_MAX, 1_048_576);
    assert!(PAGE.contains("a head of 8 bytes"));
    assert_eq!(REPEATED_HEAD_BYTES, 8);
    assert!(PAGE.contains("no longer than 64 bytes"));
    assert_eq!(REPEATED_BYTES_MAX, 64);
    assert!(PAGE.contains("up to 2 GiB"));
    assert_eq!(STREAM_BYTES_MAX, 2 << 30);
    assert!(PAGE.contains("starts 64 before 2^32"));
    assert_eq!(Sequence::FIRST.0, u32::MAX - 63);
    assert_eq!(OperationNumber::FIRST.0, u32::MAX - 63);
}
