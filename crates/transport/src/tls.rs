//! What both ends of a control connection mean by TLS.
//!
//! Owns the profile (TLS 1.3, RFC 8446, with one key exchange and one kind of signature), how a
//! client knows the server of its own token, and what went wrong when it doesn't. Knows nothing of
//! sockets or HTTP: those who have them bring them to `rustls`.
//!
//! No authority is asked, no name compared and no date looked at: a server is right if it proves to
//! hold the private half of the key pair that the client's own token stands for
//! ([`crate::token::Identity`]), and nobody without that token can.

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

/// The name in every manager's and node's certificate, whatever the host is called: what tells one
/// from another is the key. Under `.tributary`, which no public name ends with.
pub const SERVER_NAME: &str = "manager.tributary";

/// What every TLS connection starts with: the type of a record that holds a handshake (RFC 8446,
/// section 5.1). No request of HTTP starts with it.
pub const HANDSHAKE_RECORD: u8 = 0x16;

/// Why a server could not be spoken to over TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// It proved to hold another token's key. One of the two token files is the wrong one.
    #[error("it has another token than this side (its certificate is of another key)")]
    OtherToken,
    /// It answered something else than TLS.
    #[error("it does not speak TLS: an older version of Tributary, or something else altogether")]
    NotTls,
    /// It closed the connection before it could be trusted.
    #[error("it closed the connection before the two had agreed on keys")]
    Closed,
    /// Both speak TLS, but not this profile of it.
    #[error("it and this side have no common way to speak TLS: {0}")]
    Incompatible(rustls::Error),
    /// The connection failed beneath TLS.
    #[error(transparent)]
    Connection(io::Error),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(_) => Self::OtherToken,
            // The first bytes aren't a record, or not one that can come here.
            rustls::Error::InvalidMessage(_)
            | rustls::Error::InappropriateMessage { .. }
            | rustls::Error::PeerSentOversizedRecord => Self::NotTls,
            other => Self::Incompatible(other),
        }
    }
}

impl From<io::Error> for TlsError {
    /// Takes apart what `rustls` and those around it wrap into an error of the system.
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(inner) => inner.clone().into(),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            None => Self::Connection(error),
        }
    }
}

/// How a holder of `token` connects to a server that holds it too.
///
/// Every connection makes keys of its own, and none is resumed: who learns the token later can't
/// read what was said before (forward secrecy).
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
    // The name is the same everywhere, and says to whoever listens what this is.
    config.enable_sni = false;
    Arc::new(config)
}

/// The name to give `rustls` for every server.
#[must_use]
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).expect("it is a name")
}

/// The profile: one exchange of keys, one kind of signature, and a cipher for processors with and
/// one for those without instructions for AES. Brought by hand instead of taken from the library,
/// so that neither code nor doors come along that nobody here uses, and without the library's
/// process-wide default, which belongs to the application in whose process this may run.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519],
        // For chains of certificates, of which there are none.
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
    /// The certificate's key is compared and nothing else of it; that the server also holds the
    /// private half is for [`Self::verify_tls13_signature`] to say.
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

/// Random bytes from where all others here come from.
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
