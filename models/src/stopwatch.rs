//! Measuring work on a thread of background priority.

use std::time::{Duration, Instant};

/// Time that passed, less the time for which this thread was ready to run and its core ran another: what the work
/// would have taken on a core of its own. For use on the thread that started it.
pub(crate) struct Stopwatch {
    waited: Duration,
    started: Instant,
}

impl Stopwatch {
    pub fn start() -> Self {
        let waited = waited();
        Self { waited, started: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        let passed = self.started.elapsed();
        passed.saturating_sub(waited().saturating_sub(self.waited))
    }
}

/// Time that the calling thread has waited for a core in its life; zero where the kernel does not say.
fn waited() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = counts.split(' ').nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn time_on_a_core_that_ran_another_does_not_count_and_sleep_does() {
        let stop = AtomicBool::new(false);
        let mask = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&core| mask.is_set(core)).unwrap());
        let (own, passed) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let measuring = scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                let (watch, started) = (Stopwatch::start(), Instant::now());
                while started.elapsed() < Duration::from_millis(200) {
                    std::hint::spin_loop();
                }
                (watch.elapsed(), started.elapsed())
            });
            let measured = measuring.join().unwrap();
            stop.store(true, Ordering::Relaxed);
            other.join().unwrap();
            measured
        });
        assert!(own < passed * 4 / 5, "{own:?} of {passed:?}");
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(5));
        assert!(watch.elapsed() >= Duration::from_millis(5));
    }
}
