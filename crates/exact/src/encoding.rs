//! The bytes of a window. The page `docs/exact-sums.md` describes them, and a test compares the two.

use crate::class::Class;
use crate::format::Format;
use crate::window::Window;

/// The version of the encoding that this build writes and reads.
pub const VERSION: u8 = 1;

/// Bytes before the words.
pub const HEADER_BYTES: usize = 8;

/// What is wrong with bytes that should be a window. The sender is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// There are fewer than the bytes of a header.
    Short {
        /// Bytes that are there.
        len_bytes: usize,
    },
    /// Another version.
    Version(u8),
    /// Another format than the receiver sums.
    Format(u8),
    /// No class has this number.
    Class(u8),
    /// A byte that must be zero isn't.
    Reserved,
    /// The window doesn't lie inside the full width of its format, or a sum without words has a place.
    Place {
        /// The lowest word.
        first: u8,
        /// The number of words.
        words: u8,
    },
    /// More or fewer bytes than the header announces.
    Length {
        /// Bytes that are there.
        len_bytes: usize,
        /// Bytes that the header announces.
        announced_bytes: usize,
    },
    /// The class has no integer, but words follow.
    WordsWithoutInteger,
    /// The lowest word is zero, or the highest only repeats the sign.
    NotCanonical,
    /// The topmost bit of the full width is taken, which leaves no room for a merge.
    OutOfRange,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short { len_bytes } => write!(formatter, "{len_bytes} bytes are no header"),
            Self::Version(version) => write!(formatter, "version {version}, not {VERSION}"),
            Self::Format(code) => write!(formatter, "a sum of format {code}"),
            Self::Class(code) => write!(formatter, "unknown class {code}"),
            Self::Reserved => formatter.write_str("a reserved byte is not zero"),
            Self::Place { first, words } => {
                write!(formatter, "{words} words from word {first} on leave the format's width")
            }
            Self::Length { len_bytes, announced_bytes } => {
                write!(formatter, "{len_bytes} bytes instead of {announced_bytes}")
            }
            Self::WordsWithoutInteger => formatter.write_str("words of a sum without integer"),
            Self::NotCanonical => formatter.write_str("not the shortest window of its sum"),
            Self::OutOfRange => formatter.write_str("the topmost bit is taken"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// The bytes that the longest encoding of a format has.
#[must_use]
pub const fn encoded_bytes_max<F: Format>() -> usize {
    HEADER_BYTES + 8 * F::WORDS
}

/// The number of an encoding's format, unless there are too few bytes to say it.
#[cfg(feature = "std")]
pub(crate) fn encoded_format(bytes: &[u8]) -> Option<u8> {
    bytes.get(1).copied()
}

impl<F: Format> Window<F> {
    /// Writes the sum's only encoding to the start of `bytes` and says how long it is; `None` if it doesn't fit.
    #[must_use]
    pub fn encode(&self, bytes: &mut [u8]) -> Option<usize> {
        let window = self.canonical();
        let len_bytes = HEADER_BYTES + 8 * window.len;
        let (header, words) = bytes.get_mut(..len_bytes)?.split_at_mut(HEADER_BYTES);
        let (first, len) = (window.first as u8, window.len as u8);
        header.copy_from_slice(&[VERSION, F::CODE, window.class as u8, first, len, 0, 0, 0]);
        for (bytes, word) in words.chunks_exact_mut(8).zip(window.words()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Some(len_bytes)
    }

    /// Reads one encoding, which is all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let len_bytes = bytes.len();
        let Some((&header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(DecodeError::Short { len_bytes });
        };
        let [version, code, class, first, words, reserved @ ..] = header;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if code != F::CODE {
            return Err(DecodeError::Format(code));
        }
        let class = *Class::ALL.get(usize::from(class)).ok_or(DecodeError::Class(class))?;
        if reserved != [0; 3] {
            return Err(DecodeError::Reserved);
        }
        let (first_word, len) = (usize::from(first), usize::from(words));
        if first_word + len > F::WORDS || (len == 0 && first_word != 0) {
            return Err(DecodeError::Place { first, words });
        }
        if class != Class::Finite && len != 0 {
            return Err(DecodeError::WordsWithoutInteger);
        }
        let announced_bytes = HEADER_BYTES + 8 * len;
        if len_bytes != announced_bytes {
            return Err(DecodeError::Length { len_bytes, announced_bytes });
        }
        let mut window = Self { class, first: first_word, len, words: F::ZERO_WORDS };
        for (word, bytes) in window.words.as_mut().iter_mut().zip(payload.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("chunks have 8 bytes");
            *word = u64::from_le_bytes(bytes);
        }
        if window.canonical().len != len {
            return Err(DecodeError::NotCanonical);
        }
        if !window.is_in_range() {
            return Err(DecodeError::OutOfRange);
        }
        Ok(window)
    }
}
