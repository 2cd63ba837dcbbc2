//! The end of a roll-out.

use std::fmt;

/// What is done with the canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It gets all requests from now on.
    Promoted {
        /// The reason.
        cause: Cause,
    },
    /// It gets no more requests.
    RolledBack {
        /// The reason.
        cause: Cause,
    },
}

/// Why a roll-out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The bake time is over, with enough requests and without evidence against the canary.
    Baked,
    /// An operator said so.
    Operator,
    /// A lane failed twice while it ran a request on the canary.
    Crashed,
    /// The canary is worse in this.
    Worse {
        /// In what.
        measure: Measure,
        /// For this tenant's requests. `None`: for all requests together.
        tenant: Option<u16>,
    },
}

/// What the two versions are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Requests that the version failed on.
    Failures,
    /// Requests that were not answered in time.
    Attainment,
    /// Outputs that differ from those of the stable version.
    Agreement,
}

impl Verdict {
    /// The reason for it.
    pub fn cause(&self) -> Cause {
        match *self {
            Self::Promoted { cause } | Self::RolledBack { cause } => cause,
        }
    }

    /// The tenant whose requests alone led to it.
    pub fn tenant(&self) -> Option<u16> {
        match self.cause() {
            Cause::Worse { tenant, .. } => tenant,
            Cause::Baked | Cause::Operator | Cause::Crashed => None,
        }
    }

    /// Whether the canary gets all requests.
    pub fn is_promotion(&self) -> bool {
        matches!(self, Self::Promoted { .. })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Baked => f.write_str("the bake time is over without evidence against it"),
            Self::Operator => f.write_str("an operator decided"),
            Self::Crashed => f.write_str("a request failed with two lanes"),
            Self::Worse { measure, .. } => f.write_str(match measure {
                Measure::Failures => "more requests fail than with the old version",
                Measure::Attainment => "fewer requests are answered in time than with the old version",
                Measure::Agreement => "outputs differ from those of the old version",
            }),
        }
    }
}
