//! Calls of a running server's REST interface.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use oip::metadata::ErrorBody;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

/// Largest response that is read.
const ANSWER_BYTES: usize = 16 << 20;
/// Bytes of an upload that are sent together.
const PART_BYTES: usize = 256 << 10;

/// Which server a command calls, and how.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Address of the server's REST interface, or of its admin listener. `https://` for TLS.
    #[arg(long, short, global = true, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub server: String,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

/// How a command shows a server who it is, and knows the server.
#[derive(Args, Clone, Debug, Default)]
pub struct CredentialArgs {
    /// API key or token to send.
    #[arg(long, global = true, value_name = "KEY", env = "TESSERA_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// Certificates (PEM) of the authorities that sign the server's certificate. Default: those of the system.
    #[arg(long, global = true, value_name = "FILE", env = "TESSERA_CA")]
    pub ca: Option<PathBuf>,
}

impl CredentialArgs {
    /// Value of the header `authorization`, if there is a key.
    pub fn authorization(&self) -> anyhow::Result<Option<HeaderValue>> {
        let Some(key) = &self.key else { return Ok(None) };
        let mut value = HeaderValue::try_from(format!("Bearer {key}"))
            .context("--key: expected visible ASCII characters, as `tessera key new` prints")?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// What the client trusts.
    pub fn tls(&self) -> anyhow::Result<Arc<rustls::ClientConfig>> {
        identity::client_tls(self.ca.as_deref()).map_err(|problem| anyhow::anyhow!("--ca: {problem}"))
    }
}

/// A server to call.
#[derive(Debug)]
pub struct Server {
    /// Host and port.
    pub authority: String,
    authorization: Option<HeaderValue>,
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Server {
    /// The server at an address with or without `http://` or `https://`.
    ///
    /// # Errors
    /// Says which option is wrong.
    pub fn new(address: &str, credentials: &CredentialArgs) -> anyhow::Result<Self> {
        let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
        ensure!(
            ["http", "https"].contains(&scheme),
            "`{address}`: expected HOST:PORT, http://HOST:PORT or https://HOST:PORT"
        );
        Ok(Self {
            authority: rest.trim_end_matches('/').to_owned(),
            authorization: credentials.authorization()?,
            tls: (scheme == "https").then(|| credentials.tls()).transpose()?,
        })
    }

    /// The body of a successful answer. The server's own words if it refuses.
    pub async fn call(&self, method: Method, path: &str) -> anyhow::Result<Bytes> {
        self.send(method, path, Bytes::new()).await
    }

    /// The same for a request with a body.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        self.exchange(method, path, full(body)).await?.read(&self.authority).await
    }

    /// The same for a body of any length.
    pub async fn upload(&self, path: &str, from: impl Read + Send + 'static) -> anyhow::Result<Bytes> {
        let (parts, sent) = mpsc::channel(1);
        let reading = std::thread::spawn(move || read_parts(from, &parts));
        let parts = ReceiverStream::new(sent).map(|part| part.map(Frame::data));
        let body = BodyExt::boxed(StreamBody::new(parts));
        let answered = self.exchange(Method::POST, path, body).await;
        let answer = match answered {
            Ok(exchange) => exchange.read(&self.authority).await,
            Err(error) => Err(error),
        };
        // Ends once the receiver is dropped.
        reading.join().map_err(|_| anyhow::anyhow!("the input could not be read"))?.context("the input")?;
        answer
    }

    /// Writes the body of a successful answer, of any length.
    pub async fn download(&self, path: &str, to: &mut impl Write) -> anyhow::Result<()> {
        let server = &self.authority;
        let mut exchange = self.exchange(Method::GET, path, full(Bytes::new())).await?;
        if exchange.status != StatusCode::OK {
            return exchange.read(server).await.map(drop);
        }
        while let Some(frame) = exchange.body.frame().await {
            let frame = frame.with_context(|| format!("{server}: the answer broke off"))?;
            if let Ok(part) = frame.into_data() {
                to.write_all(&part).context("the results cannot be written")?;
            }
        }
        Ok(())
    }

    async fn exchange(&self, method: Method, path: &str, body: Sent) -> anyhow::Result<Exchange> {
        let server = &self.authority;
        let stream = TcpStream::connect(server).await.with_context(|| {
            format!("cannot connect to {server}: expected the address of a running server's REST interface")
        })?;
        let Some(tls) = &self.tls else { return self.over(stream, method, path, body).await };
        let host = server.rsplit_once(':').map_or(server.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name =
            ServerName::try_from(host).with_context(|| format!("`{server}`: expected a host and a port"))?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
        let stream = stream.with_context(|| format!("{server}: the TLS handshake failed"))?;
        self.over(stream, method, path, body).await
    }

    async fn over<S>(&self, stream: S, method: Method, path: &str, body: Sent) -> anyhow::Result<Exchange>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = &self.authority;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header(HOST, server);
        let mut request = request.body(body)?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let response =
            sender.send_request(request).await.with_context(|| format!("{server} did not answer"))?;
        Ok(Exchange { status: response.status(), body: response.into_body(), driver })
    }
}

/// Body of a request.
type Sent = BoxBody<Bytes, io::Error>;

fn full(body: Bytes) -> Sent {
    Full::new(body).map_err(|never| match never {}).boxed()
}

/// An answer whose body was not read.
struct Exchange {
    status: StatusCode,
    body: Incoming,
    driver: JoinHandle<hyper::Result<()>>,
}

impl Exchange {
    /// The body of a successful answer. The server's own words if it refuses.
    async fn read(mut self, server: &str) -> anyhow::Result<Bytes> {
        let read = Limited::new(&mut self.body, ANSWER_BYTES).collect().await;
        let body = read.map_err(|error| anyhow::anyhow!("{server}: {error}"))?.to_bytes();
        if self.status != StatusCode::OK {
            match serde_json::from_slice::<ErrorBody>(&body) {
                Ok(refused) => bail!("{}{}", refused.error, advice(self.status)),
                Err(_) => bail!("{server} answered {}", self.status),
            }
        }
        Ok(body)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Reads in parts until the end, or until the receiver is dropped.
fn read_parts(mut from: impl Read, parts: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    loop {
        let mut part = vec![0; PART_BYTES];
        let length = from.read(&mut part)?;
        part.truncate(length);
        if length == 0 || parts.blocking_send(Ok(part.into())).is_err() {
            return Ok(());
        }
    }
}

impl ServerArgs {
    /// The server that the options name.
    ///
    /// # Errors
    /// Says which option is wrong.
    pub fn server(&self) -> anyhow::Result<Server> {
        Server::new(&self.server, &self.credentials)
    }
}

fn advice(status: StatusCode) -> &'static str {
    if status == StatusCode::UNAUTHORIZED { ": pass --key, or set TESSERA_KEY" } else { "" }
}

/// Runs calls to their end, for at most this long.
pub fn wait_for<T>(timeout: Duration, call: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(timeout, call).await.context("the server did not answer in time")?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_a_scheme_and_keys_must_fit_a_header() {
        let server = |address: &str| Server::new(address, &CredentialArgs::default());
        for address in ["127.0.0.1:8000", "http://127.0.0.1:8000/"] {
            let server = server(address).unwrap();
            assert_eq!((server.authority.as_str(), server.tls.is_none()), ("127.0.0.1:8000", true));
        }
        assert!(server("grpc://a:1").unwrap_err().to_string().contains("expected HOST:PORT"));
        let credentials = CredentialArgs { key: Some("a\nb".to_owned()), ..CredentialArgs::default() };
        assert!(Server::new("a:1", &credentials).unwrap_err().to_string().contains("--key"));
    }
}
