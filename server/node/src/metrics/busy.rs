//! Time that lanes spend in engines, counted per batch because no device measures gpulets separately.

use std::sync::Arc;
use std::time::Duration;

use gpulet::{LaneReport, LaneSink};
use metrics::Counter;

use super::names;

/// Forwards a lane's reports and counts its time.
pub struct BusySink {
    next: Arc<dyn LaneSink>,
    busy: Counter,
}

impl BusySink {
    /// A sink in front of `next`.
    pub fn before(next: Arc<dyn LaneSink>, lane: u32) -> Arc<dyn LaneSink> {
        let busy = metrics::counter!(names::LANE_BUSY_TIME.name, names::LANE => lane.to_string());
        Arc::new(Self { next, busy })
    }
}

/// Microseconds, to the nearest: batches may be shorter than ten of them.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().saturating_add(500) / 1000).unwrap_or(u64::MAX)
}

impl LaneSink for BusySink {
    fn report(&self, report: LaneReport) {
        self.busy.increment(micros(report.compute));
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

    use gpulet::BatchOutcome;

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
            for (token, nanos) in [(7, 1_499), (8, 2_500)] {
                let compute = Duration::from_nanos(nanos);
                let outcome = BatchOutcome::Done(Vec::new());
                sink.report(LaneReport { lane: 3, token, ended: Instant::now(), compute, outcome });
            }
            sink.failed(3);
        });
        assert_eq!(*heard.0.lock().unwrap(), [7, 8, 3]);
        assert!(handle.render().contains("tessera_lane_busy_us_total{lane=\"3\"} 4"), "{}", handle.render());
    }
}
