//! The `grpc-timeout` header: how long the client will wait.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// The client's timeout, if it sent a valid one. An unreadable header is ignored, because gRPC clients also enforce
/// their deadline themselves.
pub fn of(metadata: &MetadataMap) -> Option<Duration> {
    parse(metadata.get("grpc-timeout")?.to_str().ok()?)
}

/// At most eight digits and a unit, as the gRPC specification has it.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_nothing_else() {
        assert_eq!(parse("100m"), Some(Duration::from_millis(100)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse("1M"), Some(Duration::from_secs(60)));
        assert_eq!(parse("2S"), Some(Duration::from_secs(2)));
        assert_eq!(parse("3u"), Some(Duration::from_micros(3)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
        for bad in ["", "S", "123456789S", "-1S", "1.5S", "1", "1s", "+1S", "1\u{e9}"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
