//! What one element of a buffer is, from the three ways in which Python objects say it.

use tributary_wire::Datatype;

/// An element. Every element can be moved; those with a datatype can be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) datatype: Option<Datatype>,
    /// True or false in a byte: results must stay so.
    pub(crate) is_bool: bool,
    pub(crate) size_bytes: usize,
    /// How the object names it.
    pub(crate) name: String,
}

impl Element {
    fn of(datatype: Datatype) -> Self {
        Self {
            datatype: Some(datatype),
            is_bool: false,
            size_bytes: datatype.size_bytes(),
            name: datatype.name().to_owned(),
        }
    }

    /// An element whose bits have no name in the buffer protocol.
    pub(crate) fn bfloat16() -> Self {
        Self::of(Datatype::Bf16)
    }

    fn boolean() -> Self {
        Self { is_bool: true, name: "bool".to_owned(), ..Self::of(Datatype::U8) }
    }

    /// What only moves.
    fn opaque(size_bytes: usize, name: String) -> Self {
        Self { datatype: None, is_bool: false, size_bytes, name }
    }

    /// From the format of the buffer protocol (Python's `struct`, with PEP 3118's additions).
    pub(crate) fn from_format(format: &str, size_bytes: usize) -> Self {
        let opaque = || Self::opaque(size_bytes, format!("format {format:?}"));
        let Some(code) = native(format) else { return opaque() };
        let known = match code {
            "?" => return Self::boolean(),
            "b" | "h" | "i" | "l" | "q" | "n" => signed_of_size(size_bytes),
            "B" | "H" | "I" | "L" | "Q" | "N" => unsigned_of_size(size_bytes),
            "e" => Some(Datatype::F16),
            "f" => Some(Datatype::F32),
            "d" => Some(Datatype::F64),
            "Zf" => Some(Datatype::F32Complex),
            "Zd" => Some(Datatype::F64Complex),
            _ => pair(code, size_bytes),
        };
        known.filter(|known| known.size_bytes() == size_bytes).map_or_else(opaque, Self::of)
    }

    /// From DLPack's type: its code, bits and lanes.
    pub(crate) fn from_dlpack(code: u8, bits: u8, lanes: u16) -> Self {
        let size_bytes = usize::from(bits).div_ceil(8) * usize::from(lanes);
        let known = match (code, bits, lanes) {
            (dlpack::INT, _, 1) => signed_of_size(size_bytes),
            (dlpack::UNSIGNED, _, 1) => unsigned_of_size(size_bytes),
            (dlpack::FLOAT, 16, 1) => Some(Datatype::F16),
            (dlpack::FLOAT, 32, 1) => Some(Datatype::F32),
            (dlpack::FLOAT, 64, 1) => Some(Datatype::F64),
            (dlpack::BFLOAT, 16, 1) => Some(Datatype::Bf16),
            (dlpack::COMPLEX, 64, 1) => Some(Datatype::F32Complex),
            (dlpack::COMPLEX, 128, 1) => Some(Datatype::F64Complex),
            (dlpack::BOOL, 8, 1) => return Self::boolean(),
            _ => None,
        };
        let name = || format!("DLPack type (code {code}, {bits} bits, {lanes} lanes)");
        known.map_or_else(|| Self::opaque(size_bytes, name()), Self::of)
    }
}

/// The type codes of DLPack.
mod dlpack {
    pub(super) const INT: u8 = 0;
    pub(super) const UNSIGNED: u8 = 1;
    pub(super) const FLOAT: u8 = 2;
    pub(super) const BFLOAT: u8 = 4;
    pub(super) const COMPLEX: u8 = 5;
    pub(super) const BOOL: u8 = 6;
}

/// A format without the mark for this machine's byte order; none for another one's.
fn native(format: &str) -> Option<&str> {
    match format.as_bytes() {
        [b'>' | b'!', ..] => None,
        [b'@' | b'=' | b'<' | b'^', ..] => Some(&format[1..]),
        _ => Some(format),
    }
}

fn signed_of_size(size_bytes: usize) -> Option<Datatype> {
    match size_bytes {
        1 => Some(Datatype::I8),
        2 => Some(Datatype::I16),
        4 => Some(Datatype::I32),
        8 => Some(Datatype::I64),
        _ => None,
    }
}

fn unsigned_of_size(size_bytes: usize) -> Option<Datatype> {
    match size_bytes {
        1 => Some(Datatype::U8),
        2 => Some(Datatype::U16),
        4 => Some(Datatype::U32),
        8 => Some(Datatype::U64),
        _ => None,
    }
}

/// A structure of a value and an index, such as `T{<f:value:<i:index:}`.
fn pair(code: &str, size_bytes: usize) -> Option<Datatype> {
    let members = code.strip_prefix("T{")?.strip_suffix('}')?;
    // Every other piece between colons is a member's name.
    let types = members.split(':').step_by(2).map(native).collect::<Option<String>>()?;
    let types: String =
        types.chars().filter(|code| !(code.is_ascii_digit() || *code == 'x')).collect();
    match (types.as_str(), size_bytes) {
        ("hi", 8) => Some(Datatype::I16Index),
        ("ii", 8) => Some(Datatype::I32Index),
        ("li" | "qi", 16) => Some(Datatype::I64Index),
        ("fi", 8) => Some(Datatype::F32Index),
        ("di", 16) => Some(Datatype::F64Index),
        ("ff", 8) => Some(Datatype::F32FloatIndex),
        ("dd", 16) => Some(Datatype::F64FloatIndex),
        _ => None,
    }
}
