//! How long threads were ready to run while their cores ran other threads. Such waits show that other processes disturbed
//! a run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Longest content of a `schedstat` file: three numbers of 20 digits.
const LINE_BYTES: usize = 64;

/// Ids of this process's threads; empty if the kernel does not list them.
pub fn threads() -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Threads that are watched.
#[derive(Debug)]
pub struct CpuWait(Vec<File>);

impl CpuWait {
    /// Watches the calling thread and others of this process. `None`: the kernel does not report waits.
    pub fn of(others: &BTreeSet<u32>) -> Option<Self> {
        let own = "/proc/thread-self/schedstat".to_owned();
        let others = others.iter().map(|thread| format!("/proc/self/task/{thread}/schedstat"));
        let files = std::iter::once(own).chain(others).map(File::open);
        let watched = Self(files.collect::<Result<_, _>>().ok()?);
        watched.total().map(|_| watched)
    }

    /// Time that they have waited since they started, in total.
    pub fn total(&self) -> Option<Duration> {
        let waited = |file: &File| {
            let mut line = [0_u8; LINE_BYTES];
            let length = file.read_at(&mut line, 0).ok()?;
            let text = std::str::from_utf8(line.get(..length)?).ok()?;
            text.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
        };
        self.0.iter().map(waited).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulet::{allowed_cores, pin_this_thread};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    #[test]
    fn threads_that_share_a_core_wait_and_a_third_sees_it() {
        let core = *allowed_cores().unwrap().first().unwrap();
        let stop = AtomicBool::new(false);
        let (tell, told) = channel();
        let waited = std::thread::scope(|scope| {
            for tell in [tell.clone(), tell] {
                let stop = &stop;
                scope.spawn(move || {
                    pin_this_thread(&[core]).unwrap();
                    let own = rustix::thread::gettid().as_raw_nonzero().get();
                    tell.send(u32::try_from(own).unwrap()).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let spinning: BTreeSet<u32> = told.iter().take(2).collect();
            let listed = spinning.is_subset(&threads());
            let waited = CpuWait::of(&spinning).and_then(|watched| {
                let (before, started) = (watched.total()?, Instant::now());
                let mut waited = Duration::ZERO;
                while waited < Duration::from_millis(20) && started.elapsed() < Duration::from_secs(60) {
                    std::thread::yield_now();
                    waited = watched.total()?.saturating_sub(before);
                }
                Some(waited)
            });
            // Before any assertion: the threads spin until then.
            stop.store(true, Ordering::Relaxed);
            waited.filter(|_| listed).unwrap()
        });
        assert!(waited >= Duration::from_millis(20), "{waited:?}");
    }

    #[test]
    fn a_thread_that_is_not_there_cannot_be_watched() {
        assert!(CpuWait::of(&BTreeSet::from([u32::MAX])).is_none());
    }
}
