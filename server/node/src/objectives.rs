//! Whether an objective can be met at all.

use std::time::Duration;

use models::TimeSpan;
use router_core::Nanos;

/// Time before a deadline at which the router acts: timers have a resolution of one millisecond, and the woken thread
/// may wait for its core.
pub const MARGIN: Nanos = Nanos::from_millis(2);

/// A warning if a single request, alone on a lane, takes longer than the objective allows. `shortest` is the time of the
/// smallest batch, and `source` says where it is from.
pub fn too_tight(slo: Duration, shortest: Duration, source: &str) -> Option<String> {
    let margin = Duration::from(MARGIN);
    (shortest + margin > slo).then(|| {
        // A request that finds its lane busy waits for one batch.
        let enough = round_up(shortest * 2 + margin);
        format!(
            "{} cannot be met: one request alone takes {}, {source}: expected {} or more",
            TimeSpan(slo),
            TimeSpan(shortest).decimal(),
            TimeSpan(enough)
        )
    })
}

/// The next whole millisecond.
fn round_up(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_below_one_batch_is_told_with_one_that_would_do() {
        let ms = Duration::from_millis;
        assert_eq!(too_tight(ms(50), ms(20), "measured"), None);
        let warning = too_tight(ms(5), Duration::from_micros(7_250), "measured").unwrap();
        assert_eq!(
            warning,
            "5ms cannot be met: one request alone takes 7.25ms, measured: expected 17ms or more"
        );
    }
}
