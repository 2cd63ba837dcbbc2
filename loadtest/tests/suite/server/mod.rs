//! A server of the Open Inference Protocol on a port of its own that misbehaves on order: below the level of any
//! library that would not let it.

mod answer;
mod http1;
mod http2;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use loadtest::{Endpoint, Protocol};
use oip::InferResponse;
use tokio::sync::{oneshot, watch};

pub use answer::Answer;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Server,
    Model,
    Statistics,
    Infer,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Call {
    pub what: What,
    /// Among the requests for inference since the server was last told to forget, from 0.
    pub number: usize,
    pub model: String,
    pub rows: u32,
}

/// What to do with a request.
pub enum Act {
    /// The correct answer: every tensor is returned unchanged, as output `y`.
    Right,
    /// The correct answer with a changed response.
    Response(fn(&mut InferResponse)),
    /// The correct answer with a changed encoding.
    Raw(fn(&mut Answer)),
    /// The correct answer, this many bytes at a time.
    Pieces(usize),
    /// The correct answer in chunks (HTTP/1.1) or frames of this many bytes.
    Chunks(usize),
    /// The correct answer after a `100 Continue`.
    Continued,
    /// The correct answer at this time.
    At(Instant),
    /// The correct answer when the gate is open.
    Behind(Gate),
    /// The correct answer, and the end of the connection: without notice (HTTP/1.1), with a GOAWAY (HTTP/2).
    Last,
    /// The end of the connection instead of an answer.
    Close,
    /// Half an answer and the end of the connection.
    Truncated,
    /// A reset of the connection (HTTP/1.1) or of the stream (HTTP/2) instead of an answer.
    Reset,
    /// No answer.
    Never,
}

/// Something that answers wait behind.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub fn close(&self) {
        self.0.send_replace(false);
    }

    async fn pass(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

type Behaviour = Box<dyn Fn(&Call) -> Act + Send + Sync>;

/// What all connections share.
struct Shared {
    protocol: Protocol,
    behaviour: Behaviour,
    streams: Option<u32>,
    numbers: AtomicUsize,
    calls: Mutex<Vec<Call>>,
    connections: AtomicUsize,
}

impl Shared {
    fn act(&self, what: What, model: String, rows: u32) -> Act {
        let number = match what {
            What::Infer => self.numbers.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        let call = Call { what, number, model, rows };
        let act = (self.behaviour)(&call);
        self.calls.lock().unwrap().push(call);
        act
    }
}

/// A running server; ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Misbehaves as `behaviour` says for every request, those for metadata included.
    pub fn start(protocol: Protocol, behaviour: impl Fn(&Call) -> Act + Send + Sync + 'static) -> Self {
        Self::limited(protocol, None, behaviour)
    }

    /// The same for requests for inference only.
    pub fn inferring(protocol: Protocol, infer: impl Fn(&Call) -> Act + Send + Sync + 'static) -> Self {
        Self::start(protocol, move |call| if call.what == What::Infer { infer(call) } else { Act::Right })
    }

    /// The same with this many streams on an HTTP/2 connection.
    pub fn limited(
        protocol: Protocol,
        streams: Option<u32>,
        behaviour: impl Fn(&Call) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            protocol,
            behaviour: Box::new(behaviour),
            streams,
            numbers: AtomicUsize::new(0),
            calls: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let (end, ended) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let serve = async {
                tokio::select! {
                    () = accept(listener, served) => {}
                    _ = ended => {}
                }
            };
            tokio::task::LocalSet::new().block_on(&runtime, serve);
        });
        Self { address, shared, end: Some(end), thread: Some(thread) }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint { authority: self.address.to_string(), protocol: self.shared.protocol, tls: false }
    }

    /// Forgets what it was asked so far; says how many connections there were.
    pub fn forget(&self) -> usize {
        self.shared.calls.lock().unwrap().clear();
        self.shared.numbers.store(0, Ordering::Relaxed);
        self.shared.connections.swap(0, Ordering::Relaxed)
    }

    /// Requests for inference in the order in which they came.
    pub fn inferences(&self) -> Vec<Call> {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|call| call.what == What::Infer).cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking(),
            "the test's server failed"
        );
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true).unwrap();
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        // A client may disconnect.
        tokio::task::spawn_local(async move {
            match shared.protocol {
                Protocol::Http => drop(http1::serve(stream, &shared).await),
                Protocol::Http2 | Protocol::Grpc => drop(http2::serve(stream, shared).await),
            }
        });
    }
}
