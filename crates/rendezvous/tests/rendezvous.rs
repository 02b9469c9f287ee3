//! Ranks as threads that meet, and some that do not.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tributary_client::Bootstrap as _;
use tributary_rendezvous::{Rendezvous, RendezvousError};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);

/// A loopback address that nobody listens at.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// What `work` comes to on each of these ranks, all at a time.
fn on_ranks<T: Send + 'static>(
    ranks: &[u32],
    work: impl Fn(u32, String) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let address = free_address();
    let threads: Vec<_> = ranks
        .iter()
        .map(|&rank| {
            let (work, address) = (work.clone(), address.clone());
            thread::spawn(move || work(rank, address))
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn exchanges_are_in_rank_order_and_as_many_as_asked_for() {
    let gathered = on_ranks(&[2, 0, 3, 1], |rank, address| {
        let mut all = Rendezvous::meet(&address, rank, 4, LONG).unwrap();
        assert_eq!((all.rank(), all.size()), (rank, 4));
        for round in 0..50_u32 {
            let mut words = [0; 16];
            all.allgather(&(rank * 1000 + round).to_le_bytes(), &mut words).unwrap();
            let expected: Vec<u8> =
                (0..4).flat_map(|rank| (rank * 1000 + round).to_le_bytes()).collect();
            assert_eq!(words.as_slice(), expected);
        }
        let mut long = vec![0; 4 << 20];
        all.allgather(&vec![rank as u8; 1 << 20], &mut long).unwrap();
        long.chunks_exact(1 << 20).map(|part| part[77]).collect::<Vec<u8>>()
    });
    assert!(gathered.iter().all(|parts| parts == &[0, 1, 2, 3]));
}

#[test]
fn one_rank_needs_no_address() {
    let mut alone = Rendezvous::meet("nowhere.invalid:1", 0, 1, SHORT).unwrap();
    let mut all = [0];
    alone.allgather(&[7], &mut all).unwrap();
    assert_eq!(all, [7]);
}

#[test]
fn a_missing_process_is_named_to_all() {
    let problems = on_ranks(&[0, 2], |rank, address| {
        Rendezvous::meet(&address, rank, 4, SHORT).unwrap_err().to_string()
    });
    for problem in problems {
        assert!(problem.contains("ranks 1 and 3") && problem.contains("0.3 s"), "{problem}");
    }
}

#[test]
fn a_missing_rank_0_is_named() {
    let error = Rendezvous::meet(&free_address(), 1, 2, SHORT).unwrap_err();
    assert!(matches!(&error, RendezvousError::NoHub { .. }), "{error}");
    assert!(error.to_string().contains("rank 0"), "{error}");
}

#[test]
fn a_rank_that_leaves_or_stays_silent_later_is_named_to_all() {
    for (leaves, words) in [(true, "rank 2 left"), (false, "rank 2 did not take part")] {
        let problems = on_ranks(&[0, 1, 2], move |rank, address| {
            let mut all = Rendezvous::meet(&address, rank, 3, Duration::from_secs(2)).unwrap();
            if rank == 2 {
                if !leaves {
                    thread::sleep(Duration::from_secs(3));
                }
                return None;
            }
            Some(all.allgather(&[0], &mut [0; 3]).unwrap_err().to_string())
        });
        for problem in problems.into_iter().flatten() {
            assert!(problem.contains(words), "{problem}");
        }
    }
}

/// Says at rank 0 that it is rank 2 of 4, and does nothing more.
fn arrive_as_rank_2(address: &str) -> TcpStream {
    let hello = [&b"TRV1"[..], &2_u32.to_le_bytes(), &4_u32.to_le_bytes()].concat();
    loop {
        if let Ok(mut stream) = TcpStream::connect(address)
            && stream.write_all(&hello).is_ok()
        {
            return stream;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Rank 1 comes only when the others have heard of rank 2, which has gone before its part of an exchange, or behind it.
#[test]
fn a_rank_that_leaves_is_named_while_others_are_late() {
    for brings_part in [false, true] {
        let (heard, hear) = mpsc::channel();
        let hear = Arc::new(Mutex::new(hear));
        let problems = on_ranks(&[0, 1, 2, 3], move |rank, address| {
            if rank == 2 {
                let mut stream = arrive_as_rank_2(&address);
                // All are there: no bytes.
                stream.read_exact(&mut [0; 5]).unwrap();
                if brings_part {
                    stream.write_all(&[1, 0, 0, 0, 7]).unwrap();
                }
                return String::new();
            }
            let mut all = Rendezvous::meet(&address, rank, 4, LONG).unwrap();
            if rank == 1 {
                let hear = hear.lock().unwrap();
                (0..2).for_each(|_| hear.recv().unwrap());
                return String::new();
            }
            let problem = all.allgather(&[0], &mut [0; 4]).unwrap_err().to_string();
            heard.send(()).unwrap();
            problem
        });
        assert!(problems[0].contains("rank 2 left"), "{problems:?}");
        assert!(problems[3].contains("rank 2 left"), "{problems:?}");
    }
}

#[test]
fn a_rank_that_leaves_before_all_have_arrived_is_named() {
    let problems = on_ranks(&[0, 2], |rank, address| {
        if rank == 2 {
            drop(arrive_as_rank_2(&address));
            return String::new();
        }
        Rendezvous::meet(&address, rank, 4, LONG).unwrap_err().to_string()
    });
    assert!(problems[0].contains("rank 2 left"), "{problems:?}");
}

#[test]
fn ranks_that_do_not_fit_are_refused() {
    let problems = on_ranks(&[0, 1], |rank, address| {
        Rendezvous::meet(&address, rank, 2 + rank, LONG).unwrap_err().to_string()
    });
    assert!(problems.iter().all(|problem| problem.contains("rank 1 was told of 3 ranks")));
    let problems = on_ranks(&[0, 1, 1], |rank, address| {
        Rendezvous::meet(&address, rank, 3, LONG).unwrap_err().to_string()
    });
    let expected = "two processes say that they are rank 1";
    assert!(problems.iter().all(|problem| problem.contains(expected)), "{problems:?}");
    assert!(Rendezvous::meet("127.0.0.1:1", 2, 2, SHORT).is_err());
}

#[test]
fn different_exchanges_are_noticed() {
    let problems = on_ranks(&[0, 1], |rank, address| {
        let mut all = Rendezvous::meet(&address, rank, 2, LONG).unwrap();
        let mine = vec![0; 4 + rank as usize];
        let mut room = vec![0; 2 * mine.len()];
        all.allgather(&mine, &mut room).unwrap_err().to_string()
    });
    assert!(problems.iter().all(|problem| problem.contains("5 bytes")), "{problems:?}");
}

#[test]
fn strangers_hold_up_nobody() {
    let met = on_ranks(&[0, 1, 9], |rank, address| {
        if rank < 2 {
            if rank == 1 {
                thread::sleep(SHORT);
            }
            return Rendezvous::meet(&address, rank, 2, LONG).map(|_| ()).is_ok();
        }
        let mut silent = None;
        for _ in 0..100 {
            if let Ok(mut stranger) = TcpStream::connect(&address) {
                if silent.is_some() {
                    let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
                    break;
                }
                silent = Some(stranger);
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    });
    assert_eq!(met, [true; 3]);
}
