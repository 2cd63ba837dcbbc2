//! Threads that load models give way to those that serve them.
//!
//! Loading, measuring and dropping a model is work for seconds on every core that it may use. On the cores of the
//! lanes and of the network it must fill the gaps and nothing else.

use std::io;

/// Leaves a tenth of a core that others would fill entirely, so that a load ends in bounded time even where the gaps
/// never come. The lowest niceness would leave 1.5 %, which makes minutes of seconds.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

/// The niceness that the kernel knows none beyond.
#[cfg(target_os = "linux")]
const NICEST: i32 = 19;

/// Time for which the kernel lets the thread run on although another became ready, in nanoseconds; its shortest.
/// Without this that is some milliseconds, whatever the niceness.
#[cfg(target_os = "linux")]
const SLICE: u64 = 100_000;

/// From now on the calling thread, and every thread that it starts, runs in the gaps that others leave. There is no
/// way back without privileges, so this is for a thread that ends with its work.
///
/// # Errors
/// When the kernel refuses; the thread then goes on as it was.
pub fn give_way() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let own = rustix::process::getpriority_process(None)?;
        let attributes = libc::sched_attr {
            size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(u32::MAX),
            sched_policy: libc::SCHED_BATCH.cast_unsigned(),
            sched_flags: 0,
            sched_nice: own.saturating_add(NICER).min(NICEST),
            sched_priority: 0,
            sched_runtime: SLICE,
            sched_deadline: 0,
            sched_period: 0,
        };
        let (this_thread, no_flags): (libc::c_long, libc::c_long) = (0, 0);
        #[expect(unsafe_code, reason = "sched_setattr has no wrapper")]
        // SAFETY: the structure is initialised, says its own size, and outlives the call, which only reads it.
        let code = unsafe {
            libc::syscall(libc::SYS_sched_setattr, this_thread, std::ptr::from_ref(&attributes), no_flags)
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Niceness and scheduling policy of the calling thread.
    fn standing() -> (i64, i64) {
        let status = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = status.rsplit_once(") ").unwrap().1;
        let field = |number: usize| after_name.split(' ').nth(number - 3).unwrap().parse().unwrap();
        (field(19), field(41))
    }

    #[test]
    fn only_the_thread_that_asks_gives_way() {
        let before = standing();
        let seen = std::thread::spawn(|| {
            give_way().unwrap();
            (standing(), std::thread::spawn(standing).join().unwrap())
        });
        let nicer = (before.0 + i64::from(NICER)).min(i64::from(NICEST));
        let nice = (nicer, i64::from(libc::SCHED_BATCH));
        assert_eq!(seen.join().unwrap(), (nice, nice));
        assert_eq!(standing(), before);
    }
}
