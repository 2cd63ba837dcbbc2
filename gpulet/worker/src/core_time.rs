//! Whether a process had the cores that it wanted.
//!
//! On a machine that has more to do than cores, a sound worker answers late. To end it would make that worse, so the
//! time for which one of its threads was ready to run and had no core does not count against it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What each thread of a process had until now. Threads that give way are left out: they have to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreTimes(BTreeMap<u32, CoreTime>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoreTime {
    /// Whether it wants a core just now, or has one.
    ready: bool,
    /// For which it had a core.
    ran: Duration,
    /// For which it waited for one, until it had it: the time since it last wanted one is not in it.
    waited: Duration,
}

impl CoreTimes {
    /// A process of one thread that sleeps and has waited for so many milliseconds.
    #[cfg(test)]
    pub fn of_one(waited: u64) -> Self {
        let waited = Duration::from_millis(waited);
        Self([(1, CoreTime { ready: false, ran: Duration::ZERO, waited })].into())
    }

    /// What the threads of a process had that are no nicer than this. Empty where the kernel does not say.
    pub fn of(process: u32, priority: i32) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        let folders = tasks.into_iter().flatten().flatten().map(|task| task.path());
        Self(folders.filter_map(|folder| thread(folder, priority)).collect())
    }

    /// The longest time for which one of the threads wanted a core and had none, of the time that passed since.
    pub fn lacked(&self, earlier: &Self, passed: Duration) -> Duration {
        let lacks = self.0.iter().filter_map(|(thread, now)| {
            let before = earlier.0.get(thread)?;
            let ran = now.ran.saturating_sub(before.ran);
            let waited = now.waited.saturating_sub(before.waited);
            Some(if now.ready { passed.saturating_sub(ran) } else { waited })
        });
        lacks.max().unwrap_or_default().min(passed)
    }
}

fn thread(folder: PathBuf, priority: i32) -> Option<(u32, CoreTime)> {
    let number = folder.file_name()?.to_str()?.parse().ok()?;
    let status = std::fs::read_to_string(folder.join("stat")).ok()?;
    let counts = std::fs::read_to_string(folder.join("schedstat")).ok()?;
    Some((number, read(&status, &counts, priority)?))
}

/// A thread's time from its `stat` and its `schedstat`; none if it is nicer than this.
fn read(status: &str, counts: &str, priority: i32) -> Option<CoreTime> {
    // The name before it is in brackets and may hold anything.
    let mut fields = status.rsplit_once(") ")?.1.split(' ');
    let ready = fields.next()? == "R";
    let niceness: i32 = fields.nth(15)?.parse().ok()?;
    let mut counts = counts.split_whitespace().map(|nanos| nanos.parse().ok().map(Duration::from_nanos));
    let (ran, waited) = (counts.next()??, counts.next()??);
    (niceness <= priority).then_some(CoreTime { ready, ran, waited })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn times(ready: bool, ran: u64, waited: u64) -> CoreTimes {
        let millis = Duration::from_millis;
        CoreTimes([(1, CoreTime { ready, ran: millis(ran), waited: millis(waited) })].into())
    }

    #[test]
    fn only_a_thread_that_wants_a_core_and_has_none_lacks_it() {
        let (earlier, passed) = (times(false, 500, 30), Duration::from_millis(100));
        for (now, lacked, what) in [
            (times(true, 600, 30), 0, "it ran all the time"),
            (times(false, 500, 30), 0, "it slept, or was stopped"),
            (times(true, 500, 30), 100, "it is ready and did not run at all"),
            (times(true, 520, 110), 80, "it ran a little"),
            (times(false, 510, 90), 60, "it waited, ran and sleeps"),
            (times(false, 510, 990), 100, "no more than passed"),
            (CoreTimes::default(), 0, "it is gone"),
        ] {
            assert_eq!(now.lacked(&earlier, passed), Duration::from_millis(lacked), "{what}");
        }
        assert_eq!(times(true, 1, 1).lacked(&CoreTimes::default(), passed), Duration::ZERO, "it is new");
    }

    #[test]
    fn the_kernels_words_are_understood() {
        let status = "7 (a) b) R 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 5 6 7";
        let time = CoreTime { ready: true, ran: Duration::from_nanos(12), waited: Duration::from_nanos(34) };
        assert_eq!(read(status, "12 34 5\n", 0), Some(time));
        assert_eq!(
            read(&status.replace(" R ", " S "), "12 34 5\n", 0),
            Some(CoreTime { ready: false, ..time })
        );
        assert_eq!(read(&status.replace("20 0 1", "30 10 1"), "12 34 5\n", 0), None, "it gives way");
        assert_eq!(read("7 (a", "12 34 5\n", 0), None);
        assert_eq!(read(status, "12", 0), None);
    }

    #[test]
    fn a_thread_that_runs_is_seen() {
        let of_this = || CoreTimes::of(std::process::id(), 19);
        let before = of_this();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        let after = of_this();
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(after.0[&own].ready && after.0[&own].ran > before.0[&own].ran);
    }
}
