//! Background priority for threads that load models.
//!
//! Loading, measuring and dropping a model takes seconds on every core that it may use. On the cores of lanes and of the
//! network it must run only while these are idle.

use std::io;

/// Gets a tenth of a core that other threads would fill entirely, so that a load ends in bounded time. The lowest
/// niceness would get 1.5 %, and seconds would become minutes.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

/// Highest niceness of the kernel.
#[cfg(target_os = "linux")]
const NICEST: i32 = 19;

/// Time for which the thread may run on after another became ready, in nanoseconds: the kernel's shortest. The default is
/// some milliseconds at any niceness.
#[cfg(target_os = "linux")]
const SLICE: u64 = 100_000;

/// From now on the calling thread, and every thread that it starts, runs at background priority. Only privileged
/// processes can undo this, so call it on a thread that ends with its work.
///
/// # Errors
/// When the kernel refuses; the thread then goes on as it was.
pub fn enter_background() -> io::Result<()> {
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
    fn priority() -> (i64, i64) {
        let status = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = status.rsplit_once(") ").unwrap().1;
        let field = |number: usize| after_name.split(' ').nth(number - 3).unwrap().parse().unwrap();
        (field(19), field(41))
    }

    #[test]
    fn only_the_calling_thread_and_its_children_change_priority() {
        let before = priority();
        let seen = std::thread::spawn(|| {
            enter_background().unwrap();
            (priority(), std::thread::spawn(priority).join().unwrap())
        });
        let nicer = (before.0 + i64::from(NICER)).min(i64::from(NICEST));
        let nice = (nicer, i64::from(libc::SCHED_BATCH));
        assert_eq!(seen.join().unwrap(), (nice, nice));
        assert_eq!(priority(), before);
    }
}
