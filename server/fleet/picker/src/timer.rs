//! A timer that is exact to some microseconds. Those of tokio are late by up to a millisecond, which is the time of a whole batch.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;

/// One timer.
#[derive(Debug)]
pub struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    /// When it is due, on the caller's clock.
    armed: Option<Duration>,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The system has no more descriptors.
    #[expect(
        deprecated,
        reason = "`AsyncFd::register` is unsafe; what `new` does not ensure, an `OwnedFd` does"
    )]
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { descriptor: AsyncFd::new(descriptor)?, armed: None })
    }

    /// Sets it to the time `at`, on a clock that shows `now`. `None`: it is not due.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set(&mut self, now: Duration, at: Option<Duration>) -> io::Result<()> {
        if at == self.armed {
            return Ok(());
        }
        // Zero would switch it off.
        let wait = at.map_or(Duration::ZERO, |at| at.saturating_sub(now).max(Duration::from_nanos(1)));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        rustix::time::timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
        self.armed = at;
        Ok(())
    }

    /// Waits until it is due. Never ends while it is not set.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn due(&mut self) -> io::Result<()> {
        loop {
            let mut guard = self.descriptor.readable().await?;
            let mut count = [0_u8; 8];
            match rustix::io::read(guard.get_inner(), &mut count) {
                Ok(_) => {
                    guard.clear_ready();
                    self.armed = None;
                    return Ok(());
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn it_is_due_in_time_and_only_while_it_is_set() {
        let mut timer = Timer::new().unwrap();
        let started = Instant::now();
        timer.set(Duration::ZERO, Some(Duration::from_micros(300))).unwrap();
        timer.due().await.unwrap();
        assert!(started.elapsed() >= Duration::from_micros(300));
        // In the past: at once.
        timer.set(Duration::from_secs(2), Some(Duration::from_secs(1))).unwrap();
        timer.due().await.unwrap();
        timer.set(Duration::ZERO, Some(Duration::from_millis(1))).unwrap();
        timer.set(Duration::ZERO, None).unwrap();
        tokio::select! {
            biased;
            _ = timer.due() => panic!("it was switched off"),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}
