//! Datagrams on their way.

/// Datagrams on their way.
#[derive(Default)]
pub(super) struct Datagrams {
    pub(super) places: Vec<Option<Flying>>,
    pub(super) free: Vec<u32>,
}

pub(super) struct Flying {
    pub(super) bytes: Vec<u8>,
    pub(super) is_forged: bool,
}

impl Datagrams {
    pub(super) fn add(&mut self, bytes: Vec<u8>, is_forged: bool) -> u32 {
        let flying = Some(Flying { bytes, is_forged });
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = flying;
                place
            }
            None => {
                self.places.push(flying);
                self.places.len() as u32 - 1
            }
        }
    }

    pub(super) fn take(&mut self, place: u32) -> Flying {
        self.free.push(place);
        self.places[place as usize].take().expect("a datagram arrives once")
    }
}
