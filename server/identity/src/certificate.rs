//! Certificates in PEM: what a file holds, when it expires, and whom a certificate names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Certificates of a file.
const CERTIFICATES_MAX: usize = 1024;

/// The certificates of a PEM file, at least one.
///
/// # Errors
/// What was expected.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("expected certificates in PEM: {error}"))?;
        X509Certificate::from_der(&certificate)
            .map_err(|error| format!("certificate {}: expected X.509: {error}", certificates.len() + 1))?;
        certificates.push(certificate);
        if certificates.len() > CERTIFICATES_MAX {
            return Err(format!("expected at most {CERTIFICATES_MAX} certificates"));
        }
    }
    if certificates.is_empty() {
        return Err("no certificate: expected PEM with `-----BEGIN CERTIFICATE-----`".to_owned());
    }
    Ok(certificates)
}

/// The private key of a PEM file.
///
/// # Errors
/// What was expected.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| "no private key: expected PEM with `-----BEGIN PRIVATE KEY-----`".to_owned())
}

/// When the first of these certificates expires.
pub fn expires(certificates: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let expires = |certificate: &CertificateDer<'_>| {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    };
    certificates.iter().filter_map(expires).min()
}

/// Whom a certificate names: its first DNS name, or else the common name of its subject.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok().flatten();
    let dns = names.iter().flat_map(|names| &names.value.general_names).find_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    dns.or_else(|| parsed.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned))
}
