//! The TLS profile of control connections.
//!
//! Owns the profile (TLS 1.3, RFC 8446, with one key exchange and one kind of signature), how a
//! client recognizes a server that holds its token, and the errors if it does not. Knows nothing of
//! sockets or HTTP: callers combine those with `rustls`.
//!
//! There is no certificate authority, and names and dates are not checked. A client accepts a
//! server that proves to hold the private half of the key pair derived from the client's own token
//! ([`crate::token::Identity`]). Nobody without the token can prove that.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{cipher_suite, kx_group, sign};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SigningKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, PeerIncompatible, SignatureScheme,
};

use crate::token::{PublicKey, Token, random_bytes};

/// The name in every manager's and aggregator's certificate, whatever the host is called: clients check
/// the key. No public name ends with `.tributary`.
pub const SERVER_NAME: &str = "manager.tributary";

/// The first byte of every TLS connection: the type of a handshake record (RFC 8446, section 5.1).
/// No HTTP request starts with it.
pub const HANDSHAKE_RECORD: u8 = 0x16;

/// Why a TLS connection to a server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The server holds another token's key. One of the two token files is the wrong one.
    #[error("it has another token than this side (its certificate is of another key)")]
    OtherToken,
    /// The server does not speak TLS.
    #[error("it does not speak TLS: an older version of Tributary, or something else altogether")]
    NotTls,
    /// The server closed the connection during the handshake.
    #[error("it closed the connection before the two had agreed on keys")]
    Closed,
    /// Both speak TLS, but not this profile of it.
    #[error("it and this side have no common way to speak TLS: {0}")]
    Incompatible(rustls::Error),
    /// The TCP connection failed.
    #[error(transparent)]
    Connection(io::Error),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(_) => Self::OtherToken,
            // The first bytes are no TLS record, or one that is not allowed here.
            rustls::Error::InvalidMessage(_)
            | rustls::Error::InappropriateMessage { .. }
            | rustls::Error::PeerSentOversizedRecord => Self::NotTls,
            other => Self::Incompatible(other),
        }
    }
}

impl From<io::Error> for TlsError {
    /// Finds the `rustls` error inside an I/O error.
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(inner) => inner.clone().into(),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            None => Self::Connection(error),
        }
    }
}

/// The configuration with which a holder of `token` connects to a server that holds it too.
///
/// Every connection makes new keys, and none is resumed: somebody who learns the token later cannot
/// decrypt earlier traffic (forward secrecy).
#[must_use]
pub fn client_config(token: &Token) -> Arc<ClientConfig> {
    let expected = Arc::new(SameToken { public_key: token.identity().public_key() });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the profile's suites are of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(expected)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// The name to give `rustls` for a server that holds `token`. It travels in clear, and tells a server with several
/// tokens which one its client has; it does not help to guess the token any more than the certificate does.
#[must_use]
pub fn server_name(token: &Token) -> ServerName<'static> {
    ServerName::try_from(token.identity().public_key().name()).expect("it is a name")
}

/// The profile: one key exchange, one kind of signature, and one cipher each for processors with
/// and without AES instructions. It is not the library's default provider: that has more
/// algorithms, an attack surface that nobody here uses, and its process-wide default belongs to the
/// application in whose process this may run.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519],
        // There are no certificate chains to verify.
        signature_verification_algorithms: WebPkiSupportedAlgorithms { all: &[], mapping: &[] },
        secure_random: &Kernel,
        key_provider: &Ed25519Keys,
    })
}

/// Accepts a server that holds the private half of one key.
#[derive(Debug)]
struct SameToken {
    public_key: PublicKey,
}

impl ServerCertVerifier for SameToken {
    /// Compares the certificate's key and no other field. [`Self::verify_tls13_signature`] checks
    /// that the server also holds the private half.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if certificate.subject_public_key_info().as_ref() == self.public_key.der() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let is_ours = signed.scheme == SignatureScheme::ED25519
            && self.public_key.has_signed(message, signed.signature());
        if is_ours {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Random bytes from the kernel.
#[derive(Debug)]
struct Kernel;

impl SecureRandom for Kernel {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        const PIECE_BYTES: usize = 32;
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            let random: [u8; PIECE_BYTES] = random_bytes().map_err(|_| GetRandomFailed)?;
            piece.copy_from_slice(&random[..piece.len()]);
        }
        Ok(())
    }
}

/// Loads private keys of the profile's one kind.
#[derive(Debug)]
struct Ed25519Keys;

impl KeyProvider for Ed25519Keys {
    fn load_private_key(
        &self,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        match &key {
            PrivateKeyDer::Pkcs8(key) => sign::any_eddsa_type(key),
            _ => Err(rustls::Error::General("not a key in PKCS #8".to_owned())),
        }
    }
}
