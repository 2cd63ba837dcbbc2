//! Real sockets on loopback; every wait is for an event, with a bound that only a failure reaches.

mod slow_readers;

use std::sync::Arc;

use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};

use super::*;

const BOUND: Duration = Duration::from_secs(20);

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connections: 8,
        header_bytes: 2048,
        header_timeout: BOUND,
        answer_timeout: BOUND,
        streams: 16,
    }
}

/// A server whose requests wait to be released, and which reports how they ended.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    release: Arc<Notify>,
    events: mpsc::UnboundedReceiver<&'static str>,
    serving: tokio::task::JoinHandle<()>,
}

/// Reports that a request's future ended without an answer.
struct Dropped(Option<mpsc::UnboundedSender<&'static str>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(events) = self.0.take() {
            let _ = events.send("dropped");
        }
    }
}

impl Server {
    async fn start(protocols: Protocols, limits: ConnectionLimits) -> Self {
        let listener = Listener::bind("test", SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.address;
        let (events_in, events) = mpsc::unbounded_channel();
        let (stop, release) = (CancellationToken::new(), Arc::new(Notify::new()));
        let waiting = Arc::clone(&release);
        let answer = service(move |_request: Request<Incoming>| {
            let (events, waiting) = (events_in.clone(), Arc::clone(&waiting));
            async move {
                let _ = events.send("started");
                let mut dropped = Dropped(Some(events.clone()));
                waiting.notified().await;
                dropped.0 = None;
                let _ = events.send("answered");
                Response::new(Full::new(Bytes::from_static(b"done")))
            }
        });
        let serving = tokio::spawn(listener.serve(protocols, limits, answer, stop.clone()));
        Self { address, stop, release, events, serving }
    }

    async fn event(&mut self) -> &'static str {
        tokio::time::timeout(BOUND, self.events.recv()).await.expect("an event in time").unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn stopped(self) {
        tokio::time::timeout(BOUND, self.serving).await.expect("stops in time").unwrap();
    }
}

/// All that the server sends until it closes.
async fn read_all(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset after the answer still leaves the answer.
    let _ = tokio::time::timeout(BOUND, stream.read_to_end(&mut text)).await.expect("closed in time");
    String::from_utf8_lossy(&text).into_owned()
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const GET_AND_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[test]
fn the_prepared_refusal_is_a_whole_message() {
    let text = std::str::from_utf8(FULL).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"].is_string());
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_that_leaves_cancels_its_request_over_http1() {
    let mut server = Server::start(Protocols::Http, limits()).await;
    let mut client = server.connect().await;
    client.write_all(GET).await.unwrap();
    assert_eq!(server.event().await, "started");
    drop(client);
    assert_eq!(server.event().await, "dropped");
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_that_leaves_cancels_its_request_over_http2() {
    let mut server = Server::start(Protocols::Http2, limits()).await;
    let io = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = || Request::builder().uri("http://x/").body(Empty::<Bytes>::new()).unwrap();
    // One stream is reset, with the connection open.
    let first = tokio::spawn(sender.send_request(request()));
    assert_eq!(server.event().await, "started");
    first.abort();
    assert_eq!(server.event().await, "dropped");
    // The other still is answered.
    let second = tokio::spawn(sender.send_request(request()));
    assert_eq!(server.event().await, "started");
    server.release.notify_waiters();
    let body = second.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.as_ref(), b"done");
}

#[tokio::test(flavor = "current_thread")]
async fn one_port_speaks_both_versions_of_http() {
    let mut server = Server::start(Protocols::Http, limits()).await;
    let mut old = server.connect().await;
    old.write_all(GET_AND_CLOSE).await.unwrap();
    assert_eq!(server.event().await, "started");
    server.release.notify_waiters();
    assert!(read_all(old).await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(server.event().await, "answered");

    let io = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().uri("http://x/").body(Empty::<Bytes>::new()).unwrap();
    let answer = tokio::spawn(sender.send_request(request));
    assert_eq!(server.event().await, "started");
    server.release.notify_waiters();
    assert_eq!(answer.await.unwrap().unwrap().version(), http::Version::HTTP_2);
}

#[tokio::test(flavor = "current_thread")]
async fn the_grpc_port_closes_on_http1() {
    let server = Server::start(Protocols::Http2, limits()).await;
    let mut client = server.connect().await;
    client.write_all(GET).await.unwrap();
    assert_eq!(read_all(client).await, "");
}

#[tokio::test(flavor = "current_thread")]
async fn connections_over_the_limit_are_told_so() {
    let mut server = Server::start(Protocols::Http, ConnectionLimits { connections: 1, ..limits() }).await;
    let mut first = server.connect().await;
    first.write_all(GET_AND_CLOSE).await.unwrap();
    assert_eq!(server.event().await, "started");
    let refused = read_all(server.connect().await).await;
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("x-tessera-reason: queue_full"),
        "{refused}"
    );
    server.release.notify_waiters();
    assert!(read_all(first).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "current_thread")]
async fn headers_over_the_limit_are_431() {
    let server = Server::start(Protocols::Http, limits()).await;
    let mut client = server.connect().await;
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n", "a".repeat(4096));
    client.write_all(long.as_bytes()).await.unwrap();
    let refused = read_all(client).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_that_says_nothing_or_dawdles_is_closed() {
    let server = Server::start(
        Protocols::Http,
        ConnectionLimits { header_timeout: Duration::from_millis(50), ..limits() },
    )
    .await;
    assert_eq!(read_all(server.connect().await).await, "");
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HT").await.unwrap();
    read_all(slow).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_drain_answers_what_is_in_flight_and_closes_the_rest() {
    let mut server = Server::start(Protocols::Http, limits()).await;
    let idle = server.connect().await;
    let mut busy = server.connect().await;
    busy.write_all(GET).await.unwrap();
    assert_eq!(server.event().await, "started");
    server.stop.cancel();
    assert_eq!(read_all(idle).await, "", "idle connections close");
    server.release.notify_waiters();
    let answer = read_all(busy).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("done"), "{answer}");
    let address = server.address;
    server.stopped().await;
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

#[tokio::test(flavor = "current_thread")]
async fn a_request_that_was_on_its_way_when_the_drain_ended_is_answered() {
    let mut server = Server::start(Protocols::Http, limits()).await;
    let mut kept = server.connect().await;
    kept.write_all(GET).await.unwrap();
    assert_eq!(server.event().await, "started");
    server.release.notify_waiters();
    assert_eq!(server.event().await, "answered");
    // Accepted by the kernel; the server's task does not run before the next await.
    let waiting = std::net::TcpStream::connect(server.address).unwrap();
    waiting.set_nonblocking(true).unwrap();
    server.stop.cancel();
    kept.write_all(GET_AND_CLOSE).await.unwrap();
    let mut waiting = TcpStream::from_std(waiting).unwrap();
    waiting.write_all(GET_AND_CLOSE).await.unwrap();
    for _ in 0..2 {
        assert_eq!(server.event().await, "started");
    }
    server.release.notify_waiters();
    assert_eq!(read_all(kept).await.matches("done").count(), 2);
    assert!(read_all(waiting).await.ends_with("done"));
    server.stopped().await;
}

/// How many connections of a client were answered before the listener refused one. It opens one after the other.
fn connect_until_refused(address: SocketAddr) -> usize {
    use std::io::{ErrorKind, Read as _, Write as _};
    for answered in 0.. {
        let mut stream = match std::net::TcpStream::connect_timeout(&address, BOUND) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return answered,
            connected => connected.unwrap(),
        };
        stream.write_all(GET_AND_CLOSE).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("done"), "connection {answered}: {answer:?}");
    }
    unreachable!("the listener closes")
}

#[tokio::test(flavor = "current_thread")]
async fn connections_that_arrive_while_the_listener_closes_are_answered_or_refused() {
    const ROUNDS: usize = 8;
    for _ in 0..ROUNDS {
        let listener = Listener::bind("test", SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (address, stop) = (listener.address, CancellationToken::new());
        let (events_in, mut events) = mpsc::unbounded_channel();
        let answer = service(move |_request: Request<Incoming>| {
            let _ = events_in.send(());
            async { Response::new(Full::new(Bytes::from_static(b"done"))) }
        });
        let serving = tokio::spawn(listener.serve(Protocols::Http, limits(), answer, stop.clone()));
        let clients: Vec<_> =
            (0..4).map(|_| tokio::task::spawn_blocking(move || connect_until_refused(address))).collect();
        for _ in 0..100 {
            tokio::time::timeout(BOUND, events.recv()).await.expect("a request in time").unwrap();
        }
        stop.cancel();
        let mut answered = 0;
        for client in clients {
            answered += client.await.unwrap();
        }
        assert!(answered > 0, "the clients connected before the drain");
        serving.await.unwrap();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_taken_address_is_an_error_that_names_the_option() {
    let first = Listener::bind("server.http", SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let error = Listener::bind("server.http", first.address).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("server.http: cannot listen on 127.0.0.1:"), "{error:#}");
}
