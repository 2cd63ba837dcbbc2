//! Time that lanes spend in engines, counted per batch because no device measures gpulets separately, and what of it was
//! lost to preemption.

use std::sync::Arc;
use std::time::Duration;

use gpulet::{BatchOutcome, LaneReport, LaneSink};
use metrics::Counter;

use super::names;

/// Forwards a lane's reports and counts its time.
pub struct BusySink {
    next: Arc<dyn LaneSink>,
    busy: Counter,
    preempted: Counter,
    preempted_us: Counter,
}

impl BusySink {
    /// A sink in front of `next`.
    pub fn before(next: Arc<dyn LaneSink>, lane: u32) -> Arc<dyn LaneSink> {
        let counter = |metric: names::Metric| metrics::counter!(metric.name, names::LANE => lane.to_string());
        Arc::new(Self {
            next,
            busy: counter(names::LANE_BUSY_TIME),
            preempted: counter(names::PREEMPTED),
            preempted_us: counter(names::PREEMPTED_TIME),
        })
    }
}

/// Microseconds, to the nearest: batches may be shorter than ten of them.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().saturating_add(500) / 1000).unwrap_or(u64::MAX)
}

impl LaneSink for BusySink {
    fn report(&self, report: LaneReport) {
        let time = micros(report.compute);
        self.busy.increment(time);
        if matches!(report.outcome, BatchOutcome::Preempted(_)) {
            self.preempted.increment(1);
            self.preempted_us.increment(time);
        }
        self.next.report(report);
    }

    fn failed(&self, lane: u32) {
        self.next.failed(lane);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<u64>>);

    impl LaneSink for Heard {
        fn report(&self, report: LaneReport) {
            self.0.lock().unwrap().push(report.token);
        }

        fn failed(&self, lane: u32) {
            self.0.lock().unwrap().push(lane.into());
        }
    }

    #[test]
    fn reports_are_passed_on_and_their_time_is_counted() {
        let recorder = crate::metrics::recorder().unwrap();
        let handle = recorder.handle();
        let heard = Arc::new(Heard::default());
        metrics::with_local_recorder(&recorder, || {
            let sink = BusySink::before(Arc::clone(&heard) as _, 3);
            let done = || BatchOutcome::Done(Vec::new());
            let preempted = || BatchOutcome::Preempted(Vec::new());
            for (token, nanos, outcome) in [(7, 1_499, done()), (8, 2_500, done()), (9, 6_000, preempted())] {
                let compute = Duration::from_nanos(nanos);
                sink.report(LaneReport { lane: 3, token, ended: Instant::now(), compute, outcome });
            }
            sink.failed(3);
        });
        assert_eq!(*heard.0.lock().unwrap(), [7, 8, 9, 3]);
        let page = handle.render();
        for series in [
            "lane_busy_us_total{lane=\"3\"} 10",
            "preempted_batches_total{lane=\"3\"} 1",
            "preempted_us_total{lane=\"3\"} 6",
        ] {
            assert!(page.contains(&format!("tessera_{series}\n")), "{series} in {page}");
        }
    }
}
