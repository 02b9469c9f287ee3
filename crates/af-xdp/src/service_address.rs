//! Where the host's service takes connections.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::net::SocketAddrUnix;

/// Begins a name that lies in no folder.
const ABSTRACT: char = '@';

/// The path of a socket; or with `@` in front a name, which lies in no folder, and each network namespace has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddress(String);

/// Why a text names no socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an absolute path, or @ and a name, of at most 107 bytes")]
pub struct InvalidAddress;

impl ServiceAddress {
    /// The path, if this is one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|it| !it.starts_with(ABSTRACT))
    }

    ///
    /// # Errors
    /// If the system takes no such name.
    pub fn to_socket_address(&self) -> io::Result<SocketAddrUnix> {
        Ok(match self.0.strip_prefix(ABSTRACT) {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            None => SocketAddrUnix::new(&self.0)?,
        })
    }
}

impl FromStr for ServiceAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let is_one = text.starts_with('/') || text.starts_with(ABSTRACT) && text.len() > 1;
        let address = Self(text.to_owned());
        if is_one && address.to_socket_address().is_ok() {
            Ok(address)
        } else {
            Err(InvalidAddress)
        }
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_and_names() {
        for text in ["/run/tributary/rings.socket", "@tributary-rings"] {
            let address: ServiceAddress = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        let long = format!("/{}", "a".repeat(200));
        for text in ["", "@", "rings.socket", "/with\0zero", &long] {
            assert_eq!(text.parse::<ServiceAddress>(), Err(InvalidAddress), "{text:?}");
        }
    }
}
