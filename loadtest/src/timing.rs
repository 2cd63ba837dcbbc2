//! Where the time of single requests was spent, which our server reports with every answer.

use http::HeaderMap;

/// Headers of an answer, in microseconds.
const QUEUE: &str = "x-tessera-queue-us";
const WAIT: &str = "x-tessera-batch-wait-us";
const COMPUTE: &str = "x-tessera-compute-us";
/// Rows of the batch that a request was in.
const ROWS: &str = "x-tessera-batch-rows";

/// Where the time of one answered request was spent, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Index of its model in the workload.
    pub model: u32,
    /// Rows of its batch.
    pub batch_rows: u32,
    /// Between the queue and the model.
    pub wait: u64,
    /// In the model.
    pub compute: u64,
    /// The rest of the time from when it was due until its client had the answer.
    pub outside: u64,
}

impl Timing {
    /// Timing from the headers of an answer; none without them. `latency` is in nanoseconds.
    pub(crate) fn read(headers: &HeaderMap, model: u32, latency: u64) -> Option<Self> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let nanos = |name: &str| Some(number(name)?.saturating_mul(1_000));
        let (queue, wait, compute) = (nanos(QUEUE)?, nanos(WAIT)?, nanos(COMPUTE)?);
        let inside = queue.saturating_add(wait).saturating_add(compute);
        let batch_rows = u32::try_from(number(ROWS)?).ok()?;
        Some(Self { model, batch_rows, wait, compute, outside: latency.saturating_sub(inside) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_where_its_time_went_or_does_not() {
        let mut headers = HeaderMap::new();
        assert_eq!(Timing::read(&headers, 0, 9), None);
        for (name, value) in [(QUEUE, "100"), (WAIT, "20"), (COMPUTE, "3000"), (ROWS, "4")] {
            headers.insert(name, value.parse().unwrap());
        }
        let timing = Timing::read(&headers, 7, 4_000_000).unwrap();
        assert_eq!((timing.model, timing.batch_rows, timing.wait), (7, 4, 20_000));
        assert_eq!((timing.compute, timing.outside), (3_000_000, 880_000));
        headers.insert(COMPUTE, "soon".parse().unwrap());
        assert_eq!(Timing::read(&headers, 7, 4_000_000), None);
    }
}
