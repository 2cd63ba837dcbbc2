//! Clients that do not read their answers, and clients on the same server that do.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Long enough for a reading client to read a step of its answer on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(1);
/// More than loopback sockets and HTTP/2 windows buffer.
const LARGE: usize = 16 << 20;
const HUGE_WINDOW: u32 = 1 << 30;

/// Answers `/SIZE` with that many bytes, and `/` after `release`. Reports on `freed` when the bytes are freed.
struct TestServer {
    address: SocketAddr,
    closed: Arc<AtomicU64>,
    release: Arc<Notify>,
    freed: mpsc::UnboundedReceiver<usize>,
}

/// Tells when it is freed.
struct Answer(Vec<u8>, mpsc::UnboundedSender<usize>);

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.len());
    }
}

impl TestServer {
    async fn start() -> Self {
        let closed = Arc::new(AtomicU64::new(0));
        let listener = Listener::bind("test", SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let listener = listener.counting_slow_readers(Counter::from_arc(Arc::clone(&closed)));
        let address = listener.address;
        let (freed_in, freed) = mpsc::unbounded_channel();
        let release = Arc::new(Notify::new());
        let waiting = Arc::clone(&release);
        let answer = service(move |request: Request<Incoming>| {
            let (freed, waiting) = (freed_in.clone(), Arc::clone(&waiting));
            async move {
                let size = request.uri().path().trim_start_matches('/').parse().ok();
                if size.is_none() {
                    waiting.notified().await;
                }
                let answer = Answer(vec![7; size.unwrap_or(1)], freed);
                Response::new(Full::new(Bytes::from_owner(answer)))
            }
        });
        let limits = ConnectionLimits { answer_timeout: TIMEOUT, ..limits() };
        tokio::spawn(listener.serve(Protocols::Http, limits, answer, CancellationToken::new()));
        Self { address, closed, release, freed }
    }

    async fn freed(&mut self) -> usize {
        tokio::time::timeout(BOUND, self.freed.recv()).await.expect("freed in time").unwrap()
    }

    fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// A client with this window for each stream and enough window for the connection.
    async fn http2(&self, stream_window: u32) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(stream_window).initial_connection_window_size(HUGE_WINDOW);
        let (sender, connection) = builder.handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

fn request(size: usize) -> Request<Empty<Bytes>> {
    Request::builder().uri(format!("http://x/{size}")).body(Empty::new()).unwrap()
}

async fn ask_unread(server: &TestServer) -> TcpStream {
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(format!("GET /{LARGE} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    client
}

#[tokio::test(flavor = "current_thread")]
async fn a_connection_that_takes_nothing_is_reset_and_its_answer_freed() {
    let mut server = TestServer::start().await;
    let mut client = ask_unread(&server).await;
    assert_eq!(server.freed().await, LARGE);
    assert_eq!(server.closed(), 1);
    let mut read = Vec::new();
    let ended = tokio::time::timeout(BOUND, client.read_to_end(&mut read)).await.expect("closed in time");
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(read.len() < LARGE);
}

#[tokio::test(flavor = "current_thread")]
async fn a_stream_without_window_is_reset_and_other_streams_of_the_connection_continue() {
    let mut server = TestServer::start().await;
    // One byte, and the default window.
    for window in [1, 65_535] {
        let mut client = server.http2(window).await;
        let unread = client.send_request(request(LARGE)).await.unwrap();
        let other = client.send_request(request(LARGE / 64)).await.unwrap();
        if window > 1 {
            assert_eq!(other.into_body().collect().await.unwrap().to_bytes().len(), LARGE / 64);
            assert_eq!(server.freed().await, LARGE / 64);
        } else {
            drop(other);
            assert_eq!(server.freed().await, LARGE / 64);
        }
        assert_eq!(server.freed().await, LARGE);
        assert!(unread.into_body().collect().await.is_err());
        let after = client.send_request(request(1)).await.unwrap();
        assert_eq!(after.into_body().collect().await.unwrap().to_bytes().len(), 1);
        assert_eq!(server.freed().await, 1);
    }
    assert_eq!(server.closed(), 2);
}

#[tokio::test(flavor = "current_thread")]
async fn a_small_answer_without_window_is_closed_too() {
    let mut server = TestServer::start().await;
    let mut client = server.http2(0).await;
    let unread = client.send_request(request(100)).await.unwrap();
    assert_eq!(server.freed().await, 100);
    assert_eq!(server.closed(), 1);
    assert!(unread.into_body().collect().await.is_err());
}

#[tokio::test(flavor = "current_thread")]
async fn connections_with_nothing_to_read_stay_open() {
    let mut server = TestServer::start().await;
    let io = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let (mut idle, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(idle.send_request(request(1)).await.unwrap().collect().await.unwrap().to_bytes().len(), 1);
    assert_eq!(server.freed().await, 1);
    let mut waiting = server.http2(65_535).await;
    let waiting =
        tokio::spawn(waiting.send_request(Request::builder().uri("http://x/").body(Empty::new()).unwrap()));
    // Longer than the timeout.
    let _client = ask_unread(&server).await;
    assert_eq!(server.freed().await, LARGE);
    assert_eq!(server.closed(), 1);

    assert_eq!(idle.send_request(request(2)).await.unwrap().collect().await.unwrap().to_bytes().len(), 2);
    assert_eq!(server.freed().await, 2);
    server.release.notify_one();
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn large_answers_arrive_whole() {
    let mut server = TestServer::start().await;
    for window in [65_535, HUGE_WINDOW] {
        let mut client = server.http2(window).await;
        for size in [1, 16 << 10, (16 << 10) + 1, write_timeout::STEP_BYTES, LARGE + 1] {
            let answer = client.send_request(request(size)).await.unwrap();
            assert_eq!(answer.headers()["content-length"], size.to_string().as_str());
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(body.len() == size && body.iter().all(|&byte| byte == 7), "{size}");
            assert_eq!(server.freed().await, size);
        }
    }
    assert_eq!(server.closed(), 0);
}
