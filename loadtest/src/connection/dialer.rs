//! Opens connections, with or without TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::Failure;
use crate::target::{Endpoint, Protocol};

/// A connection to the server.
pub(crate) type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// Where connections go.
#[derive(Clone)]
pub(crate) struct Dialer {
    address: SocketAddr,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("address", &self.address).field("tls", &self.tls.is_some()).finish()
    }
}

impl Dialer {
    /// Connects to a server. `tls` is what the client trusts, for endpoints with TLS.
    ///
    /// # Errors
    /// The endpoint's host has no name that a certificate can have.
    pub fn new(
        endpoint: &Endpoint,
        address: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, String> {
        let Some(config) = tls.filter(|_| endpoint.tls) else { return Ok(Self { address, tls: None }) };
        let mut config = ClientConfig::clone(&config);
        // HTTP/2 over TLS is agreed on in the handshake.
        if endpoint.protocol != Protocol::Http {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let host = endpoint.authority.rsplit_once(':').map_or(endpoint.authority.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| format!("{endpoint}: {error}"))?;
        Ok(Self { address, tls: Some((TlsConnector::from(Arc::new(config)), name)) })
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Stream, Failure> {
        let failed = |error: std::io::Error| Failure::Connect(format!("{}: {error}", self.address));
        let stream = TcpStream::connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        match &self.tls {
            None => Ok(Either::Left(stream)),
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), stream).await;
                Ok(Either::Right(secured.map_err(|error| {
                    Failure::Connect(format!("{}: the TLS handshake failed: {error}", self.address))
                })?))
            }
        }
    }
}
