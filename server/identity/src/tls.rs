//! TLS of the listeners. New certificates apply to new connections; open ones finish with what they began with.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::credential_file::{File, Mistake};
use crate::settings::ClientCertificates;
use crate::{Caller, certificate, check_name};

/// Which protocols a listener offers in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/2 and HTTP/1.1.
    Http,
    /// HTTP/2 only.
    Grpc,
}

/// Content of the files of TLS.
pub struct Pem<'a> {
    pub cert: &'a [u8],
    pub key: &'a [u8],
    pub client_ca: Option<&'a [u8]>,
}

/// What one set of files gives.
struct Loaded {
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
    cert_expires: Option<SystemTime>,
    ca_expires: Option<SystemTime>,
}

/// The current certificates.
pub struct Tls {
    clients: Option<ClientCertificates>,
    loaded: ArcSwap<Loaded>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Private keys are inside.
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files for the first time.
    pub(crate) fn new(pem: &Pem<'_>, clients: Option<ClientCertificates>) -> Result<Self, Mistake> {
        Ok(Self { clients, loaded: ArcSwap::from_pointee(Loaded::new(pem)?) })
    }

    /// Replaces the certificates.
    pub(crate) fn replace(&self, pem: &Pem<'_>) -> Result<(), Mistake> {
        self.loaded.store(Arc::new(Loaded::new(pem)?));
        Ok(())
    }

    /// What the next connection is accepted with.
    pub fn config(&self, alpn: Alpn) -> Arc<ServerConfig> {
        let loaded = self.loaded.load();
        match alpn {
            Alpn::Http => Arc::clone(&loaded.http),
            Alpn::Grpc => Arc::clone(&loaded.grpc),
        }
    }

    /// The caller that the certificate of a client stands for. The handshake has checked the certificate.
    pub fn caller(&self, certificates: Option<&[CertificateDer<'_>]>) -> Option<Caller> {
        let clients = self.clients.as_ref()?;
        let subject = certificate::subject(certificates?.first()?).filter(|name| check_name(name).is_ok());
        let name = subject.unwrap_or_else(|| "certificate".to_owned());
        Some(Caller { role: clients.role, tenant: clients.tenant.as_str().into(), name: name.into() })
    }

    /// When the first certificate of each file expires.
    pub(crate) fn expiries(&self) -> Vec<(File, SystemTime)> {
        let loaded = self.loaded.load();
        let each = [(File::Cert, loaded.cert_expires), (File::ClientCa, loaded.ca_expires)];
        each.into_iter().filter_map(|(file, expires)| Some((file, expires?))).collect()
    }
}

impl Loaded {
    fn new(pem: &Pem<'_>) -> Result<Self, Mistake> {
        let of = |file| move |message| Mistake { file, message };
        let chain = certificate::certificates(pem.cert).map_err(of(File::Cert))?;
        let cert_expires = certificate::expires(&chain);
        let key = certificate::private_key(pem.key).map_err(of(File::Key))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authorities =
            pem.client_ca.map(certificate::certificates).transpose().map_err(of(File::ClientCa))?;
        let ca_expires = authorities.as_deref().and_then(certificate::expires);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| of(File::Cert)(error.to_string()))?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => builder
                .with_client_cert_verifier(verifier(authorities, provider).map_err(of(File::ClientCa))?),
        };
        let mut http = builder
            .with_single_cert(chain, key)
            .map_err(|error| of(File::Key)(format!("expected the key of the certificate: {error}")))?;
        let mut grpc = http.clone();
        http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        grpc.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { http: Arc::new(http), grpc: Arc::new(grpc), cert_expires, ca_expires })
    }
}

/// Requires a client certificate that one of the authorities signed.
fn verifier(
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| format!("expected certificates of authorities: {error}"))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format!("expected certificates of authorities: {error}"))
}
