//! Time of a run in nanoseconds since the first request could be due, and a precise alarm.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The clock of a run, the same for all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose nanosecond 0 is `lead` ahead.
    pub fn starting_in(lead: Duration) -> Self {
        let now = Instant::now();
        Self { start: now.checked_add(lead).unwrap_or(now) }
    }

    /// Nanoseconds since the start; 0 before it.
    pub fn now(&self) -> u64 {
        u64::try_from(Instant::now().saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Time left until a nanosecond.
    fn until(&self, at: u64) -> Duration {
        let at = self.start.checked_add(Duration::from_nanos(at)).unwrap_or(self.start);
        at.saturating_duration_since(Instant::now())
    }
}

/// Wakes at a nanosecond. The timer of an async runtime is only precise to a millisecond.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// Must be made inside a runtime.
    #[expect(unsafe_code, reason = "the runtime has no safe way to watch a descriptor")]
    pub fn new(clock: Clock) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the descriptor is owned by its watcher, does not change while that lives, and is closed only by its
        // drop, after it was removed from the watch list.
        let timer = unsafe { AsyncFd::register(timer) }?;
        Ok(Self { clock, timer })
    }

    /// Waits until a nanosecond. Returns immediately if it has passed.
    pub async fn wait(&self, at: u64) -> io::Result<()> {
        let span = self.clock.until(at);
        if span.is_zero() {
            return Ok(());
        }
        let it_value = Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut guard = self.timer.readable().await?;
            let mut expired = [0; 8];
            match rustix::io::read(self.timer.get_ref(), &mut expired) {
                Ok(_) => {
                    guard.clear_ready();
                    return Ok(());
                }
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
