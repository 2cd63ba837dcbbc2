//! Real TLS connections to real listeners: credentials, certificates and roles as clients meet them.

mod client;
mod credentials;
mod handshakes;
mod rotation;
mod server;
