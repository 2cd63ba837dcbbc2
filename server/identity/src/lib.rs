//! Who calls: API keys, tokens and client certificates, and the TLS that protects them.
//!
//! HTTP and gRPC ask the same [`Authenticator`], so that a credential means the same on both. Everything that can be decided from
//! bytes is decided here without I/O; [`Identity`] alone reads files. It reads them again when they change, and keeps what it
//! has if the new content is wrong, because a server without keys could serve no caller.

#![forbid(unsafe_code)]

mod api_keys;
mod authenticator;
mod caller;
mod certificate;
mod client;
mod credential_file;
mod denied;
mod file;
mod host;
mod jwks;
mod key_generation;
mod settings;
mod store;
mod tls;
mod token;

pub use api_keys::ApiKeys;
pub use authenticator::Authenticator;
pub use caller::{Caller, DEFAULT_TENANT, Role, check_name};
pub use client::{client_tls, no_authorities};
pub use credential_file::{File, Mistake};
pub use denied::Denied;
pub use host::{Host, HostDenied};
pub use key_generation::{NewKey, new_key};
pub use settings::{ClientCertificates, Settings, TlsFiles, TokenSettings};
pub use store::{Identity, Reload};
pub use tls::{Alpn, Tls};
