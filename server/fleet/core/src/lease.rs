//! Leader election over a record that all candidates read and write with compare-and-swap, such as a Lease of Kubernetes.
//!
//! The rules are those of client-go, with four differences that close its gaps:
//! - A leader counts its term from the moment it *sent* its last successful write, so a slow reply does not extend the term.
//! - A deleted record is created again as vacant. It is taken over only after a full lease duration, because its
//!   deletion does not stop the leader that wrote it.
//! - Every takeover has a higher epoch than all before it ([`crate::epoch`]). It is stored by the write that takes over.
//! - A lost reply does not end a term: the leader reads the record, recognizes its own write and continues.
//!
//! No candidate trusts the clock of another one. It takes over if the record did not change for the lease duration *by its
//! own clock*. At most one candidate leads at any moment if the clocks run at the same speed within [`CLOCK_SPEED_PERCENT`].
//! Epochs grow if the record is kept, or if a candidate that read it or a plan of its leader is left.

mod election;
#[cfg(test)]
mod simulation;

use std::time::Duration;

use thiserror::Error;

pub use self::election::{Effect, Election, Event, Reason, Unreadable};

/// Difference in speed between two clocks that the election tolerates, percent.
pub const CLOCK_SPEED_PERCENT: u32 = 2;
/// Longest lease duration.
pub const LEASE_DURATION_MAX: Duration = Duration::from_secs(3_600);

/// Times of an election. All candidates must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// A setting of the election that cannot work.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SettingsError {
    /// The record stores whole seconds.
    #[error("lease duration: expected whole seconds from 1s to 3600s, got {0:?}")]
    LeaseDuration(Duration),
    /// A leader must stop before another candidate starts, with a margin for clocks of different speed.
    #[error("renew deadline: expected at most {most:?}, which is 90 % of the lease duration, got {got:?}")]
    RenewDeadline {
        /// The value.
        got: Duration,
        /// The highest value for this lease duration.
        most: Duration,
    },
    /// One failed write must not end a term.
    #[error(
        "retry period: expected more than 0s and at most {most:?}, half of the renew deadline, got {got:?}"
    )]
    RetryPeriod {
        /// The value.
        got: Duration,
        /// The highest value for this renew deadline.
        most: Duration,
    },
}

impl Default for Settings {
    /// The times of Kubernetes' own controllers: 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Settings {
    /// Checks the times of an election.
    ///
    /// # Errors
    /// Names the time that cannot work, and what would.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, SettingsError> {
        let whole = lease_duration.subsec_nanos() == 0 && !lease_duration.is_zero();
        if !whole || lease_duration > LEASE_DURATION_MAX {
            return Err(SettingsError::LeaseDuration(lease_duration));
        }
        let most = lease_duration * 9 / 10;
        if renew_deadline > most {
            return Err(SettingsError::RenewDeadline { got: renew_deadline, most });
        }
        let most = renew_deadline / 2;
        if retry_period.is_zero() || retry_period > most {
            return Err(SettingsError::RetryPeriod { got: retry_period, most });
        }
        Ok(Self { lease_duration, renew_deadline, retry_period })
    }

    /// Time without a change of the record after which another candidate takes over.
    #[must_use]
    pub const fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// Time after its last successful write until which a leader leads.
    #[must_use]
    pub const fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Time between two writes of a leader, and between two reads of a candidate.
    #[must_use]
    pub const fn retry_period(&self) -> Duration {
        self.retry_period
    }
}

/// Who holds the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The candidate with this identity.
    Candidate(String),
    /// The last holder stopped leading before it wrote this, so another one may start at once.
    Released,
    /// Unknown: the record was created because the last one was deleted or never existed.
    Vacant,
}

/// The record as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it.
    pub holder: Holder,
    /// Time of the last renewal by the holder's clock. It is only compared for equality.
    pub renewed: String,
    /// How long the holder may count on it.
    pub duration: Duration,
    /// Number of takeovers so far.
    pub transitions: u32,
    /// Epoch of the last leader.
    pub epoch: u64,
    /// Version of the record in the store, which changes with every write. It is only compared for equality.
    pub version: String,
}

/// A write of the record. The store must refuse it if its version is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Version that the record must have. `None`: it must not exist.
    pub expected: Option<String>,
    /// Whether this write takes the record over, so that the time of the takeover is stored too.
    pub takeover: bool,
    /// The new holder.
    pub holder: Holder,
    /// The new duration.
    pub duration: Duration,
    /// The new number of takeovers.
    pub transitions: u32,
    /// The new epoch.
    pub epoch: u64,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteReply {
    /// It is stored; the record has this version now.
    Stored(String),
    /// The record had another version, or existed, or did not exist.
    Conflict,
    /// No reply came, or an error that does not tell. The record may have been written.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_work_are_refused_with_what_would() {
        let seconds = Duration::from_secs_f64;
        let new = |lease, renew, retry| Settings::new(seconds(lease), seconds(renew), seconds(retry));
        assert_eq!(new(15.0, 10.0, 2.0), Ok(Settings::default()));
        assert!(new(3.0, 2.0, 0.5).is_ok());
        let said = |lease, renew, retry| new(lease, renew, retry).unwrap_err().to_string();
        assert_eq!(said(1.5, 1.0, 0.2), "lease duration: expected whole seconds from 1s to 3600s, got 1.5s");
        assert!(said(0.0, 0.0, 0.0).starts_with("lease duration:"));
        assert!(said(3_601.0, 10.0, 2.0).starts_with("lease duration:"));
        let text = "renew deadline: expected at most 9s, which is 90 % of the lease duration, got 10s";
        assert_eq!(said(10.0, 10.0, 2.0), text);
        let text = "retry period: expected more than 0s and at most 5s, half of the renew deadline, got 6s";
        assert_eq!(said(15.0, 10.0, 6.0), text);
        assert!(said(15.0, 10.0, 0.0).starts_with("retry period:"));
    }
}
