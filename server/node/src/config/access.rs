//! `[identity]` and `[tls]`: who may call, and with which certificates.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use documented::{Documented, DocumentedFields};
use identity::{
    ClientCertificates, DEFAULT_TENANT, Identity as LoadedIdentity, Role, Settings, TlsFiles, TokenSettings,
};
use models::TimeSpan;
use serde::{Deserialize, Serialize};

use super::Config;

/// Largest `identity.leeway`: a longer one would keep expired tokens in use.
const LEEWAY_MAX: Duration = Duration::from_secs(600);
/// Names in one list.
const NAMES_MAX: usize = 256;

/// `[identity]`: who may call. Without `keys`, `jwks` and `tls.client_ca`, callers do not have to say who they are.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Identity {
    /// File of API keys, with a line `SHA256 ROLE TENANT [NAME]` for each, as `tessera key new` prints it. It is read again when it
    /// changes. Default: none. Example: `"/etc/tessera/keys"`.
    pub keys: Option<PathBuf>,
    /// File with a JSON Web Key Set, whose keys sign tokens (JWT). It is read again when it changes. Needs `issuer` and `audience`.
    /// Default: none. Example: `"/etc/tessera/jwks.json"`.
    pub jwks: Option<PathBuf>,
    /// Required `iss` of tokens. Default: none. Example: `"https://login.example.com"`.
    pub issuer: Option<String>,
    /// Accepted values of `aud` in tokens. Default: none. Example: `["tessera"]`.
    pub audience: Vec<String>,
    /// How much the clocks of issuer and server may differ, at most 10 minutes.
    #[serde(serialize_with = "units::text")]
    pub leeway: TimeSpan,
    /// Claim with the role: `infer`, `read` or `operate`, also in a list or between spaces. Of several roles, `operate` wins, then
    /// `infer`. A dotted path names a claim inside another one.
    pub role_claim: String,
    /// Claim with the tenant, the name of a table of `[tenants]`.
    pub tenant_claim: String,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            keys: None,
            jwks: None,
            issuer: None,
            audience: Vec::new(),
            leeway: TimeSpan(Duration::from_secs(60)),
            role_claim: "role".to_owned(),
            tenant_claim: "tenant".to_owned(),
        }
    }
}

/// `[tls]`: certificates of the server and of clients, in PEM. The files are read again when they change. New connections get the new
/// certificate, and open ones keep the old one.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Certificate chain of the server, its own certificate first. Default: none, no TLS. Example: `"/etc/tessera/tls.crt"`.
    pub cert: Option<PathBuf>,
    /// Private key of the certificate. Default: none. Example: `"/etc/tessera/tls.key"`.
    pub key: Option<PathBuf>,
    /// Certificates of authorities. If set, clients need a certificate that one of them signed. Default: none.
    /// Example: `"/etc/tessera/ca.crt"`.
    pub client_ca: Option<PathBuf>,
    /// Role of a caller with a client certificate and without a key or token: `infer`, `read` or `operate`.
    pub client_role: Role,
    /// Tenant of such a caller. Its name is the first DNS name of the certificate, or else the common name.
    pub client_tenant: String,
    /// Addresses of `[server]` that use TLS.
    pub listeners: Vec<TlsListener>,
}

/// An address that may use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsListener {
    /// `server.http`.
    Http,
    /// `server.grpc`.
    Grpc,
    /// `server.metrics`.
    Metrics,
    /// `server.admin`.
    Admin,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            cert: None,
            key: None,
            client_ca: None,
            client_role: Role::Infer,
            client_tenant: DEFAULT_TENANT.to_owned(),
            listeners: vec![TlsListener::Http, TlsListener::Grpc, TlsListener::Metrics, TlsListener::Admin],
        }
    }
}

/// Who may change models through the inference listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelControl {
    /// Callers of role `operate`.
    #[default]
    Operate,
    /// Every caller that is known.
    Open,
}

impl Config {
    /// Whether callers have to say who they are.
    pub fn authenticates(&self) -> bool {
        self.identity.keys.is_some() || self.identity.jwks.is_some() || self.tls.client_ca.is_some()
    }

    /// Whether this listener uses TLS.
    pub fn uses_tls(&self, listener: TlsListener) -> bool {
        self.tls.cert.is_some() && self.tls.listeners.contains(&listener)
    }

    /// The files of `[identity]` and `[tls]`.
    pub fn identity_settings(&self) -> Settings {
        let Self { identity, tls, .. } = self;
        let tokens = identity.jwks.as_ref().map(|jwks| TokenSettings {
            jwks: jwks.clone(),
            issuer: identity.issuer.clone().unwrap_or_default(),
            audiences: identity.audience.clone(),
            leeway: identity.leeway.0,
            role_claim: identity.role_claim.clone(),
            tenant_claim: identity.tenant_claim.clone(),
        });
        let clients = tls.client_ca.as_ref().map(|ca| ClientCertificates {
            ca: ca.clone(),
            role: tls.client_role,
            tenant: tls.client_tenant.clone(),
        });
        let files = tls.cert.as_ref().zip(tls.key.as_ref());
        let tls = files.map(|(cert, key)| TlsFiles { cert: cert.clone(), key: key.clone(), clients });
        Settings { keys: identity.keys.clone(), tokens, tls }
    }

    /// Checks `[identity]`, `[tls]` and the settings of the admin listener, with the content of their files.
    pub(super) fn check_access(&self, report: &mut impl FnMut(&str, String)) {
        let faults = Cell::new(0_usize);
        let mut report = |path: &str, message: String| {
            faults.set(faults.get() + 1);
            report(path, message);
        };
        self.check_files(&mut report);
        self.check_tokens(&mut report);
        self.check_names(&mut report);
        let admin = self.server.admin;
        if !admin.ip().is_loopback() && !self.authenticates() {
            let loopback = SocketAddr::from(([127, 0, 0, 1], admin.port()));
            report(
                "server.admin",
                format!(
                    "{admin} lets other machines change this server without authentication: expected `identity.keys`, or \
                     `server.admin = \"{loopback}\"`"
                ),
            );
        }
        if faults.get() > 0 {
            return;
        }
        if let Err(mistakes) = LoadedIdentity::load(self.identity_settings()) {
            for mistake in mistakes {
                report(mistake.file.setting(), mistake.message);
            }
        }
    }

    fn check_files(&self, report: &mut impl FnMut(&str, String)) {
        let Self { identity, tls, .. } = self;
        if let Some(jwks) = identity.jwks.as_deref().filter(|jwks| is_url(jwks)) {
            report("identity.jwks", format!("`{}`: URLs are not supported, expected a file", jwks.display()));
        }
        for (path, file) in [
            ("identity.keys", &identity.keys),
            ("identity.jwks", &identity.jwks),
            ("tls.cert", &tls.cert),
            ("tls.key", &tls.key),
            ("tls.client_ca", &tls.client_ca),
        ] {
            if let Some(file) = file.as_deref().filter(|file| !file.is_file() && !is_url(file)) {
                report(
                    path,
                    format!("no file `{}`: expected a file that the server can read", file.display()),
                );
            }
        }
        if tls.cert.is_some() && tls.key.is_none() {
            report("tls.key", "not set: expected the private key of `tls.cert`".to_owned());
        }
        if tls.key.is_some() && tls.cert.is_none() {
            report("tls.cert", "not set: expected the certificate of `tls.key`".to_owned());
        }
        if tls.client_ca.is_some() && tls.cert.is_none() {
            report("tls.client_ca", "has no effect without `tls.cert`: expected both".to_owned());
        }
        if tls.cert.is_some() && tls.listeners.is_empty() {
            report("tls.listeners", "expected at least one of http, grpc, metrics and admin".to_owned());
        }
    }

    fn check_tokens(&self, report: &mut impl FnMut(&str, String)) {
        let identity = &self.identity;
        let issuer = identity.issuer.as_deref().is_some_and(|issuer| !issuer.is_empty());
        let audience = !identity.audience.is_empty() && identity.audience.iter().all(|one| !one.is_empty());
        for (path, set, valid) in [
            ("identity.issuer", identity.issuer.is_some(), issuer),
            ("identity.audience", !identity.audience.is_empty(), audience),
        ] {
            if identity.jwks.is_some() && !valid {
                report(
                    path,
                    "not set: `identity.jwks` needs it, or tokens for other services would be valid here"
                        .to_owned(),
                );
            } else if identity.jwks.is_none() && set {
                report(path, "has no effect without `identity.jwks`: expected both".to_owned());
            }
        }
        if identity.leeway.0 > LEEWAY_MAX {
            report(
                "identity.leeway",
                format!("{}: expected at most {}", identity.leeway, TimeSpan(LEEWAY_MAX)),
            );
        }
        for (path, claim) in [("role_claim", &identity.role_claim), ("tenant_claim", &identity.tenant_claim)]
        {
            if claim.is_empty() {
                report(
                    &format!("identity.{path}"),
                    "expected the name of a claim, got an empty one".to_owned(),
                );
            }
        }
    }

    fn check_names(&self, report: &mut impl FnMut(&str, String)) {
        if let Err(expected) = identity::check_name(&self.tls.client_tenant) {
            report("tls.client_tenant", expected);
        }
        let is_host = |name: &String| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        };
        let names = &self.server.admin_names;
        if let Some(name) = names.iter().find(|name| !is_host(name)) {
            report("server.admin_names", format!("`{name}`: expected a host name without port"));
        }
        if names.len() > NAMES_MAX {
            report("server.admin_names", format!("{} names: expected at most {NAMES_MAX}", names.len()));
        }
    }
}

fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("https://") || text.starts_with("http://"))
}
