//! Keys and certificates that are replaced under open connections.

use std::fs;

use identity::new_key;
use node::bundled::SAMPLE;
use oip::proto as pb;

use super::client::{INFER, Trust};
use super::server::Server;

#[tokio::test(flavor = "current_thread")]
async fn a_new_certificate_is_for_new_connections_and_open_ones_go_on() {
    let server = Server::start().await;
    let trust = Trust { authority: &server.authority.pem, certificate: None };
    let key = format!("authorization: Bearer {}", server.infer.key);
    let (mut open, mut client) = (trust.http(server.http).await, trust.grpc(server.grpc).await);
    let post = format!("POST {INFER}");
    assert_eq!(open.ask(&post, &[&key], SAMPLE).await.status, 200);
    let first = open.session().peer_certificates().unwrap().to_vec();

    let (cert, private) = server.authority.sign("localhost");
    fs::write(server.path("cert"), cert).unwrap();
    fs::write(server.path("key"), private).unwrap();
    server.refresh();
    assert_eq!(open.ask(&post, &[&key], SAMPLE).await.status, 200, "the open connection goes on");
    assert!(client.server_live(pb::ServerLiveRequest {}).await.unwrap().into_inner().live);
    let mut new = trust.http(server.http).await;
    assert_ne!(new.session().peer_certificates().unwrap(), first);
    assert_eq!(new.ask(&post, &[&key], SAMPLE).await.status, 200);

    // An unreadable file changes nothing.
    let current = server.tls();
    fs::write(server.path("cert"), "no certificate").unwrap();
    server.identity.refresh();
    assert!(server.identity.refresh()[0].result.is_err());
    assert!(std::sync::Arc::ptr_eq(&current, &server.tls()));
    assert_eq!(trust.http(server.http).await.ask(&post, &[&key], SAMPLE).await.status, 200);
}

#[tokio::test(flavor = "current_thread")]
async fn new_keys_count_from_the_next_request_of_an_open_connection() {
    let server = Server::start().await;
    let trust = Trust { authority: &server.authority.pem, certificate: None };
    let mut open = trust.http(server.http).await;
    let new = new_key().unwrap();
    let headers = [&server.infer.key, &new.key].map(|key| format!("authorization: Bearer {key}"));
    let post = format!("POST {INFER}");
    let before = [
        open.ask(&post, &[&headers[0]], SAMPLE).await.status,
        open.ask(&post, &[&headers[1]], SAMPLE).await.status,
    ];
    assert_eq!(before, [200, 401]);
    fs::write(server.path("keys"), format!("{} infer search", new.sha256)).unwrap();
    server.refresh();
    let after = [
        open.ask(&post, &[&headers[0]], SAMPLE).await.status,
        open.ask(&post, &[&headers[1]], SAMPLE).await.status,
    ];
    assert_eq!(after, [401, 200]);
}
