//! Tests of every kind of link. Each function takes a function that makes a pair for a payload
//! limit.

use std::slice;
use std::thread;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_transport::{Armed, Inject, Link, ReceiveError, SendError, Sent, Wake, wait};
use tributary_wire::frame::{HEADER_BYTES, PAYLOAD_BYTES_MAX};

use crate::common::{MakePair, check, expect, expect_failure, flush, frame, frame_bytes, send};

const NO_SPIN: Duration = Duration::ZERO;

pub(crate) fn carries_every_length_in_order(pair: MakePair) {
    let (mut up, mut down) = pair(600);
    for length in 0..=600 {
        send(&mut up, length, length as usize);
        send(&mut down, length + 1000, 600 - length as usize);
        expect(&mut down, length, length as usize);
        expect(&mut up, length + 1000, 600 - length as usize);
    }
    let (mut up, mut down) = pair(PAYLOAD_BYTES_MAX as u32);
    let sender = thread::spawn(move || {
        for sequence in 0..6 {
            send(&mut up, sequence, PAYLOAD_BYTES_MAX - sequence as usize);
        }
        up
    });
    for sequence in 0..6 {
        expect(&mut down, sequence, PAYLOAD_BYTES_MAX - sequence as usize);
    }
    drop(sender.join().unwrap());
}

fn lengths(seed: u64, max: usize) -> impl FnMut() -> usize {
    let mut random = Pcg64::seed_from_u64(seed);
    move || random.random_range(0..=max)
}

pub(crate) fn carries_frames_across_the_wrap(pair: MakePair) {
    const FRAMES: u32 = 20_000;
    let (mut up, mut down) = pair(2000);
    let sender = thread::spawn(move || {
        let mut length = lengths(3, 2000);
        (0..FRAMES).for_each(|sequence| send(&mut up, sequence, length()));
        up
    });
    let mut length = lengths(3, 2000);
    (0..FRAMES).for_each(|sequence| expect(&mut down, sequence, length()));
    drop(sender.join().unwrap());
}

/// Sends until the link is full. Returns how many frames it took.
fn fill(link: &mut (impl Link + ?Sized), payload_bytes: usize) -> u32 {
    // More than any kernel buffers: a link that takes this much holds it itself.
    const BYTES_MAX: usize = 64 << 20;
    for sequence in 0.. {
        let (header, payload) = frame(sequence, payload_bytes);
        let mut fulls = 0;
        // A delayed frame fills the link for some calls; a full one stays full.
        while link.send(&header, &payload).unwrap() == Sent::Full {
            fulls += 1;
            if fulls > 1000 {
                return sequence;
            }
        }
        assert!(sequence as usize * payload_bytes < BYTES_MAX, "the link has no limit");
    }
    unreachable!("the assertion above comes first")
}

pub(crate) fn is_full_and_loses_nothing(pair: MakePair) {
    let (mut up, mut down) = pair(4000);
    let taken = fill(&mut up, 4000);
    assert!(taken >= 2);
    for sequence in 0..taken {
        while up.flush().unwrap() == Sent::Full && !down.is_ready() {}
        expect(&mut down, sequence, 4000);
    }
    flush(&mut up);
    assert!(down.receive().unwrap().is_none(), "a frame that was not taken was sent");
    send(&mut up, taken, 5);
    expect(&mut down, taken, 5);
}

pub(crate) fn reports_room_once_it_is_there(pair: MakePair) {
    let (mut up, mut down) = pair(4000);
    let taken = fill(&mut up, 4000);
    let reader = thread::spawn(move || {
        (0..taken).for_each(|sequence| expect(&mut down, sequence, 4000));
        expect(&mut down, taken, 4000);
        down
    });
    while !up.is_ready() {
        thread::yield_now();
    }
    send(&mut up, taken, 4000);
    // Kept, because a peer that is gone would be something to report too.
    let _down = reader.join().unwrap();
    // Reported once: what follows would otherwise never sleep.
    while up.arm() == Armed::Ready {}
    up.disarm();
}

/// Sends and receives `frames` at once, sleeping whenever there is nothing to do.
fn exchange(mut link: Box<dyn Inject>, frames: u32) -> Box<dyn Inject> {
    let (mut sent, mut received) = (0, 0);
    while sent < frames || received < frames {
        while let Some(got) = link.receive().unwrap() {
            check(&got, received, received as usize % 900);
            received += 1;
        }
        while sent < frames {
            let (header, payload) = frame(sent, sent as usize % 900);
            if link.send(&header, &payload).unwrap() == Sent::Full {
                break;
            }
            sent += 1;
        }
        if received < frames {
            let _ = wait(slice::from_mut(&mut link), NO_SPIN, None).unwrap();
        }
    }
    flush(&mut link);
    link
}

pub(crate) fn carries_both_directions_at_once(pair: MakePair) {
    let (up, down) = pair(1000);
    let other = thread::spawn(move || exchange(down, 5000));
    let up = exchange(up, 5000);
    drop((up, other.join().unwrap()));
}

pub(crate) fn delivers_all_then_closed(pair: MakePair) {
    let (mut up, mut down) = pair(100);
    (0..3).for_each(|sequence| send(&mut up, sequence, 100));
    drop(up);
    (0..3).for_each(|sequence| expect(&mut down, sequence, 100));
    assert_eq!(expect_failure(&mut down), ReceiveError::Closed);
    let (header, payload) = frame(0, 10);
    // The first may still go into a kernel's buffer, where the refusal comes back to.
    let refused = (0..1000).find_map(|_| {
        thread::yield_now();
        down.send(&header, &payload).err()
    });
    assert_eq!(refused, Some(SendError::Closed));
}

pub(crate) fn reports_a_cut_frame(pair: MakePair) {
    for after_bytes in [1, 63, 64, 65, 163] {
        let (mut up, mut down) = pair(100);
        send(&mut up, 0, 50);
        let cut = &frame_bytes(1, 100)[..after_bytes];
        assert_eq!(up.inject(cut), Ok(Sent::Taken));
        drop(up);
        expect(&mut down, 0, 50);
        match expect_failure(&mut down) {
            // A ring shows whole frames or none.
            ReceiveError::Closed => {}
            ReceiveError::Truncated { got_bytes, need_bytes } => {
                let need =
                    if after_bytes < HEADER_BYTES { HEADER_BYTES } else { HEADER_BYTES + 100 };
                assert_eq!((got_bytes, need_bytes), (after_bytes, need));
            }
            other => panic!("{other}"),
        }
    }
}

pub(crate) fn refuses_garbage(pair: MakePair) {
    let mut random = Pcg64::seed_from_u64(4);
    for length in [64, 65, 128, 500, 3000] {
        let (mut up, mut down) = pair(4000);
        let mut garbage = vec![0; length];
        random.fill_bytes(&mut garbage);
        garbage[0] = 0xff;
        assert_eq!(up.inject(&garbage), Ok(Sent::Taken));
        assert!(matches!(expect_failure(&mut down), ReceiveError::Decode(_)));
    }
}

pub(crate) fn survives_every_flipped_header_bit(pair: MakePair) {
    for bit in 0..8 * HEADER_BYTES {
        let (mut up, mut down) = pair(100);
        let mut bytes = frame_bytes(1, 100);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(up.inject(&bytes), Ok(Sent::Taken));
        drop(up);
        // Some bits make another valid header (another group, say); then the frame is whole.
        let mut frames = 0;
        loop {
            match down.receive() {
                Ok(None) => thread::yield_now(),
                Ok(Some(got)) => {
                    assert_eq!(got.payload.len(), got.header.payload_bytes());
                    frames += 1;
                }
                Err(error) => {
                    assert!(frames == 1 || error != ReceiveError::Closed, "bit {bit}: {error}");
                    break;
                }
            }
        }
        assert!(frames <= 1);
    }
}

pub(crate) fn refuses_an_oversized_announcement(pair: MakePair) {
    let (mut up, mut down) = pair(1000);
    let (header, _) = frame(0, 1001);
    assert_eq!(up.inject(&header), Ok(Sent::Taken));
    let error = ReceiveError::TooLong { announced_bytes: 1001, max_bytes: 1000 };
    assert_eq!(expect_failure(&mut down), error);
}

pub(crate) fn refuses_what_the_caller_gets_wrong(pair: MakePair) {
    let (mut up, mut down) = pair(1000);
    assert_eq!(up.payload_max_bytes(), 1000);
    let (header, payload) = frame(0, 1001);
    let too_long = SendError::TooLong { payload_bytes: 1001, max_bytes: 1000 };
    assert_eq!(up.send(&header, &payload), Err(too_long));
    let (mut header, payload) = frame(0, 10);
    let mismatch = |payload_bytes| Err(SendError::HeaderMismatch { payload_bytes });
    assert_eq!(up.send(&header, &payload[..9]), mismatch(9));
    header[0] = 0;
    assert_eq!(up.send(&header, &payload), mismatch(10));
    send(&mut up, 0, 10);
    expect(&mut down, 0, 10);
}

/// A pause of random length, short enough to fall into every gap of the other side.
fn dawdle(random: &mut Pcg64) {
    for _ in 0..random.random_range(0..2000) {
        std::hint::spin_loop();
    }
    if random.random_range(0..50) == 0 {
        thread::yield_now();
    }
}

/// Receives the next frame, sleeping until it comes.
fn sleep_for(link: &mut Box<dyn Inject>, sequence: u32, payload_bytes: usize) {
    loop {
        if let Some(got) = link.receive().unwrap() {
            return check(&got, sequence, payload_bytes);
        }
        let woken = wait(slice::from_mut(link), NO_SPIN, None).unwrap();
        assert!(matches!(woken, Wake::Ready(0) | Wake::Other));
    }
}

pub(crate) fn loses_no_wake_up_for_data(pair: MakePair) {
    const ROUNDS: u32 = 20_000;
    let (mut up, mut down) = pair(64);
    let echo = thread::spawn(move || {
        let mut random = Pcg64::seed_from_u64(5);
        for round in 0..ROUNDS {
            sleep_for(&mut down, round, 8);
            dawdle(&mut random);
            send(&mut down, round, 16);
        }
        down
    });
    let mut random = Pcg64::seed_from_u64(6);
    for round in 0..ROUNDS {
        dawdle(&mut random);
        send(&mut up, round, 8);
        sleep_for(&mut up, round, 16);
    }
    drop(echo.join().unwrap());
}

pub(crate) fn loses_no_wake_up_for_room(pair: MakePair) {
    const FRAMES: u32 = 20_000;
    let (mut up, mut down) = pair(4000);
    let reader = thread::spawn(move || {
        let mut random = Pcg64::seed_from_u64(7);
        for sequence in 0..FRAMES {
            if sequence % 100 == 0 {
                dawdle(&mut random);
            }
            sleep_for(&mut down, sequence, 4000);
        }
        down
    });
    for sequence in 0..FRAMES {
        let (header, payload) = frame(sequence, 4000);
        while up.send(&header, &payload).unwrap() == Sent::Full {
            let _ = wait(slice::from_mut(&mut up), NO_SPIN, None).unwrap();
        }
    }
    flush(&mut up);
    drop(reader.join().unwrap());
}

pub(crate) fn wakes_when_the_peer_goes(pair: MakePair) {
    let (up, mut down) = pair(64);
    let sleeper = thread::spawn(move || {
        loop {
            match down.receive() {
                Ok(None) => {}
                Ok(Some(_)) => panic!("nobody sent anything"),
                Err(error) => return error,
            }
            let _ = wait(slice::from_mut(&mut down), NO_SPIN, None).unwrap();
        }
    });
    thread::sleep(Duration::from_millis(20));
    drop(up);
    assert_eq!(sleeper.join().unwrap(), ReceiveError::Closed);
}

pub(crate) fn gives_room_back_on_release(pair: MakePair) {
    let (mut up, mut down) = pair(4000);
    let taken = fill(&mut up, 4000);
    let mut sent = false;
    // Released after every frame, and no `receive` in between, so `release` alone makes the room.
    for sequence in 0..taken {
        expect(&mut down, sequence, 4000);
        down.release();
        let (header, payload) = frame(taken, 4000);
        sent = sent || up.send(&header, &payload).unwrap() == Sent::Taken;
    }
    assert!(sent, "{taken} frames were released and there is no room for one");
    flush(&mut up);
    expect(&mut down, taken, 4000);
}

pub(crate) fn shuts_down(pair: MakePair) {
    let (mut up, mut down) = pair(64);
    down.shutdown();
    let (header, payload) = frame(0, 8);
    assert_eq!(down.send(&header, &payload), Err(SendError::Closed));
    assert_eq!(expect_failure(&mut up), ReceiveError::Closed);
    assert_eq!(expect_failure(&mut down), ReceiveError::Closed);
}
