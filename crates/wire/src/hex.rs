//! Secrets of 128 bits as text, for control messages.

/// Gives a type of 128 bits its form in JSON: 32 hexadecimal digits, the first byte first.
macro_rules! as_hex_digits {
    ($secret:ty, $complaint:literal) => {
        impl serde::Serialize for $secret {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let bits = u128::from_be_bytes(self.to_bytes());
                serializer.serialize_str(&alloc::format!("{bits:032x}"))
            }
        }

        impl<'de> serde::Deserialize<'de> for $secret {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                use serde::de::Error;
                let text = alloc::string::String::deserialize(deserializer)?;
                if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(D::Error::custom($complaint));
                }
                let bits = u128::from_str_radix(&text, 16).map_err(D::Error::custom)?;
                Ok(Self::from_bytes(bits.to_be_bytes()))
            }
        }
    };
}

pub(crate) use as_hex_digits;
