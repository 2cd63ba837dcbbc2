//! Reading request bodies: bounded in size, in time, and all of them together.
//!
//! On the hot path: a body that came with its headers is taken without a copy and without a timer.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use hyper::body::Body;
use node::reason::{Reason, Refusal};

use crate::budget::{BodyBudget, Reservation};

/// A body without a length grows from here; one with a length is not trusted beyond this before bytes arrive.
const FIRST_CAPACITY: usize = 256 * 1024;
/// How much of a body that was refused is read and thrown away, so that its sender gets to read the answer.
const DISCARD_BYTES: usize = 64 * 1024 * 1024;
/// For how long.
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Reads a whole body of at most `limit` bytes that must have arrived within `timeout`. The reservation
/// must live as long as the bytes.
pub async fn read<B>(
    headers: &HeaderMap,
    mut body: B,
    budget: &BodyBudget,
    limit: usize,
    timeout: Duration,
) -> Result<(Bytes, Reservation), Refusal>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let mut reservation = budget.reserve();
    let read = collect(headers, &mut body, &mut reservation, limit);
    let result = {
        let mut read = pin!(read);
        match poll_once(read.as_mut()).await {
            Some(result) => result,
            None => match tokio::time::timeout(timeout, read).await {
                Ok(result) => result,
                Err(_) => Err(Refusal::new(
                    Reason::SlowBody,
                    format!("request body: not complete after {} s", timeout.as_secs_f64()),
                )),
            },
        }
    };
    match result {
        Ok(bytes) => Ok((bytes, reservation)),
        Err(refusal) => {
            if refusal.reason == Reason::BodyTooLarge || refusal.reason == Reason::QueueFull {
                tokio::spawn(discard(body));
            }
            Err(refusal)
        }
    }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

async fn collect<B>(
    headers: &HeaderMap,
    body: &mut B,
    reservation: &mut Reservation,
    limit: usize,
) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let announced = match headers.get(CONTENT_LENGTH).map(|value| value.to_str().map(str::parse::<usize>)) {
        None => None,
        Some(Ok(Ok(bytes))) => Some(bytes),
        // The HTTP parser refuses what is not a number; what is left overflows.
        Some(_) => return Err(too_large(limit)),
    };
    if announced.is_some_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    let Some(first) = next_chunk(body).await? else { return Ok(Bytes::new()) };
    reservation.grow(first.len())?;
    if announced == Some(first.len()) {
        return Ok(first);
    }
    let mut whole = BytesMut::new();
    append(&mut whole, &first, announced, reservation, limit)?;
    drop(first);
    while let Some(chunk) = next_chunk(body).await? {
        append(&mut whole, &chunk, announced, reservation, limit)?;
    }
    Ok(whole.freeze())
}

/// Appends a chunk, growing to the announced length by doubling, so that memory follows what has arrived.
fn append(
    whole: &mut BytesMut,
    chunk: &Bytes,
    announced: Option<usize>,
    reservation: &mut Reservation,
    limit: usize,
) -> Result<(), Refusal> {
    let length = whole.len().saturating_add(chunk.len());
    if length > limit {
        return Err(too_large(limit));
    }
    if length > whole.capacity() {
        let doubled = whole.capacity().saturating_mul(2).max(FIRST_CAPACITY);
        let capacity = doubled.min(announced.unwrap_or(limit)).max(length);
        reservation.grow(capacity)?;
        whole.reserve(capacity - whole.len());
    }
    whole.extend_from_slice(chunk);
    Ok(())
}

async fn next_chunk<B>(body: &mut B) -> Result<Option<Bytes>, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                // Trailers carry nothing of the protocol.
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => return Err(broken(error.into().as_ref())),
        }
    }
}

/// A body that ended early or is badly framed is the client's mistake; any other error is a lost connection.
fn broken(error: &(dyn Error + 'static)) -> Refusal {
    let sources = std::iter::successors(Some(error), |&error| error.source());
    let framing =
        sources.filter_map(|source| source.downcast_ref::<io::Error>()).find_map(|error| {
            match error.kind() {
                io::ErrorKind::UnexpectedEof => Some(
                    "request body: expected as many bytes as its headers or chunks announce, got fewer"
                        .to_owned(),
                ),
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                    Some(format!("request body: expected chunks as HTTP/1.1 defines them, got: {error}"))
                }
                _ => None,
            }
        });
    match framing {
        Some(message) => Refusal::new(Reason::Malformed, message),
        None => Refusal::new(Reason::Cancelled, "request body: the connection broke"),
    }
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        Reason::BodyTooLarge,
        format!("request body: expected at most {limit} bytes (`limits.body`), also after decompression"),
    )
}

async fn discard<B>(mut body: B)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let drain = async {
        let mut left = DISCARD_BYTES;
        while let Ok(Some(chunk)) = next_chunk(&mut body).await {
            let Some(rest) = left.checked_sub(chunk.len()) else { return };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, drain).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http_body_util::{Empty, Full, StreamBody};
    use hyper::body::Frame;
    use metrics::Gauge;
    use std::convert::Infallible;

    fn budget(limit: usize) -> BodyBudget {
        BodyBudget::new(limit, Gauge::noop())
    }

    fn length(bytes: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        headers
    }

    fn chunks(sizes: &[usize]) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin + use<> {
        let frames: Vec<_> =
            sizes.iter().map(|&size| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![7; size])))).collect();
        StreamBody::new(tokio_stream::iter(frames))
    }

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test(flavor = "current_thread")]
    async fn a_body_in_one_piece_is_not_copied() {
        let bytes = Bytes::from(vec![1; 100]);
        let budget = budget(1000);
        let (read, reservation) =
            read(&length(100), Full::new(bytes.clone()), &budget, 200, SOON).await.unwrap();
        assert_eq!(read.as_ptr(), bytes.as_ptr());
        assert_eq!(budget.used(), 100);
        drop(reservation);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn pieces_are_joined_with_and_without_a_length() {
        for headers in [length(700_000), HeaderMap::new()] {
            let body = chunks(&[1, 300_000, 0, 399_999]);
            let (read, _held) = read(&headers, body, &budget(10_000_000), 1_000_000, SOON).await.unwrap();
            assert_eq!(read.len(), 700_000);
        }
        let (read, _held) = read(&HeaderMap::new(), Empty::new(), &budget(1), 1, SOON).await.unwrap();
        assert!(read.is_empty());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn too_much_is_refused_announced_or_not() {
        let refusals = [
            read(&length(201), chunks(&[1]), &budget(1000), 200, SOON).await.err(),
            read(&HeaderMap::new(), chunks(&[150, 51]), &budget(1000), 200, SOON).await.err(),
        ];
        for refusal in refusals {
            let refusal = refusal.unwrap();
            assert_eq!(refusal.reason, Reason::BodyTooLarge);
            assert!(refusal.message.contains("at most 200 bytes"), "{}", refusal.message);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_budget_refuses_and_is_given_back() {
        let budget = budget(100);
        let refusal = read(&length(101), chunks(&[101]), &budget, 200, SOON).await.err().unwrap();
        assert_eq!(refusal.reason, Reason::QueueFull);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_body_that_does_not_arrive_times_out() {
        let body = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let refusal =
            read(&length(10), body, &budget(100), 200, Duration::from_millis(10)).await.err().unwrap();
        assert_eq!(refusal.reason, Reason::SlowBody);
    }
}
