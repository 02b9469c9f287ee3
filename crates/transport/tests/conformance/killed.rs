//! A peer process that is killed: what it sent arrives, then the link says closed.
//!
//! The peer is this test program again, running the ignored test below.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::slice;
use std::thread;
use std::time::Duration;

use tributary_transport::{
    Inject, Link, Listener, ReceiveError, ShmListener, ShmOptions, TcpAcceptor, TcpOptions,
    connect_shm, connect_tcp, wait,
};

use crate::common::{TIMEOUT, accept_one, expect, expect_failure, frame_bytes, guarded, send};

const PLACE: &str = "TRIBUTARY_TEST_PLACE";
const SAID_WHEN_SENT: &str = "three frames sent";
const PAYLOAD_MAX_BYTES: u32 = 500;

#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn victim() {
    let place = env::var(PLACE).unwrap();
    let mut link: Box<dyn Inject> = match place.parse::<SocketAddr>() {
        Ok(address) => {
            let options = TcpOptions::new(PAYLOAD_MAX_BYTES).unwrap();
            Box::new(connect_tcp(address, options, TIMEOUT).unwrap())
        }
        Err(_) => {
            let options = ShmOptions::new(PAYLOAD_MAX_BYTES).unwrap();
            Box::new(connect_shm(Path::new(&place), options, TIMEOUT).unwrap())
        }
    };
    (0..3).for_each(|sequence| send(&mut link, sequence, 500));
    // In the middle of the fourth.
    let _ = link.inject(&frame_bytes(3, 500)[..200]).unwrap();
    println!("\n{SAID_WHEN_SENT}");
    thread::sleep(Duration::from_secs(600));
}

fn kill_a_peer_of<L: Listener>(mut listener: L, place: &str) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "killed::victim", "--ignored", "--nocapture"])
        .env(PLACE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut link = accept_one(&mut listener);
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.map_while(Result::ok).any(|line| line == SAID_WHEN_SENT));
    // Asleep when it happens.
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        child.kill().unwrap();
        child.wait().unwrap();
    });
    (0..3).for_each(|sequence| expect(&mut link, sequence, 500));
    while link.receive().is_ok_and(|frame| frame.is_none()) {
        let _ = wait(slice::from_mut(&mut link), Duration::ZERO, None).unwrap();
    }
    let error = expect_failure(&mut link);
    let cut = ReceiveError::Truncated { got_bytes: 200, need_bytes: 564 };
    assert!(error == ReceiveError::Closed || error == cut, "{error}");
    killer.join().unwrap();
}

#[test]
fn over_tcp() {
    guarded("killed over tcp", || {
        let options = TcpOptions::new(PAYLOAD_MAX_BYTES).unwrap();
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let acceptor = TcpAcceptor::bind(any_port, options).unwrap();
        let place = acceptor.address().unwrap().to_string();
        kill_a_peer_of(acceptor, &place);
    });
}

#[test]
fn over_shm() {
    guarded("killed over shm", || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.sock");
        let options = ShmOptions::new(PAYLOAD_MAX_BYTES).unwrap();
        let listener = ShmListener::bind(&path, 0o600, options, TIMEOUT).unwrap();
        kill_a_peer_of(listener, path.to_str().unwrap());
    });
}
