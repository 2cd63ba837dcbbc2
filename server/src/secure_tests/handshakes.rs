//! Who gets past the handshake, and for how long one may take.

use std::time::Duration;

use node::bundled::SAMPLE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{BOUND, INFER, LOAD, Trust};
use super::server::{Authority, Server};

#[tokio::test(flavor = "current_thread")]
async fn clients_need_a_certificate_of_the_authority() {
    let server = Server::with(BOUND, true).await;
    let authority = &server.authority.pem;
    let (own, foreign) = (server.authority.sign("client.example"), Authority::new().sign("client.example"));
    for certificate in [None, Some(&foreign)] {
        for (address, alpn) in [(server.http, "http/1.1"), (server.grpc, "h2"), (server.admin, "h2")] {
            // With TLS 1.3 the client learns of the refusal when it reads.
            let refused = match (Trust { authority, certificate }).connect(address, alpn).await {
                Err(_) => true,
                Ok(mut stream) => {
                    let _ = stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n").await;
                    !matches!(stream.read(&mut [0; 16]).await, Ok(read) if read > 0)
                }
            };
            assert!(refused, "{address}");
        }
    }
    let trust = Trust { authority, certificate: Some(&own) };
    let mut http = trust.http(server.http).await;
    assert_eq!(http.ask(&format!("POST {INFER}"), &[], SAMPLE).await.status, 200);
    assert_eq!(http.ask(&format!("POST {LOAD}"), &[], "").await.status, 403);
    let key = format!("x-api-key: {}", server.operate.key);
    assert_eq!(http.ask(&format!("POST {LOAD}"), &[&key], "").await.status, 200, "a key wins");
    assert_eq!(http.ask(&format!("POST {INFER}"), &["x-api-key: wrong"], SAMPLE).await.status, 401);
    let mut client = trust.grpc(server.grpc).await;
    client.server_metadata(oip::proto::ServerMetadataRequest {}).await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_handshake_and_the_request_after_it_are_bounded_in_time() {
    let server = Server::with(Duration::from_millis(100), false).await;
    let trust = Trust { authority: &server.authority.pem, certificate: None };
    let silent = TcpStream::connect(server.http).await.unwrap();
    let mut begun = TcpStream::connect(server.grpc).await.unwrap();
    begun.write_all(&[0x16, 3, 1, 2, 0]).await.unwrap();
    for mut stream in [silent, begun] {
        let closed = tokio::time::timeout(BOUND, stream.read(&mut [0; 16])).await.expect("closed in time");
        assert!(!matches!(closed, Ok(read) if read > 0), "{closed:?}");
    }
    for (address, alpn) in [(server.http, "http/1.1"), (server.http, "h2"), (server.grpc, "h2")] {
        let mut stream = trust.connect(address, alpn).await.unwrap();
        let read = tokio::time::timeout(BOUND, stream.read(&mut [0; 16])).await.expect("closed in time");
        assert!(!matches!(read, Ok(read) if read > 0), "{alpn} {read:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_port_with_tls_answers_nothing_in_the_clear() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.http).await.unwrap();
    stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut text = Vec::new();
    let _ = tokio::time::timeout(BOUND, stream.read_to_end(&mut text)).await.expect("closed in time");
    assert!(!text.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&text));
}
