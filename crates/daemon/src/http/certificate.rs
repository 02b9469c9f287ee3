//! The certificate of a token, and the TLS configuration that presents it.
//!
//! The certificate is a pure function of the token: the key pair is derived from it
//! ([`tributary_transport::token::Identity`]), every other field is fixed, and Ed25519 signs
//! without randomness. So it is stored nowhere, and the manager and all nodes of one token present
//! the same certificate, also after a restart.

use std::sync::Arc;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, SerialNumber, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use tributary_transport::tls::{SERVER_NAME, provider};
use tributary_transport::token::Token;

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

/// The TLS configuration of a server that holds `token`. Sessions are never resumed.
pub(super) fn server_config(token: &Token) -> Arc<ServerConfig> {
    let private_key = token.identity().private_key_der();
    let signer = any_eddsa_type(&PrivatePkcs8KeyDer::from(private_key))
        .expect("an identity's private key is one of Ed25519");
    let presented = CertifiedKey::new(vec![certificate(token).der().clone()], signer);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the profile's suites are of TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(presented)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}
