//! `gzip` and `deflate` (zlib) for requests and answers. Inflated bytes count against the body limit.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use node::reason::{Reason, Refusal};

use crate::budget::Reservation;

/// Larger bodies are compressed and inflated outside the async threads.
const INLINE_BYTES: usize = 64 * 1024;
/// Size of a step of inflation. The limit is checked after each step.
const STEP: usize = 64 * 1024;
/// Smaller answers are not compressed.
const WORTH_BYTES: usize = 1024;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, which HTTP calls `deflate`.
    Deflate,
}

impl Coding {
    /// Name in headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// The coding of a request body. `None` without compression.
pub fn of_request(headers: &HeaderMap) -> Result<Option<Coding>, Refusal> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let word = value.to_str().unwrap_or("?").trim();
    match word.to_ascii_lowercase().as_str() {
        _ if values.next().is_some() => {}
        "" | "identity" => return Ok(None),
        "gzip" | "x-gzip" => return Ok(Some(Coding::Gzip)),
        "deflate" => return Ok(Some(Coding::Deflate)),
        _ => {}
    }
    let shown: String = word.chars().take(32).collect();
    Err(Refusal::new(
        Reason::Unsupported,
        format!(
            "header content-encoding: `{shown}` is not supported: expected one of gzip, deflate, identity"
        ),
    ))
}

/// The coding of the answer that the client accepts: gzip before deflate, as in Triton. `*` does not request compression.
pub fn wanted(headers: &HeaderMap) -> Option<Coding> {
    let mut deflate = false;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for entry in value.to_str().ok()?.split(',') {
            let (word, weight) = entry.split_once(';').unwrap_or((entry, ""));
            let refused =
                weight.trim().strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok()) == Some(0.0);
            match word.trim() {
                _ if refused => {}
                word if word.eq_ignore_ascii_case("gzip") => return Some(Coding::Gzip),
                word if word.eq_ignore_ascii_case("deflate") => deflate = true,
                _ => {}
            }
        }
    }
    deflate.then_some(Coding::Deflate)
}

/// Inflates a request body to at most `limit` bytes, which are added to the reservation.
pub async fn inflate(
    coding: Coding,
    body: Bytes,
    reservation: Reservation,
    limit: usize,
) -> Result<(Bytes, Reservation), Refusal> {
    let small = body.len() <= INLINE_BYTES / 8;
    let work = move || inflate_now(coding, &body, reservation, limit);
    if small { work() } else { offload(work).await? }
}

fn inflate_now(
    coding: Coding,
    body: &[u8],
    mut reservation: Reservation,
    limit: usize,
) -> Result<(Bytes, Reservation), Refusal> {
    let held = reservation.bytes();
    let mut decoder: Box<dyn Read + '_> = match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(body)),
        Coding::Deflate => Box::new(ZlibDecoder::new(body)),
    };
    let mut inflated = Vec::new();
    loop {
        let step = decoder
            .by_ref()
            .take(STEP as u64)
            .read_to_end(&mut inflated)
            .map_err(|error| unsound(coding, &error))?;
        if inflated.len() > limit {
            return Err(Refusal::new(
                Reason::BodyTooLarge,
                format!("request body: expected at most {limit} bytes (`limits.body`) after decompression"),
            ));
        }
        if step == 0 {
            return Ok((inflated.into(), reservation));
        }
        reservation.grow(held.saturating_add(inflated.capacity()))?;
    }
}

fn unsound(coding: Coding, error: &io::Error) -> Refusal {
    Refusal::new(
        Reason::Malformed,
        format!("request body: not sound {} data as header content-encoding says: {error}", coding.as_str()),
    )
}

/// Compresses an answer, unless it is small.
pub async fn deflate(coding: Coding, chunks: Vec<Bytes>) -> Result<Option<Bytes>, Refusal> {
    let length: usize = chunks.iter().map(Bytes::len).sum();
    if length < WORTH_BYTES {
        return Ok(None);
    }
    let work = move || deflate_now(coding, &chunks);
    let compressed = if length <= INLINE_BYTES { work() } else { offload(work).await? };
    compressed
        .map(Some)
        .map_err(|error| Refusal::new(Reason::Internal, format!("cannot compress the response: {error}")))
}

fn deflate_now(coding: Coding, chunks: &[Bytes]) -> io::Result<Bytes> {
    let write = |encoder: &mut dyn Write| chunks.iter().try_for_each(|chunk| encoder.write_all(chunk));
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            write(&mut encoder)?;
            encoder.finish().map(Bytes::from)
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            write(&mut encoder)?;
            encoder.finish().map(Bytes::from)
        }
    }
}

/// Runs CPU work off the async threads.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Refusal::new(Reason::Internal, format!("decoding did not end: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BodyBudget;
    use http::HeaderValue;
    use metrics::Gauge;

    fn accepting(value: &'static str) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
        wanted(&headers)
    }

    fn sent(value: &'static str) -> Result<Option<Coding>, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(value));
        of_request(&headers)
    }

    #[test]
    fn wishes_and_codings_are_read_as_http_says() {
        assert_eq!(accepting("deflate, gzip"), Some(Coding::Gzip));
        assert_eq!(accepting("gzip;q=0, deflate;q=0.5"), Some(Coding::Deflate));
        assert_eq!(accepting("*, br, identity"), None);
        assert_eq!(sent("GZIP").unwrap(), Some(Coding::Gzip));
        assert_eq!(sent("identity").unwrap(), None);
        for bad in ["br", "gzip, deflate"] {
            let refusal = sent(bad).unwrap_err();
            assert_eq!(refusal.reason, Reason::Unsupported);
            assert!(refusal.message.contains(bad), "{}", refusal.message);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn both_codings_survive_a_round_trip() {
        for (coding, size) in [(Coding::Gzip, 2000), (Coding::Deflate, 500_000)] {
            let plain = Bytes::from(vec![42; size]);
            let packed = deflate(coding, vec![plain.slice(..7), plain.slice(7..)]).await.unwrap().unwrap();
            assert!(packed.len() < size / 10);
            let budget = BodyBudget::new(1 << 21, Gauge::noop());
            let (back, _held) = inflate(coding, packed, budget.reserve(), size).await.unwrap();
            assert_eq!(back, plain);
        }
        assert_eq!(deflate(Coding::Gzip, vec![Bytes::from_static(b"short")]).await.unwrap(), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_bomb_is_refused_at_the_limit_and_at_the_budget() {
        let bomb = deflate(Coding::Gzip, vec![Bytes::from(vec![0; 50_000_000])]).await.unwrap().unwrap();
        let budget = BodyBudget::new(1 << 30, Gauge::noop());
        let refusal = inflate(Coding::Gzip, bomb.clone(), budget.reserve(), 1_000_000).await.err().unwrap();
        assert_eq!(refusal.reason, Reason::BodyTooLarge);
        let budget = BodyBudget::new(1 << 20, Gauge::noop());
        let refusal = inflate(Coding::Gzip, bomb, budget.reserve(), 100_000_000).await.err().unwrap();
        assert_eq!(refusal.reason, Reason::QueueFull);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn data_that_is_not_what_it_says_is_the_clients_mistake() {
        let packed = deflate(Coding::Gzip, vec![Bytes::from(vec![1; 5000])]).await.unwrap().unwrap();
        for bad in [packed.slice(..packed.len() - 3), Bytes::from_static(b"{\"inputs\":[]}"), Bytes::new()] {
            for coding in [Coding::Gzip, Coding::Deflate] {
                let budget = BodyBudget::new(1 << 20, Gauge::noop());
                let refusal = inflate(coding, bad.clone(), budget.reserve(), 10_000).await.err();
                assert_eq!(
                    refusal.map(|refusal| refusal.reason),
                    Some(Reason::Malformed),
                    "{coding:?} {bad:?}"
                );
            }
        }
    }
}
