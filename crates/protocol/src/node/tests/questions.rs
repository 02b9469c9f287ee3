//! Questions whether an aggregator is there: who answers, who passes them on, and who gives up on whom.

use super::*;

/// How often a member asks that knows of no loss.
const USUAL_NS: u64 = 200_000_000;

/// An aggregator whose groups are all below others, with the members' questions and the parents' answers.
struct Inner {
    node: Node,
    /// Groups that have lost an aggregator, in the order in which they did.
    lost: Vec<u32>,
}

impl Inner {
    /// Group `i` has the parent `parents[i]`, at port `9 + i`, and two members, at ports `20 + 2i` and behind it.
    fn new(parents: &[&str]) -> Self {
        let mut inner = Self { node: Node::new(limits()), lost: Vec::new() };
        for (id, name) in (0..).zip(parents) {
            inner.install(id, name);
        }
        inner
    }

    fn install(&mut self, id: u32, parent: &str) {
        let parent = ParentConfig {
            name: parent.into(),
            port: PortId(9 + id),
            child: ChildIndex(0),
            capability: capability(7),
        };
        let config = GroupConfig { group: GroupId(id), parent: Some(parent), ..group(2) };
        self.node.install(Time(0), config).unwrap();
        for child in 0..2 {
            self.put(0, Self::port(id, child), Self::edge(id, child), Message::Join);
        }
    }

    fn edge(id: u32, child: u16) -> Edge {
        Edge { group: GroupId(id), ..edge(child) }
    }

    fn port(id: u32, child: u16) -> PortId {
        PortId(20 + 2 * id + u32::from(child))
    }

    /// Takes a frame. The question to the group's parent that follows, if one does.
    fn put(&mut self, at_ns: u64, port: PortId, edge: Edge, message: Message) -> Option<u8> {
        let header = Header { edge, message };
        let node = &mut self.node;
        node.handle_frame(Time(at_ns), port, Carrier::Link, &header, &[], &mut Nowhere).unwrap();
        let (sent, events) = drain(node);
        self.lost.extend(events.iter().filter_map(|event| match event {
            Event::Failed { group, abort, .. } => {
                assert_eq!(abort.reason, AbortReason::NodeLost);
                Some(group.0)
            }
            _ => None,
        }));
        sent.iter().find_map(|(port, header)| match header.message {
            Message::Probe(number) if port.0 < 20 => Some(number),
            _ => None,
        })
    }

    /// Both members of a group ask. The question that is passed on, if one is.
    fn ask(&mut self, id: u32, at_ns: u64) -> Option<u8> {
        let asked = [0, 1].map(|child| {
            let is_there = self.node.groups.get(GroupId(id)).is_some();
            let (port, edge) = (Self::port(id, child), Self::edge(id, child));
            is_there.then(|| self.put(at_ns, port, edge, Message::Probe(3))).flatten()
        });
        assert_ne!(asked.iter().flatten().count(), 2, "one question serves both");
        asked.into_iter().flatten().next()
    }

    fn answer(&mut self, id: u32, at_ns: u64, number: u8) {
        let edge = Edge { capability: capability(7), ..Self::edge(id, 0) };
        self.put(at_ns, PortId(9 + id), edge, Message::Probed(number));
    }

    /// A member says that the tree has lost an aggregator.
    fn lose(&mut self, id: u32) {
        let abort = Abort { reason: AbortReason::NodeLost, at_fault: EndpointId(0) };
        self.put(0, Self::port(id, 0), Self::edge(id, 0), Message::Abort(abort));
        assert_eq!(self.lost.last(), Some(&id));
    }

    /// How many questions a group's parent is asked if its members ask every `every_ns`, `times` times, and `answers` says
    /// which questions the parent answers; and whether the group is still there.
    fn questions(
        &mut self,
        id: u32,
        every_ns: u64,
        times: u64,
        answers: impl Fn(u8) -> bool,
    ) -> (u64, bool) {
        let mut asked = 0;
        for at_ns in (0..times).map(|time| time * every_ns) {
            let question = self.ask(id, at_ns);
            if self.lost.contains(&id) {
                return (asked, false);
            }
            asked += u64::from(question.is_some());
            if let Some(number) = question.filter(|number| answers(*number)) {
                self.answer(id, at_ns, number);
            }
        }
        (asked, true)
    }
}

#[test]
fn a_child_that_waits_for_others_is_told_that_the_node_is_there() {
    let mut node = node_with_children(2);
    put(&mut node, 0, edge(0), request(0, 4)).unwrap();
    put(&mut node, 0, edge(0), Message::Probe(7)).unwrap();
    let answer = Header { edge: edge(0), message: Message::Probed(7) };
    assert_eq!(drain(&mut node).0, [(PortId(0), answer)]);
    // A child that asks and does not read gets no more than its link has room for.
    for number in 0..100 {
        put(&mut node, 0, edge(0), Message::Probe(number)).unwrap();
    }
    assert!(drain(&mut node).0.len() <= 2 * usize::from(OSOS) + 4);
    put(&mut node, 1, edge(1), request(0, 4)).unwrap();
    assert_eq!(drain(&mut node).0.len(), 2, "both get their result");
}

#[test]
fn a_question_is_passed_on_and_a_parent_that_never_answers_is_lost() {
    let questions = |every_ns, times, answers: fn(u8) -> bool| {
        Inner::new(&["above"]).questions(0, every_ns, times, answers)
    };
    assert_eq!(questions(USUAL_NS, 100, |_| false), (7, false));
    assert_eq!(questions(USUAL_NS, 100, |_| true), (100, true));
    assert_eq!(questions(USUAL_NS, 100, |number| number == 6), (100, true));
    // Children that ask more often do not make it less patient.
    assert_eq!(questions(USUAL_NS / 10, 60, |_| false), (6, true));
}

/// Otherwise a program would find one of its communicators stuck after the other.
#[test]
fn a_parent_that_is_lost_to_one_group_is_lost_to_all() {
    let mut inner = Inner::new(&["stuck", "alive", "stuck"]);
    for question in 0..7 {
        assert!(inner.ask(2, question * USUAL_NS).is_some());
    }
    assert_eq!(inner.lost, []);
    assert_eq!(inner.ask(2, 7 * USUAL_NS), None);
    assert_eq!(inner.lost, [0, 2]);
}

/// The group that fails first holds the stream lock, and the next in turn cannot take it, for its child reads nothing.
#[test]
fn a_group_that_fails_while_others_lose_its_parent_is_not_failed_twice() {
    let mut node = Node::new(limits());
    let terms = StreamTerms { chunk_bytes: 16, window: 2 };
    let stream = Some(StreamConfig { tree: TreeId(0), terms });
    let above = |id| Edge { group: GroupId(id), child: ChildIndex(0), ..edge(6) };
    for id in 0..2 {
        let port = PortId(9 + id);
        let (child, capability) = (ChildIndex(0), above(id).capability);
        let parent = Some(ParentConfig { name: "stuck".into(), port, child, capability });
        let config = GroupConfig { group: GroupId(id), parent, stream, ..group(1) };
        node.install(Time(0), config).unwrap();
        put(&mut node, id, streamer(id), Message::Join).unwrap();
        put(&mut node, id, streamer(id), stream_request(1)).unwrap();
        let grant = Message::StreamGrant(OperationNumber(1));
        put(&mut node, 9 + id, above(id), grant).unwrap();
    }
    assert_eq!(node.streams_waiting(), 1);
    let mut ask = |id, question| {
        let header = Header { edge: streamer(id), message: Message::Probe(1) };
        let (at, port) = (Time(question * USUAL_NS), PortId(id));
        node.handle_frame(at, port, Carrier::Link, &header, &[], &mut Nowhere).unwrap();
    };
    // The answers fill the outbox of the second group's child.
    (0..100).for_each(|_| ask(1, 0));
    (0..8).for_each(|question| ask(0, question));
    let failed: Vec<_> = drain(&mut node)
        .1
        .into_iter()
        .filter_map(|event| match event {
            Event::Failed { group, abort, .. } => Some((group.0, abort.reason)),
            _ => None,
        })
        .collect();
    assert_eq!(failed, [(0, AbortReason::NodeLost), (1, AbortReason::MemberLost)]);
}

/// The members below a silent aggregator find it first. In other groups it is this aggregator's parent, and nobody has
/// asked it yet.
#[test]
fn a_loss_in_one_group_makes_the_parents_of_the_others_suspects_until_they_are_heard() {
    let mut inner = Inner::new(&["a", "b"]);
    inner.lose(0);
    assert_eq!(inner.questions(1, USUAL_NS / 2, 100, |_| false), (3, false));

    let mut inner = Inner::new(&["a", "b"]);
    inner.lose(0);
    assert_eq!(inner.ask(1, 0), Some(1));
    inner.answer(1, 0, 1);
    assert_eq!(inner.ask(1, USUAL_NS / 2), None, "whoever has answered is asked as usual");
    // A group that begins behind the loss knows nothing against its parent.
    inner.install(2, "c");
    assert_eq!(inner.questions(2, USUAL_NS, 100, |_| false), (7, false));
}
