//! Request ids: the client's, if usable, else a new one that is unique in practice.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};

/// Header and gRPC metadata key that carries the id both ways.
pub const HEADER: &str = "x-request-id";
/// Longest id taken from a client.
const MAX_BYTES: usize = 128;

/// Generates ids: a random prefix per process, then a counter.
#[derive(Debug)]
pub struct RequestIds {
    prefix: u32,
    count: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        // The standard library's hasher keys are its only randomness, and are enough to tell processes apart.
        let seed = RandomState::new().hash_one(std::process::id());
        Self { prefix: (seed >> 32) as u32, count: AtomicU64::new(0) }
    }
}

impl RequestIds {
    /// Makes sure that the headers have a usable id: the client's, if it is 1 to 128 visible ASCII characters, else a new one.
    pub fn ensure(&self, headers: &mut HeaderMap) -> HeaderValue {
        if let Some(sent) = headers.get(HEADER).filter(|sent| usable(sent.as_bytes()).is_some()) {
            return sent.clone();
        }
        // Ids of ours are valid values.
        let id = HeaderValue::try_from(self.next()).unwrap_or(HeaderValue::from_static("0"));
        headers.insert(HEADER, id.clone());
        id
    }

    fn next(&self) -> String {
        format!("{:08x}-{:08x}", self.prefix, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

/// The id of a request whose headers have one.
pub fn of(headers: &HeaderMap) -> String {
    headers.get(HEADER).map(text).unwrap_or_default()
}

/// An id as text.
pub fn text(id: &HeaderValue) -> String {
    id.to_str().unwrap_or_default().to_owned()
}

/// The id a client sent, if it can be echoed and logged safely.
pub fn usable(sent: &[u8]) -> Option<&str> {
    let fits = (1..=MAX_BYTES).contains(&sent.len()) && sent.iter().all(u8::is_ascii_graphic);
    fits.then(|| std::str::from_utf8(sent).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_ids_of_clients_are_echoed() {
        let ids = RequestIds::default();
        let chosen = |sent: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_bytes(sent).unwrap());
            let id = text(&ids.ensure(&mut headers));
            assert_eq!(of(&headers), id);
            id
        };
        assert_eq!(chosen(b"abc-1"), "abc-1");
        for bad in [&b""[..], b"a b", b"a\tb", "\u{e9}".as_bytes(), &[b'a'; 129]] {
            assert_eq!(chosen(bad).len(), 17, "{bad:?}");
        }
        assert_ne!(ids.ensure(&mut HeaderMap::new()), ids.ensure(&mut HeaderMap::new()));
    }
}
