//! Whether a new connection uses TLS or plain HTTP, and whether it may.
//!
//! TLS is allowed from everywhere. Plain HTTP is allowed for tools on this host (`curl`, a local
//! Prometheus), whose traffic crosses no network.

use std::net::{IpAddr, SocketAddr};

use axum::{Extension, Router};
use tributary_transport::tls::HANDSHAKE_RECORD;
use tributary_wire::control::RefusalCode;

use super::answer::Refused;

/// How a connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// TLS.
    Tls,
    /// Plain HTTP within this host.
    Plain,
    /// Refused: plain HTTP that has crossed a network.
    Exposed,
}

impl Scheme {
    /// Decides by the first byte: only TLS connections begin with a handshake record.
    pub(super) fn of(first_byte: u8, peer: IpAddr) -> Self {
        if first_byte == HANDSHAKE_RECORD {
            Self::Tls
        } else if peer.to_canonical().is_loopback() {
            Self::Plain
        } else {
            Self::Exposed
        }
    }
}

/// A peer that speaks plain HTTP over a network.
#[derive(Clone, Copy)]
pub(super) struct Stranger(pub(super) SocketAddr);

/// Refuses every call without checking its token, so that an answer reveals nothing about the
/// token.
pub(super) fn exposed_router() -> Router {
    Router::new().fallback(async |Extension(Stranger(peer)): Extension<Stranger>| {
        tracing::warn!("{peer} speaks plain HTTP over a network; it is told to use TLS");
        Refused::new(
            RefusalCode::TlsRequired,
            "plain HTTP is taken from this host only; from elsewhere this daemon speaks TLS 1.3 \
             (an older version of Tributary does not). The token in this request, if any, has \
             crossed the network readable: replace it",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_and_tls_for_all() {
        let near = ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"];
        let far = ["10.0.0.7", "0.0.0.0", "169.254.1.1", "fe80::1", "::ffff:10.0.0.7", "::"];
        for first_byte in 0..=u8::MAX {
            let tls = first_byte == 0x16;
            for (peers, plain) in [(&near[..], Scheme::Plain), (&far[..], Scheme::Exposed)] {
                for peer in peers {
                    let scheme = Scheme::of(first_byte, peer.parse().unwrap());
                    assert_eq!(scheme, if tls { Scheme::Tls } else { plain }, "{peer}");
                }
            }
        }
    }
}
