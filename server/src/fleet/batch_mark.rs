//! Marks of requests that an endpoint picker put into one batch.

use http::{HeaderMap, HeaderName};
use metrics::Counter;
use router::Gather;

/// On a request: its batch and the rows of the whole batch, as `ID/ROWS`.
pub const BATCH: HeaderName = HeaderName::from_static("x-tessera-batch");
/// Most rows of a batch.
const ROWS_MAX: u32 = 4_096;

/// Reads marks. One that is malformed is counted and ignored: it comes from the picker, and the client cannot repair it.
pub struct BatchMarks {
    malformed: Counter,
}

impl BatchMarks {
    /// Registers with the current recorder.
    pub fn new() -> Self {
        Self { malformed: node::metrics::malformed_batch_marks() }
    }

    /// The mark of a request, if it has a valid one.
    pub fn of(&self, headers: &HeaderMap) -> Option<Gather> {
        let mut values = headers.get_all(BATCH).iter();
        let first = values.next()?;
        let mark = first.to_str().ok().and_then(parse).filter(|_| values.next().is_none());
        if mark.is_none() {
            self.malformed.increment(1);
        }
        mark
    }
}

impl Default for BatchMarks {
    fn default() -> Self {
        Self::new()
    }
}

fn parse(text: &str) -> Option<Gather> {
    // `parse` alone would take a sign.
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (batch, rows) = text.split_once('/').filter(|(batch, rows)| is_number(batch) && is_number(rows))?;
    let rows = rows.parse().ok().filter(|rows| (1..=ROWS_MAX).contains(rows))?;
    Some(Gather { batch: batch.parse().ok()?, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(marks: &[&str]) -> Option<Gather> {
        let headers = marks.iter().map(|mark| (BATCH, mark.parse().unwrap()));
        BatchMarks::new().of(&headers.collect())
    }

    #[test]
    fn a_mark_is_a_number_and_its_rows() {
        assert_eq!(read(&["0/1"]), Some(Gather { batch: 0, rows: 1 }));
        let largest = Gather { batch: u64::MAX, rows: 4_096 };
        assert_eq!(read(&["18446744073709551615/4096"]), Some(largest));
    }

    #[test]
    fn anything_else_is_ignored() {
        for mark in
            ["", "/", "7", "7/", "/8", "7/0", "7/4097", "+7/8", "7/+8", "7/8/9", "7 /8", "a/8", "-1/8"]
        {
            assert_eq!(read(&[mark]), None, "{mark}");
        }
        assert_eq!(read(&["18446744073709551616/8"]), None, "more than 64 bits");
        assert_eq!(read(&["7/8", "7/8"]), None, "it is in two batches");
        assert_eq!(read(&[]), None);
    }
}
