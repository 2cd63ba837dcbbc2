//! What a model prints, in the server's log.

use std::io::{BufRead, BufReader, PipeReader, Read};
use std::thread;
use std::time::{Duration, Instant};

/// Longest line; the rest of a longer one is a further line.
const LINE_BYTES_MAX: u64 = 4096;
/// Lines that one model may log in a second. Further ones are counted.
const LINES_PER_SECOND: u32 = 100;

/// Logs the lines of a pipe until its writers have closed it.
pub(super) fn log_lines(model: String, pipe: PipeReader) -> std::io::Result<()> {
    let name = format!("python-log-{model}").chars().take(15).collect();
    let run = move || {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        let mut rate = Rate::new(Instant::now());
        loop {
            line.clear();
            match lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let now = Instant::now();
            if let Some(dropped) = rate.dropped(now) {
                tracing::warn!(model, dropped, "lines of the model were not logged");
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            if !text.is_empty() && rate.allows(now) {
                tracing::info!(model, "{text}");
            }
        }
        if let Some(dropped) = rate.dropped(Instant::now() + Duration::from_secs(1)) {
            tracing::warn!(model, dropped, "lines of the model were not logged");
        }
    };
    thread::Builder::new().name(name).spawn(run).map(drop)
}

/// Limits lines to a number for each second.
pub(super) struct Rate {
    second: Instant,
    lines: u32,
    dropped: u64,
}

impl Rate {
    pub fn new(now: Instant) -> Self {
        Self { second: now, lines: 0, dropped: 0 }
    }

    /// Whether a line may be logged.
    pub fn allows(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.lines) = (now, 0);
        }
        self.lines = self.lines.saturating_add(1);
        let allowed = self.lines <= LINES_PER_SECOND;
        self.dropped += u64::from(!allowed);
        allowed
    }

    /// Lines dropped in a second that is over, once.
    pub fn dropped(&mut self, now: Instant) -> Option<u64> {
        let over = now.saturating_duration_since(self.second) >= Duration::from_secs(1);
        (over && self.dropped > 0).then(|| std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_rate_are_counted() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let allowed = (0..250).filter(|_| rate.allows(start)).count();
        assert_eq!((allowed, rate.dropped(start)), (100, None));
        let later = start + Duration::from_secs(1);
        assert_eq!((rate.dropped(later), rate.dropped(later)), (Some(150), None));
        assert!(rate.allows(later));
    }
}
