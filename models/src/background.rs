//! Priorities below the ordinary one: of threads that load models, and of those that run best-effort models.
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
        let nice = own.saturating_add(NICER).min(NICEST);
        set_attributes(THIS_THREAD, (libc::SCHED_BATCH, nice, SLICE))?;
    }
    Ok(())
}

/// From now on the calling thread, and every thread that it starts, runs at idle priority (`SCHED_IDLE`): while no other thread
/// wants its cores, and next to others for 0.3 % of the time.
///
/// # Errors
/// When the kernel refuses; the thread then goes on as it was.
pub fn enter_idle_priority() -> io::Result<()> {
    set_idle_priority(THIS_THREAD)
}

/// As [`enter_idle_priority`], for the main thread of another process.
///
/// # Errors
/// When the kernel refuses, or has no such priority.
pub fn set_idle_priority(process: u32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return set_attributes(process, (libc::SCHED_IDLE, 0, 0));
    #[cfg(not(target_os = "linux"))]
    return Err(io::ErrorKind::Unsupported.into());
}

/// The calling thread, to the kernel.
const THIS_THREAD: u32 = 0;

/// Sets policy, niceness and slice in nanoseconds.
#[cfg(target_os = "linux")]
fn set_attributes(thread: u32, (policy, nice, slice): (libc::c_int, i32, u64)) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(u32::MAX),
        sched_policy: policy.cast_unsigned(),
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice,
        sched_deadline: 0,
        sched_period: 0,
    };
    let (thread, no_flags): (libc::c_long, libc::c_long) = (thread.into(), 0);
    #[expect(unsafe_code, reason = "sched_setattr has no wrapper")]
    // SAFETY: the structure is initialised, says its own size, and outlives the call, which only reads it.
    let code =
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread, std::ptr::from_ref(&attributes), no_flags) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    fn threads_of_a_thread_of_idle_priority_have_it_too() {
        let seen = std::thread::spawn(|| {
            enter_idle_priority().unwrap();
            (priority().1, std::thread::spawn(priority).join().unwrap().1)
        });
        let idle = i64::from(libc::SCHED_IDLE);
        assert_eq!(seen.join().unwrap(), (idle, idle));
    }

    #[test]
    fn another_process_gets_idle_priority() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let given = set_idle_priority(child.id());
        let status = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        given.unwrap();
        let policy = status.rsplit_once(") ").unwrap().1.split(' ').nth(41 - 3).unwrap().to_owned();
        assert_eq!(policy, libc::SCHED_IDLE.to_string());
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
