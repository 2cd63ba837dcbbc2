//! How long a process waited for cores.
//!
//! On an overloaded machine a healthy worker answers late, and killing it would make matters worse. Time for which one
//! of its threads was ready to run but had no core does not count against it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Core time of each thread of a process so far. Threads at background priority are left out: they have to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreTimes(BTreeMap<u32, CoreTime>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoreTime {
    /// Whether it is running or runnable.
    ready: bool,
    /// Time on a core.
    ran: Duration,
    /// Time it waited for a core and then got it. A wait that still lasts is not included.
    waited: Duration,
}

impl CoreTimes {
    /// A process of one thread that sleeps now and has waited for `waited` milliseconds.
    #[cfg(test)]
    pub fn of_one(waited: u64) -> Self {
        let waited = Duration::from_millis(waited);
        Self([(1, CoreTime { ready: false, ran: Duration::ZERO, waited })].into())
    }

    /// The threads of a process whose niceness is at most `priority`. Empty where the kernel does not report them.
    pub fn of(process: u32, priority: i32) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        let folders = tasks.into_iter().flatten().flatten().map(|task| task.path());
        Self(folders.filter_map(|folder| thread(folder, priority)).collect())
    }

    /// The longest time that one of the threads was without a core it wanted since `earlier`, at most `passed`.
    pub fn starved(&self, earlier: &Self, passed: Duration) -> Duration {
        let starved = self.0.iter().filter_map(|(thread, now)| {
            let before = earlier.0.get(thread)?;
            let ran = now.ran.saturating_sub(before.ran);
            let waited = now.waited.saturating_sub(before.waited);
            Some(if now.ready { passed.saturating_sub(ran) } else { waited })
        });
        starved.max().unwrap_or_default().min(passed)
    }
}

fn thread(folder: PathBuf, priority: i32) -> Option<(u32, CoreTime)> {
    let number = folder.file_name()?.to_str()?.parse().ok()?;
    let status = std::fs::read_to_string(folder.join("stat")).ok()?;
    let counts = std::fs::read_to_string(folder.join("schedstat")).ok()?;
    Some((number, read(&status, &counts, priority)?))
}

/// A thread's time from its `stat` and its `schedstat`; none if its niceness exceeds `priority`.
fn read(status: &str, counts: &str, priority: i32) -> Option<CoreTime> {
    // The name before these fields is in parentheses and may contain any character.
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
    fn only_a_runnable_thread_without_a_core_is_starved() {
        let (earlier, passed) = (times(false, 500, 30), Duration::from_millis(100));
        for (now, starved, what) in [
            (times(true, 600, 30), 0, "it ran all the time"),
            (times(false, 500, 30), 0, "it slept, or was stopped"),
            (times(true, 500, 30), 100, "it is runnable and did not run at all"),
            (times(true, 520, 110), 80, "it ran a little"),
            (times(false, 510, 90), 60, "it waited, ran and now sleeps"),
            (times(false, 510, 990), 100, "at most the time that passed"),
            (CoreTimes::default(), 0, "it has ended"),
        ] {
            assert_eq!(now.starved(&earlier, passed), Duration::from_millis(starved), "{what}");
        }
        assert_eq!(
            times(true, 1, 1).starved(&CoreTimes::default(), passed),
            Duration::ZERO,
            "it has just started"
        );
    }

    #[test]
    fn files_of_the_kernel_are_parsed() {
        let status = "7 (a) b) R 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 5 6 7";
        let time = CoreTime { ready: true, ran: Duration::from_nanos(12), waited: Duration::from_nanos(34) };
        assert_eq!(read(status, "12 34 5\n", 0), Some(time));
        assert_eq!(
            read(&status.replace(" R ", " S "), "12 34 5\n", 0),
            Some(CoreTime { ready: false, ..time })
        );
        assert_eq!(read(&status.replace("20 0 1", "30 10 1"), "12 34 5\n", 0), None, "background priority");
        assert_eq!(read("7 (a", "12 34 5\n", 0), None);
        assert_eq!(read(status, "12", 0), None);
    }

    #[test]
    fn a_thread_that_runs_is_seen() {
        let own = rustix::thread::gettid().as_raw_nonzero();
        // Of this thread only: a listing may miss threads while others end, as those of other tests do.
        let of_this = || thread(format!("/proc/self/task/{own}").into(), 19).unwrap().1;
        let before = of_this();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        let after = of_this();
        assert!(after.ready && after.ran > before.ran);
    }
}
