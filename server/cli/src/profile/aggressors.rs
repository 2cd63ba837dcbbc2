//! Synthetic load for contention: pinned threads that compute, or stream through more memory than the caches hold, and
//! count their work.

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpulet_core::profile::Aggressor;

use super::Halt;

/// Memory of all streaming threads together: at least, at most, and in sizes of the last cache.
const MEMORY_MIN: usize = 64 << 20;
const MEMORY_MAX: usize = 512 << 20;
const CACHES: usize = 4;
/// Numbers of a cache line.
const LINE: usize = 8;
/// Numbers that a thread changes between two checks of the end flag: 1 MiB.
const PIECE: usize = 1 << 17;
/// Iterations of the computing loop between two checks of the end flag.
const ITERATIONS: u64 = 1 << 16;
/// Longest time between two checks of the stop flag.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Running aggressors. They end when this is dropped.
pub struct Aggressors {
    end: Arc<AtomicBool>,
    work: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Aggressors {
    /// Starts one thread on each of these cores. All run when this returns.
    pub fn start(aggressor: Aggressor, cores: &[usize]) -> Result<Self, Halt> {
        let mut all = Self { end: Arc::default(), work: Vec::new(), threads: Vec::new() };
        let numbers = memory() / cores.len().max(1) / size_of::<u64>();
        let (tell, told) = std::sync::mpsc::channel();
        for core in cores {
            let (end, work) = (Arc::clone(&all.end), Arc::new(AtomicU64::new(0)));
            let (core, own, tell) = (*core, Arc::clone(&work), tell.clone());
            let run = move || {
                let pinned = gpulet::pin_this_thread(&[core]).map_err(|error| error.to_string());
                let begin = pinned.is_ok();
                let mut block =
                    vec![1_u64; if aggressor == Aggressor::Stream && begin { numbers } else { 0 }];
                // The receiver is dropped if another thread failed to start.
                let _ = tell.send(pinned);
                match aggressor {
                    _ if !begin => {}
                    Aggressor::Compute => compute(&end, &own),
                    Aggressor::Stream => stream(&mut block, &end, &own),
                }
            };
            let thread = thread::Builder::new().name(format!("aggressor-{core}")).spawn(run);
            all.threads
                .push(thread.map_err(|error| Halt::Failed(format!("cannot start synthetic load: {error}")))?);
            all.work.push(work);
        }
        drop(tell);
        for pinned in told.iter().take(cores.len()) {
            pinned.map_err(|error| Halt::Failed(format!("cannot start synthetic load: {error}")))?;
        }
        Ok(all)
    }

    /// Work done so far, in a unit specific to the type of load.
    fn work(&self) -> u64 {
        self.work.iter().map(|work| work.load(Ordering::Relaxed)).sum()
    }

    /// Work per second while `measure` ran, and its result.
    pub fn pace_during<T>(&self, measure: impl FnOnce() -> Result<T, Halt>) -> Result<(f64, T), Halt> {
        let (before, started) = (self.work(), Instant::now());
        let found = measure()?;
        let done = self.work().saturating_sub(before);
        Ok((done as f64 / started.elapsed().as_secs_f64().max(1e-9), found))
    }

    /// Work per second while nothing else runs.
    pub fn pace_alone(&self, time: Duration, stop: &AtomicBool) -> Result<f64, Halt> {
        let idle = || {
            let started = Instant::now();
            while let Some(left) = time.checked_sub(started.elapsed()) {
                if stop.load(Ordering::Relaxed) {
                    return Err(Halt::Stopped);
                }
                thread::sleep(left.min(STOP_CHECK));
            }
            Ok(())
        };
        self.pace_during(idle).map(|(pace, ())| pace)
    }
}

impl Drop for Aggressors {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// Multiplies and adds eight independent numbers in registers.
fn compute(end: &AtomicBool, work: &AtomicU64) {
    let mut numbers = [1.000_1_f64; 8];
    while !end.load(Ordering::Relaxed) {
        for _ in 0..ITERATIONS {
            for number in &mut numbers {
                *number = *number * 0.999_9 + 0.000_1;
            }
        }
        black_box(&mut numbers);
        work.fetch_add(1, Ordering::Relaxed);
    }
}

/// Changes a number of each cache line, one line after the other, and starts over.
fn stream(block: &mut [u64], end: &AtomicBool, work: &AtomicU64) {
    while !end.load(Ordering::Relaxed) {
        for piece in block.chunks_mut(PIECE) {
            for line in piece.chunks_mut(LINE) {
                if let Some(number) = line.first_mut() {
                    *number = number.wrapping_add(1);
                }
            }
            black_box(&mut *piece);
            work.fetch_add(1, Ordering::Relaxed);
            if end.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Bytes of memory that no cache holds.
fn memory() -> usize {
    let sizes = (0..8).map(|index| format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size"));
    let sizes = sizes.filter_map(|path| cache_bytes(&fs::read_to_string(path).ok()?));
    sizes.max().map_or(MEMORY_MAX, |largest| largest.saturating_mul(CACHES).clamp(MEMORY_MIN, MEMORY_MAX))
}

/// `32768K` in bytes.
fn cache_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => (text.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggressors_run_on_their_core_until_they_are_dropped() {
        let core = *gpulet::allowed_cores().unwrap().last().unwrap();
        for aggressor in [Aggressor::Compute, Aggressor::Stream] {
            let aggressors = Aggressors::start(aggressor, &[core]).unwrap();
            let work = Arc::clone(&aggressors.work[0]);
            while work.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            let pace = aggressors.pace_alone(Duration::from_millis(5), &AtomicBool::new(false)).unwrap();
            assert!(pace.is_finite() && pace >= 0.0);
            let stopped = aggressors.pace_alone(Duration::from_secs(600), &AtomicBool::new(true));
            assert!(matches!(stopped, Err(Halt::Stopped)));
            drop(aggressors);
            let after = work.load(Ordering::Relaxed);
            assert_eq!(Arc::strong_count(&work), 1, "its thread has ended");
            assert_eq!(work.load(Ordering::Relaxed), after);
        }
    }

    #[test]
    fn an_aggressor_on_a_missing_core_is_refused_and_leaves_no_thread() {
        let told = Aggressors::start(Aggressor::Stream, &[usize::MAX]).err();
        assert!(
            matches!(told, Some(Halt::Failed(reason)) if reason.starts_with("cannot start synthetic load"))
        );
    }

    #[test]
    fn sizes_of_caches_are_read() {
        assert_eq!(
            ["32K\n", "33792K", "1M", "x", "K"].map(cache_bytes),
            [Some(32 << 10), Some(33_792 << 10), Some(1 << 20), None, None]
        );
        assert!((MEMORY_MIN..=MEMORY_MAX).contains(&memory()));
    }
}
