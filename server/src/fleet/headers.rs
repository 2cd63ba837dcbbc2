//! Headers of requests between nodes.

use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// On a forwarded request: the node that forwarded it. It is never forwarded again.
pub const FORWARDED: HeaderName = HeaderName::from_static("x-tessera-forwarded");
/// On a forwarded request: microseconds that its first node used up. Its deadline counts from the first node.
pub const ELAPSED: HeaderName = HeaderName::from_static("x-tessera-elapsed-us");
/// On the answer to a forwarded request: the node that answered it.
pub const NODE: HeaderName = HeaderName::from_static("x-tessera-node");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// More than this was used up by no request that still waits.
const ELAPSED_MAX: Duration = Duration::from_secs(3_600);
/// Headers that belong to one connection, and those that the client writes itself.
const HOP: [HeaderName; 7] = [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE];
/// The same, without a constant of their own.
const HOP_NAMES: [&str; 2] = ["keep-alive", "proxy-connection"];

/// The time that an earlier node used up. Zero if the request was not forwarded.
pub fn elapsed(headers: &HeaderMap) -> Duration {
    if !headers.contains_key(FORWARDED) {
        return Duration::ZERO;
    }
    let text = headers.get(ELAPSED).and_then(|value| value.to_str().ok());
    let elapsed = text.and_then(|text| text.parse().ok()).map(Duration::from_micros);
    elapsed.filter(|elapsed| *elapsed <= ELAPSED_MAX).unwrap_or_default()
}

/// Headers of a request as it goes on to another node: all that the client sent, but those of the connection.
pub(super) fn onward(sent: &HeaderMap, from: &HeaderValue) -> HeaderMap {
    let named = sent.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        named.flat_map(|names| names.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let mut headers = HeaderMap::with_capacity(sent.len() + 3);
    for (name, value) in sent {
        let belongs = HOP.contains(name) || HOP_NAMES.contains(&name.as_str());
        if !belongs && !named.iter().any(|hop| hop == name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(FORWARDED, from.clone());
    headers
}

/// Writes how much time was used up, and what is left of the transport's timeout.
pub(super) fn set_times(headers: &mut HeaderMap, elapsed: Duration, left: Option<Duration>) {
    headers.insert(ELAPSED, HeaderValue::from(micros(elapsed)));
    if let Some(left) = left {
        headers.insert(GRPC_TIMEOUT, grpc_timeout(left));
    }
}

/// At most eight digits and a unit, rounded down.
fn grpc_timeout(left: Duration) -> HeaderValue {
    const DIGITS: u64 = 100_000_000;
    let us = micros(left);
    let text = [("u", us), ("m", us / 1_000), ("S", us / 1_000_000)]
        .into_iter()
        .find(|(_, amount)| *amount < DIGITS)
        .map_or_else(|| "99999999S".to_owned(), |(unit, amount)| format!("{amount}{unit}"));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0u"))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let one = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        headers.iter().map(one).collect()
    }

    #[test]
    fn headers_of_the_client_travel_and_those_of_its_connection_do_not() {
        let sent = map(&[
            ("authorization", "Bearer key"),
            ("x-tenant", "search"),
            ("traceparent", "00-a-b-01"),
            ("x-request-id", "7"),
            ("inference-header-content-length", "12"),
            ("host", "a:8000"),
            ("connection", "x-mine, close"),
            ("x-mine", "1"),
            ("content-length", "9"),
        ]);
        let onward = onward(&sent, &HeaderValue::from_static("a"));
        let names: Vec<&str> = onward.keys().map(HeaderName::as_str).collect();
        assert_eq!(onward[FORWARDED], "a");
        for name in
            ["authorization", "x-tenant", "traceparent", "x-request-id", "inference-header-content-length"]
        {
            assert_eq!(onward[name], sent[name]);
        }
        assert_eq!(names.len(), 6, "{names:?}");
    }

    #[test]
    fn time_used_up_counts_only_for_forwarded_requests() {
        assert_eq!(elapsed(&map(&[("x-tessera-elapsed-us", "5")])), Duration::ZERO);
        let forwarded =
            |value| elapsed(&map(&[("x-tessera-forwarded", "a"), ("x-tessera-elapsed-us", value)]));
        assert_eq!(forwarded("1500"), Duration::from_micros(1_500));
        for value in ["", "-1", "1.5", "99999999999999"] {
            assert_eq!(forwarded(value), Duration::ZERO, "{value}");
        }
    }

    #[test]
    fn what_is_left_is_written_as_grpc_has_it() {
        for (left, text) in [
            (Duration::from_micros(1_500), "1500u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(200_000), "200000S"),
            (Duration::ZERO, "0u"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(grpc_timeout(left), text);
        }
    }
}
