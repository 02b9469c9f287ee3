//! Goal: an eavesdropper between a manager and its clients learns no secret.
//! Method: a proxy that keeps every byte of both directions; a real aggregator and the host library's own
//! client behind it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown as Half, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tributary_client::manager::{ManagerClient, ManagerError};
use tributary_daemon::token::Token;
use tributary_wire::control::{GroupGrant, GroupRequest, JobAdmission, JobRequest};
use tributary_wire::frame::Versions;

use crate::common::{call, eventually, guarded};
use crate::recovery::{RunningManager, start_node};

/// Passes connections on, and keeps what it sees.
struct Eavesdropper {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Eavesdropper {
    /// Listens until the process ends.
    fn before(manager: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let far = TcpStream::connect(manager).unwrap();
                let (back, forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                for (from, to) in [(near, far), (back, forth)] {
                    let ear = Arc::clone(&ear);
                    thread::spawn(move || pass_on(from, to, &ear));
                }
            }
        });
        Self { address, heard }
    }

    fn has_heard(&self, what: &str) -> bool {
        assert!(what.len() >= 8, "chance would find {what:?} in random bytes");
        let heard = self.heard.lock().unwrap();
        heard.windows(what.len()).any(|seen| seen == what.as_bytes())
    }

    fn heard_bytes(&self) -> usize {
        self.heard.lock().unwrap().len()
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, ear: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    // What was cut off on one side is cut off on the other.
    while let Ok(got_bytes @ 1..) = from.read(&mut buffer) {
        ear.lock().unwrap().extend_from_slice(&buffer[..got_bytes]);
        if to.write_all(&buffer[..got_bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Half::Write);
    let _ = from.shutdown(Half::Read);
}

const JOB_NAME: &str = "a-job-whose-name-is-nobody's-business";

fn group_of(client: &ManagerClient, admission: &JobAdmission) -> GroupGrant {
    let request = GroupRequest {
        secret: admission.secret,
        label: "a-label-that-stays-here".into(),
        hosts: vec!["host-that-nobody-knows".into(), "another-such-host".into()],
        frame_versions: Versions::SPOKEN,
        osos: 2,
        payload_max_bytes: 1024,
        stream: None,
        external_receiver: false,
    };
    client.request_group(admission, &request).unwrap()
}

/// The text of a value that is one string in JSON.
fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap().trim_matches('"').to_owned()
}

#[test]
fn nothing_worth_having_can_be_read_on_the_way() {
    guarded(|| {
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("token");
        let token = Token::create(&token_file).unwrap();
        let manager = RunningManager::start((Ipv4Addr::LOCALHOST, 0).into(), &token);
        let ear = Eavesdropper::before(manager.address);
        let (node, running) = start_node("node-in-the-dark", ear.address, &token, folder.path());
        let client = ManagerClient::new(&ear.address.to_string(), Some(&token_file)).unwrap();
        eventually("the node is there", || client.status().unwrap().nodes.len() == 1);
        let lease = client
            .admit(&JobRequest { name: JOB_NAME.into(), processes: 2, resume: None })
            .unwrap();
        let admission = &lease.admission;
        let group = group_of(&client, admission);

        let capabilities = group.endpoints.iter().map(|endpoint| text(&endpoint.capability));
        let secrets = [
            token.reveal().to_owned(),
            text(&admission.secret),
            JOB_NAME.to_owned(),
            "a-label-that-stays-here".to_owned(),
            "host-that-nobody-knows".to_owned(),
            "node-in-the-dark".to_owned(),
            "authorization".to_owned(),
            "HTTP/1.1".to_owned(),
        ];
        assert!(ear.heard_bytes() > 2000, "the traffic passes the proxy");
        for secret in secrets.into_iter().chain(capabilities) {
            assert!(!ear.has_heard(&secret), "{secret} was readable");
        }

        // It would have heard them: plain HTTP, as tools on this host may speak it.
        let body = serde_json::to_string(&client.status().unwrap()).unwrap();
        assert!(body.contains(JOB_NAME));
        let answer = call(ear.address, Some(token.reveal()), "GET", "/v1/status", "");
        assert_eq!(answer.status, 200);
        for readable in [token.reveal(), JOB_NAME, "HTTP/1.1"] {
            assert!(ear.has_heard(readable), "{readable} was not readable");
        }
        drop(lease);
        node.request();
        running.join().unwrap();
        manager.stop();
    });
}

#[test]
fn another_token_is_named_and_never_shown() {
    guarded(|| {
        let folder = tempfile::tempdir().unwrap();
        let token = Token::create(&folder.path().join("token")).unwrap();
        let other_file = folder.path().join("other");
        let other = Token::create(&other_file).unwrap();
        let manager = RunningManager::start((Ipv4Addr::LOCALHOST, 0).into(), &token);
        let ear = Eavesdropper::before(manager.address);

        let client = ManagerClient::new(&ear.address.to_string(), Some(&other_file)).unwrap();
        let error = client.status().unwrap_err();
        assert!(matches!(error, ManagerError::NotTrusted { .. }), "{error}");
        assert!(error.to_string().contains("another token"), "{error}");

        let (node, running) = start_node("lost", ear.address, &other, folder.path());
        let before = ear.heard_bytes();
        eventually("the node tries", || ear.heard_bytes() > before);
        assert!(client.status().is_err());
        node.request();
        running.join().unwrap();
        assert!(!ear.has_heard(other.reveal()) && !ear.has_heard(token.reveal()));
        assert!(!ear.has_heard("HTTP/1.1"), "words before trust");
        manager.stop();
    });
}

#[test]
fn a_manager_without_tls_is_told_from_a_silent_one() {
    guarded(|| {
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("token");
        Token::create(&token_file).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let old = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0);
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
        });
        let client = ManagerClient::new(&address.to_string(), Some(&token_file)).unwrap();
        let error = client.status().unwrap_err();
        assert!(error.to_string().contains("does not speak TLS"), "{error}");
        old.join().unwrap();
        let error = client.status().unwrap_err();
        assert!(matches!(error, ManagerError::Silent { .. }), "{error}");
    });
}
