//! Connections of one sending thread to the server.

mod dialer;
mod http1;
mod http2;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use crate::target::Protocol;

pub(crate) use dialer::Dialer;

/// Bytes that an answer may have at most.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A request as it goes out: made once, sent many times.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub parts: Parts,
    pub body: Bytes,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub status: StatusCode,
    /// Headers, and trailers behind them.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The body of an answer, part by part. A body of one part is not copied.
#[derive(Default)]
struct Body {
    first: Bytes,
    more: BytesMut,
}

impl Body {
    fn push(&mut self, part: Bytes) -> Result<(), Failure> {
        if self.first.len() + self.more.len() + part.len() > ANSWER_BYTES_MAX {
            return Err(Failure::TooLong);
        }
        if self.first.is_empty() && self.more.is_empty() {
            self.first = part;
        } else {
            self.more.extend_from_slice(&std::mem::take(&mut self.first));
            self.more.extend_from_slice(&part);
        }
        Ok(())
    }

    fn finish(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("an answer of more than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("no answer in time")]
    TimedOut,
}

impl Failure {
    /// The word for it in reports.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Connect(_) => "cannot_connect",
            Self::Broken(_) => "connection_broke",
            Self::TooLong => "answer_too_long",
            Self::TimedOut => "no_answer_in_time",
        }
    }
}

/// Is notified of the progress of an exchange.
pub(crate) trait Watch {
    /// Every allowed connection was busy, so the request waits for one.
    fn held(&self);
    /// A connection was found, and the request goes out.
    fn sent(&self);
}

/// Connections of one thread; opened when there is need, kept.
#[derive(Debug)]
pub(crate) enum Connections {
    Http1(http1::Pool),
    Http2(http2::Pool),
}

impl Connections {
    /// At most `limit` of them, at least one.
    pub fn new(protocol: Protocol, dialer: Dialer, limit: u32) -> Self {
        match protocol {
            Protocol::Http => Self::Http1(http1::Pool::new(dialer, limit)),
            Protocol::Http2 | Protocol::Grpc => Self::Http2(http2::Pool::new(dialer, limit)),
        }
    }

    /// Sends a request and waits for all of its answer.
    pub async fn exchange(&self, wire: &Wire, watch: &impl Watch) -> Result<Reply, Failure> {
        match self {
            Self::Http1(pool) => pool.exchange(wire, watch).await,
            Self::Http2(pool) => pool.exchange(wire, watch).await,
        }
    }

    /// Connections that were opened so far.
    pub fn opened(&self) -> u64 {
        match self {
            Self::Http1(pool) => pool.opened(),
            Self::Http2(pool) => pool.opened(),
        }
    }
}
