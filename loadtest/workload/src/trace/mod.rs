//! Recorded traffic: one file a format.
//!
//! Formats that count requests become rates to sample from; formats that list them are replayed as they are.

pub(crate) mod counts;
pub(crate) mod functions;
pub(crate) mod llm;
pub(crate) mod table;
pub(crate) mod timestamps;

use crate::limits::DURATION_MAX;
use crate::process::Listing;
use crate::spans::show;

/// Times that are to become a trace, checked one by one.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: u64,
    first: Option<u64>,
    count: u64,
}

impl Order {
    /// Takes the next time, in nanoseconds.
    pub(crate) fn push(&mut self, at: u64) -> Result<(), String> {
        if at < self.last {
            let (at, last) = (show(at), show(self.last));
            return Err(format!("{at} after {last}: expected times that do not fall"));
        }
        if at > DURATION_MAX {
            return Err(format!("{} is too late: expected at most 400 days", show(at)));
        }
        self.last = at;
        self.first.get_or_insert(at);
        self.count += 1;
        Ok(())
    }

    /// After what time the trace starts over: a mean gap after its last request.
    pub(crate) fn period(&self) -> Result<u64, String> {
        let first = self.first.unwrap_or(0);
        if self.count < 2 || self.last == first {
            return Err("expected at least two requests at different times".to_owned());
        }
        Ok(self.last + ((self.last - first) / (self.count - 1)).max(1))
    }
}

/// Deals requests to `models` models in turn.
pub(crate) fn deal(times: &[u64], models: usize, period: u64, repeat: bool) -> Vec<Listing> {
    let hand = |model: usize| times.iter().skip(model).step_by(models.max(1)).copied().collect();
    (0..models).map(|model| Listing { times: hand(model), period, repeat }).collect()
}
