//! Clients that check the certificate of the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::body::Body;

use crate::grpc::proto::grpc_inference_service_client::GrpcInferenceServiceClient;

/// Only a failure reaches it.
pub const BOUND: Duration = Duration::from_secs(20);
pub const LOAD: &str = "/v2/repository/models/digits/load";
pub const INFER: &str = "/v2/models/digits/infer";

/// What a client trusts and shows.
pub struct Trust<'a> {
    pub authority: &'a str,
    pub certificate: Option<&'a (String, String)>,
}

impl Trust<'_> {
    pub async fn connect(&self, address: SocketAddr, alpn: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match self.certificate {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                    .unwrap()
            }
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// A connection for HTTP/1.1.
    pub async fn http(&self, address: SocketAddr) -> Http {
        Http(self.connect(address, "http/1.1").await.unwrap())
    }

    /// The generated client over TLS.
    pub async fn grpc(
        &self,
        address: SocketAddr,
    ) -> GrpcInferenceServiceClient<
        impl tower::Service<
            http::Request<Body>,
            Response = http::Response<Incoming>,
            Error = Box<dyn std::error::Error + Send + Sync>,
            Future = impl Future<
                Output = Result<http::Response<Incoming>, Box<dyn std::error::Error + Send + Sync>>,
            > + Send,
        > + Clone,
    > {
        let io = TokioIo::new(self.connect(address, "h2").await.unwrap());
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        GrpcInferenceServiceClient::new(tower::service_fn(move |mut request: http::Request<Body>| {
            let mut sender = sender.clone();
            *request.uri_mut() = format!("https://localhost{}", request.uri().path()).parse().unwrap();
            async move { Ok(sender.send_request(request).await?) }
        }))
    }
}

/// A kept connection.
pub struct Http(TlsStream<TcpStream>);

/// Status, headers and body of an answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn has(&self, header: &str) -> bool {
        self.head.contains(&format!("\r\n{header}\r\n"))
    }
}

impl Http {
    /// Sends a request with these header lines and reads its answer.
    pub async fn ask(&mut self, target: &str, headers: &[&str], body: &str) -> Answer {
        let host =
            if headers.iter().any(|line| line.starts_with("host:")) { "" } else { "host: localhost\r\n" };
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let text = format!("{target} HTTP/1.1\r\n{host}{lines}content-length: {length}\r\n\r\n{body}");
        self.0.write_all(text.as_bytes()).await.unwrap();
        tokio::time::timeout(BOUND, self.read()).await.expect("an answer in time")
    }

    async fn read(&mut self) -> Answer {
        let mut text = Vec::new();
        loop {
            if let Some((head, body)) = String::from_utf8_lossy(&text).split_once("\r\n\r\n") {
                let head = format!("{head}\r\n");
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                let length: usize = length.map_or(0, |digits| digits.parse().unwrap());
                if body.len() >= length {
                    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                    return Answer { status, head, body: body.to_owned() };
                }
            }
            assert!(
                self.0.read_buf(&mut text).await.unwrap() > 0,
                "closed: {}",
                String::from_utf8_lossy(&text)
            );
        }
    }

    pub fn session(&self) -> &tokio_rustls::rustls::ClientConnection {
        self.0.get_ref().1
    }
}
