//! A fabric, calls to its manager, and members that speak raw frames.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tributary_daemon::embedded::{Fabric, FabricOptions};
use tributary_transport::{
    AuthenticationKey, Link, ReceiveError, Sent, ShmOptions, TcpOptions, connect_shm, connect_tcp,
    machine,
};
use tributary_wire::control::{
    EndpointGrant, GroupGrant, GroupRequest, JobAdmission, JobPlace, JobRequest, Refusal, Status,
};
use tributary_wire::frame::{
    Abort, Edge, Header, Message, Part, RetransmitState, Shape, Target, Versions,
};
use tributary_wire::{Datatype, OperationNumber, Operator, SegmentIndex, Sequence, StreamTerms};

/// No test takes nearly so long unless it hangs.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs a test that could hang, and fails it if it does.
pub(crate) fn guarded(test: impl FnOnce() + Send + 'static) {
    let filter = tracing_subscriber::EnvFilter::from_env("TRIBUTARY_LOG");
    // The first test of the process decides for all.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let (done, finished) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    let second = Duration::from_secs(1);
    let is_late = |_| finished.recv_timeout(second) == Err(mpsc::RecvTimeoutError::Timeout);
    assert!(!(0..2 * WATCHDOG.as_secs()).all(is_late), "stuck for {:?}", 2 * WATCHDOG);
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Polls until `condition` holds. Polls are counted and not time: this process may get no core for long, and
/// then has been given no chance.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let pause = Duration::from_millis(2);
    for _ in 0..WATCHDOG.as_millis() / pause.as_millis() {
        if condition() {
            return;
        }
        thread::sleep(pause);
    }
    panic!("never: {what}");
}

pub(crate) fn fabric(hosts: u32, leaves: u16) -> Fabric {
    Fabric::start(&FabricOptions { hosts, leaves, ..FabricOptions::default() }).unwrap()
}

/// Names of the hosts that the machine acts as.
pub(crate) fn hosts(count: u32) -> Vec<String> {
    (0..count).map(|index| format!("{}#{index}", machine::name())).collect()
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

pub(crate) fn token(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// One HTTP call over a new connection, written by hand so that client and server share no code.
pub(crate) fn call(
    address: SocketAddr,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> Answer {
    let mut stream = send(address, token, method, path, body, "close");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
        unchunk(body)
    } else {
        body.to_owned()
    };
    Answer { status, body }
}

/// The status that answers a body too long to be read completely; `None` if the connection was
/// closed before the status could be read.
pub(crate) fn call_with_long_body(address: SocketAddr, token: &str, body: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    let length = body.len();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server may stop reading, and close, at any point.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1)?.parse().ok()
}

fn unchunk(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        text = rest[length..].trim_start_matches("\r\n");
    }
    whole
}

fn send(
    address: SocketAddr,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
    connection: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    let authorization =
        token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: manager\r\nConnection: {connection}\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// A job, for as long as its lease is held.
pub(crate) struct Job {
    pub(crate) admission: JobAdmission,
    manager: SocketAddr,
    token: String,
    _lease: BufReader<TcpStream>,
}

impl Job {
    pub(crate) fn admit(fabric: &Fabric) -> Self {
        Self::admit_at(fabric.manager(), &token(fabric.token_file()))
    }

    pub(crate) fn admit_at(manager: SocketAddr, token: &str) -> Self {
        Self::admit_with(manager, token, None)
    }

    pub(crate) fn resume_at(manager: SocketAddr, token: &str, place: JobPlace) -> Self {
        Self::admit_with(manager, token, Some(place))
    }

    fn admit_with(manager: SocketAddr, token: &str, resume: Option<JobPlace>) -> Self {
        let request = JobRequest { name: "test".into(), processes: 4, resume };
        let body = serde_json::to_string(&request).unwrap();
        let stream = send(manager, Some(token), "POST", "/v1/jobs", &body, "keep-alive");
        let mut lease = BufReader::new(stream);
        let mut line = String::new();
        while !line.starts_with('{') {
            line.clear();
            assert_ne!(lease.read_line(&mut line).unwrap(), 0, "the manager closed the lease");
        }
        let admission = serde_json::from_str(&line).unwrap();
        Self { admission, manager, token: token.to_owned(), _lease: lease }
    }

    pub(crate) fn request(&self, hosts: &[String], osos: u16, payload_max_bytes: u32) -> Answer {
        self.request_with(hosts, osos, payload_max_bytes, None, false)
    }

    /// A group with a place for a process outside it.
    pub(crate) fn watched_group(&self, hosts: &[String]) -> GroupGrant {
        let answer = self.request_with(hosts, 2, 64, None, true);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// A group that may stream.
    pub(crate) fn streaming_group(&self, hosts: &[String], terms: StreamTerms) -> GroupGrant {
        let answer = self.request_with(hosts, 4, 1024, Some(terms), false);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// What comes of showing the job's secret with another token.
    pub(crate) fn request_with_token(&self, token: &str, hosts: &[String]) -> Answer {
        let path = format!("/v1/jobs/{}/groups", self.admission.job);
        let body = serde_json::to_string(&self.wanted(hosts, 1, 1024)).unwrap();
        call(self.manager, Some(token), "POST", &path, &body)
    }

    /// What comes of asking for a group of processes that speak these versions of frames.
    pub(crate) fn request_speaking(&self, frame_versions: Versions, hosts: &[String]) -> Answer {
        self.post("groups", &GroupRequest { frame_versions, ..self.wanted(hosts, 4, 1024) })
    }

    fn wanted(&self, hosts: &[String], osos: u16, payload_max_bytes: u32) -> GroupRequest {
        GroupRequest {
            secret: self.admission.secret,
            label: "world".into(),
            hosts: hosts.to_vec(),
            frame_versions: Versions::SPOKEN,
            osos,
            payload_max_bytes,
            stream: None,
            external_receiver: false,
        }
    }

    fn request_with(
        &self,
        hosts: &[String],
        osos: u16,
        payload_max_bytes: u32,
        stream: Option<StreamTerms>,
        external_receiver: bool,
    ) -> Answer {
        let wanted = self.wanted(hosts, osos, payload_max_bytes);
        self.post("groups", &GroupRequest { stream, external_receiver, ..wanted })
    }

    pub(crate) fn group(&self, hosts: &[String], osos: u16, payload_max_bytes: u32) -> GroupGrant {
        let answer = self.request(hosts, osos, payload_max_bytes);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    pub(crate) fn refusal(&self, hosts: &[String], osos: u16, payload_max_bytes: u32) -> Refusal {
        let answer = self.request(hosts, osos, payload_max_bytes);
        assert_ne!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn post(&self, what: &str, body: &impl Serialize) -> Answer {
        let path = format!("/v1/jobs/{}/{what}", self.admission.job);
        let body = serde_json::to_string(body).unwrap();
        call(self.manager, Some(&self.token), "POST", &path, &body)
    }
}

pub(crate) fn status(fabric: &Fabric) -> Status {
    let token = token(fabric.token_file());
    let answer = call(fabric.manager(), Some(&token), "GET", "/v1/status", "");
    assert_eq!(answer.status, 200);
    answer.json()
}

/// One metric of an aggregator, summed over its labels that contain `label`.
pub(crate) fn metric(fabric: &Fabric, node: &str, name: &str, label: &str) -> f64 {
    let token = token(fabric.token_file());
    let address = fabric.metrics_address(node).unwrap();
    let answer = call(address, Some(&token), "GET", "/metrics", "");
    assert_eq!(answer.status, 200);
    let values = answer.body.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && line.contains(label)
    });
    let mut found = false;
    let sum = values
        .map(|line| {
            found = true;
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        })
        .sum();
    assert!(found, "no {name} with {label} in:\n{}", answer.body);
    sum
}

/// How a member reaches its aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    Shm,
}

/// A member of a group that speaks raw frames.
pub(crate) struct Member {
    pub(crate) link: Box<dyn Link>,
    pub(crate) edge: Edge,
    /// The key of its frames, where the fabric authenticates them.
    pub(crate) key: Option<AuthenticationKey>,
    next: u32,
}

/// Why no frame was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Aborted(Abort),
    Closed,
}

pub(crate) fn connect(
    grant: &EndpointGrant,
    payload_max_bytes: u32,
    way: Way,
    key: Option<AuthenticationKey>,
) -> Box<dyn Link> {
    match way {
        Way::Tcp => {
            let options = TcpOptions::new(payload_max_bytes).unwrap();
            let address = grant.address.tcp.parse().unwrap();
            let mut link = connect_tcp(address, options, WATCHDOG).unwrap();
            if let Some(key) = key {
                link.authenticate(key);
            }
            Box::new(link)
        }
        Way::Shm => {
            let options = ShmOptions::new(payload_max_bytes).unwrap();
            let path = grant.address.shm.as_ref().unwrap();
            Box::new(connect_shm(path.as_ref(), options, WATCHDOG).unwrap())
        }
    }
}

pub(crate) fn edge(group: &GroupGrant, index: usize) -> Edge {
    let grant = &group.endpoints[index];
    Edge {
        group: group.group,
        epoch: group.epoch,
        child: grant.child,
        capability: grant.capability,
        version: group.frame_version,
    }
}

impl Member {
    /// Joins, and waits for the place.
    pub(crate) fn join(group: &GroupGrant, index: usize, way: Way) -> Self {
        let chunk_bytes = group.stream.map_or(0, |terms| terms.chunk_bytes);
        let payload_max_bytes = group.payload_max_bytes.max(chunk_bytes);
        let key = group.key.map(AuthenticationKey::new);
        let link = connect(&group.endpoints[index], payload_max_bytes, way, key);
        let mut member = Self { link, edge: edge(group, index), key, next: 0 };
        member.say(Message::Join, &[]);
        let (joined, _) = member.receive().expect("a place");
        assert_eq!(joined.message, Message::Joined);
        member
    }

    pub(crate) fn say(&mut self, message: Message, payload: &[u8]) {
        let header = Header { edge: self.edge, message }.encode();
        let until = Instant::now() + WATCHDOG;
        while self.link.send(&header, payload).unwrap() == Sent::Full {
            assert!(Instant::now() < until, "the link stays full");
            thread::sleep(Duration::from_micros(100));
        }
        while self.link.flush().unwrap() == Sent::Full {
            assert!(Instant::now() < until, "the link stays full");
            thread::sleep(Duration::from_micros(100));
        }
    }

    pub(crate) fn receive(&mut self) -> Result<(Header, Vec<u8>), End> {
        self.receive_waiting(|| thread::sleep(Duration::from_micros(100)))
    }

    fn receive_waiting(&mut self, wait: impl Fn()) -> Result<(Header, Vec<u8>), End> {
        let until = Instant::now() + WATCHDOG;
        loop {
            match self.link.receive() {
                Ok(Some(frame)) => {
                    if let Message::Abort(abort) = frame.header.message {
                        return Err(End::Aborted(abort));
                    }
                    return Ok((frame.header, frame.payload.to_vec()));
                }
                Ok(None) => {}
                Err(ReceiveError::Closed) => return Err(End::Closed),
                Err(error) => panic!("{error}"),
            }
            assert!(Instant::now() < until, "nothing to receive");
            wait();
        }
    }

    /// Begins to sum `values`, in one segment.
    pub(crate) fn contribute(&mut self, values: &[f64]) {
        let part = part(values.len() as u32, self.next);
        self.next += 1;
        self.say(Message::Request(part), &to_bytes(values));
    }

    /// Sums begun so far.
    pub(crate) fn rounds(&self) -> u32 {
        self.next
    }

    /// The sum.
    pub(crate) fn result(&mut self) -> Result<Vec<f64>, End> {
        self.receive().map(Self::sum)
    }

    /// The sum, waited for without sleeping.
    #[allow(dead_code, reason = "the benchmark's")]
    pub(crate) fn result_polling(&mut self) -> Result<Vec<f64>, End> {
        self.receive_waiting(thread::yield_now).map(Self::sum)
    }

    fn sum((header, payload): (Header, Vec<u8>)) -> Vec<f64> {
        assert!(matches!(header.message, Message::Result(part) if part.has_data));
        payload.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect()
    }
}

/// The `number`th sum of `elements` doubles in a group in which every operation has one segment.
pub(crate) fn part(elements: u32, number: u32) -> Part {
    Part {
        operation: OperationNumber(OperationNumber::FIRST.0.wrapping_add(number)),
        segment: SegmentIndex(0),
        sequence: Sequence(Sequence::FIRST.0.wrapping_add(number)),
        shape: Shape::new(Operator::Sum, Datatype::F64, elements).unwrap(),
        target: Target::All,
        has_data: true,
        retransmit: RetransmitState::default(),
    }
}

pub(crate) fn to_bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Every member of a new group, joined.
pub(crate) fn members(group: &GroupGrant, way: Way) -> Vec<Member> {
    (0..group.endpoints.len()).map(|index| Member::join(group, index, way)).collect()
}

/// One sum over all members, checked.
pub(crate) fn sum_once(members: &mut [Member], seed: f64) {
    let mut expected = 0.0;
    for (index, member) in members.iter_mut().enumerate() {
        let value = seed + index as f64;
        expected += value;
        member.contribute(&[value, -value]);
    }
    for member in members {
        assert_eq!(member.result(), Ok(vec![expected, -expected]));
    }
}
