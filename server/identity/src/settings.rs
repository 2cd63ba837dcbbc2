//! Where credentials and certificates are, as the configuration says.

use std::path::PathBuf;
use std::time::Duration;

use crate::Role;

/// What to load. Everything is optional.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// File of API keys.
    pub keys: Option<PathBuf>,
    /// Tokens that are accepted.
    pub tokens: Option<TokenSettings>,
    /// Certificates of the listeners.
    pub tls: Option<TlsFiles>,
}

/// Tokens that are accepted.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// File with a JSON Web Key Set.
    pub jwks: PathBuf,
    /// Required value of `iss`.
    pub issuer: String,
    /// Accepted values of `aud`, at least one.
    pub audiences: Vec<String>,
    /// Tolerated difference of the clocks.
    pub leeway: Duration,
    /// Name or dotted path of the claim with the role.
    pub role_claim: String,
    /// Name or dotted path of the claim with the tenant.
    pub tenant_claim: String,
}

/// Files of TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain of the server, its own certificate first.
    pub cert: PathBuf,
    /// Private key of the server.
    pub key: PathBuf,
    /// Client certificates, if they are required.
    pub clients: Option<ClientCertificates>,
}

/// Which client certificates are accepted, and who they stand for.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// Certificates of the authorities that sign client certificates.
    pub ca: PathBuf,
    /// Role of a caller with such a certificate and no other credential.
    pub role: Role,
    /// Tenant of such a caller.
    pub tenant: String,
}
