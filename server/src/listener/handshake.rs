//! TLS handshakes, bounded in time.

use std::sync::Arc;
use std::time::Duration;

use identity::{Alpn, Tls};
use tokio::io::AsyncBufReadExt as _;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Protocols;
use super::write_timeout::TimeoutStream;
use crate::gate::CertificateCaller;

/// A connection after its handshake.
pub struct Secured {
    pub stream: TlsStream<TimeoutStream>,
    pub speaks_http2: bool,
    /// The caller that the certificate of the client stands for.
    pub caller: Option<CertificateCaller>,
}

/// Accepts a connection and waits for the first byte of its first request. `None` if that takes longer than `limit`, or fails.
pub async fn accept(
    tls: &Tls,
    protocols: Protocols,
    stream: TimeoutStream,
    limit: Duration,
) -> Option<Secured> {
    let alpn = match protocols {
        Protocols::Http => Alpn::Http,
        Protocols::Http2 => Alpn::Grpc,
    };
    let accepted = async {
        let mut stream = TlsAcceptor::from(tls.config(alpn)).accept(stream).await?;
        // Otherwise a client could finish the handshake and hold the connection without a request.
        let first = stream.fill_buf().await?.first().copied();
        Ok::<_, std::io::Error>((stream, first))
    };
    let (stream, first) = match tokio::time::timeout(limit, accepted).await {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(error)) => {
            tracing::debug!(%error, "connection closed in the TLS handshake");
            return None;
        }
        Err(_) => {
            tracing::debug!("connection closed: no request after the TLS handshake in time");
            return None;
        }
    };
    first?;
    let session = stream.get_ref().1;
    let speaks_http2 = match session.alpn_protocol() {
        Some(protocol) => protocol == b"h2",
        None => protocols == Protocols::Http2,
    };
    let caller = tls.caller(session.peer_certificates()).map(|caller| CertificateCaller(Arc::new(caller)));
    Some(Secured { stream, speaks_http2, caller })
}
