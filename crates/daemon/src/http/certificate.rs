//! The certificate of a token, and the TLS configuration that presents it.
//!
//! The certificate is a pure function of the token: the key pair is derived from it
//! ([`tributary_transport::token::Identity`]), every other field is fixed, and Ed25519 signs
//! without randomness. So it is stored nowhere, and the manager and all aggregators of one token present
//! the same certificate, also after a restart.

use std::collections::HashMap;
use std::sync::Arc;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, SerialNumber, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use tributary_transport::tls::{SERVER_NAME, provider};
use tributary_transport::token::Token;

use super::access::Access;

/// There is one certificate per token, so one serial number is enough.
const SERIAL_NUMBER: u64 = 1;

/// The first and the last year of validity. Replacing the token replaces the certificate earlier.
const YEARS: (i32, i32) = (2020, 9999);

/// The certificate, in PEM, that every daemon with this token presents. Tools on other hosts need
/// it to verify a daemon. It is no secret.
#[must_use]
pub fn certificate_pem(token: &Token) -> String {
    certificate(token).pem()
}

/// The certificate that a holder of `token` presents, self-signed.
pub(super) fn certificate(token: &Token) -> rcgen::Certificate {
    let private_key = token.identity().private_key_der();
    let pair = KeyPair::from_pkcs8_der_and_sign_algo(
        &PrivatePkcs8KeyDer::from(private_key.as_slice()),
        &PKCS_ED25519,
    )
    .expect("an identity's private key is one of Ed25519");
    let mut fields = CertificateParams::new([SERVER_NAME.to_owned()]).expect("it is a name");
    fields.distinguished_name = DistinguishedName::new();
    fields.distinguished_name.push(DnType::CommonName, SERVER_NAME);
    fields.serial_number = Some(SerialNumber::from(SERIAL_NUMBER));
    fields.not_before = date_time_ymd(YEARS.0, 1, 1);
    fields.not_after = date_time_ymd(YEARS.1, 12, 31);
    fields.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    fields.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    fields.self_signed(&pair).expect("fixed fields and a key at hand make a certificate")
}

/// The TLS configuration of a server that presents to each client the certificate of the client's own token.
/// Sessions are never resumed.
pub(super) fn server_config(access: &Access) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the profile's suites are of TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ByToken::new(access)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// Finds the certificate of the token that a client says to have: it asks for a server of that token's name
/// (RFC 6066, section 3).
#[derive(Debug)]
struct ByToken {
    /// For clients that ask for another name or none: tools, and older versions.
    operators: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl ByToken {
    fn new(access: &Access) -> Self {
        let presented = |token: &Token| {
            let private_key = token.identity().private_key_der();
            let signer = any_eddsa_type(&PrivatePkcs8KeyDer::from(private_key))
                .expect("an identity's private key is one of Ed25519");
            Arc::new(CertifiedKey::new(vec![certificate(token).der().clone()], signer))
        };
        let mut all =
            access.tokens().map(|token| (token.identity().public_key().name(), presented(token)));
        let operators = all.next().expect("the operator's comes first").1;
        Self { operators, by_name: all.collect() }
    }
}

impl ResolvesServerCert for ByToken {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let known = hello.server_name().and_then(|name| self.by_name.get(name));
        Some(Arc::clone(known.unwrap_or(&self.operators)))
    }
}
