//! TLS of clients of a server.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// What a client trusts: the authorities in a PEM file, or those of the system.
///
/// # Errors
/// Says what is wrong with the file, or that the system has no authorities.
pub fn client_tls(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            let shown = path.display();
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| format!("{shown}: {error}"))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| format!("{shown}: {error}"))?;
                roots.add(certificate).map_err(|error| format!("{shown}: {error}"))?;
            }
            if roots.is_empty() {
                return Err(format!("{shown}: expected at least one certificate in PEM"));
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                let errors: Vec<String> = system.errors.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "the system has no certificates of authorities: name a file of them {}",
                    errors.join(", ")
                )
                .trim_end()
                .to_owned());
            }
        }
    }
    trusting(roots)
}

/// TLS of a client that makes no connection with TLS: it trusts no authority.
///
/// # Errors
/// TLS is not available.
pub fn no_authorities() -> Result<Arc<ClientConfig>, String> {
    trusting(RootCertStore::empty())
}

fn trusting(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        assert!(client_tls(Some(&path)).unwrap_err().contains("ca.crt"));
        std::fs::write(&path, "nothing").unwrap();
        assert!(client_tls(Some(&path)).unwrap_err().contains("expected at least one certificate"));
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(&path, made.pem()).unwrap();
        client_tls(Some(&path)).unwrap();
    }
}
