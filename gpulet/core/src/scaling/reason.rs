//! The reasons of targets, for operators.

use std::fmt;

use serde::Serialize;

use super::standby::Standby;
use crate::time::Micros;

/// Why a model's target moved or stayed; rates are requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The target stays, because the plan fits the load.
    Steady,
    /// The scaler has not seen the load for long enough.
    Watching,
    /// The target is the known peak.
    Peak,
    /// The capacity is not forecast to keep the attainment.
    Rising {
        /// Rate forecast for when a change would have its effect.
        forecast: f64,
        /// Attainment forecast with the current capacity, from 0 to 1.
        attainment: f64,
    },
    /// Less capacity would have been enough for all the time that the scaler remembers.
    Falling {
        /// Rate forecast.
        forecast: f64,
    },
    /// Capacity for the highest known rate costs less than a jump to it would lose.
    Insured {
        /// Highest rate of the last half-hour, or planned for at the start.
        highest: f64,
    },
    /// Other models are planned again, and this one follows its forecast.
    Along {
        /// Rate forecast.
        forecast: f64,
    },
    /// The estimate rose above the plan.
    Above {
        /// Rate estimated, without headroom.
        estimate: f64,
    },
    /// The estimate fell well below the plan.
    Below {
        /// Rate estimated, without headroom.
        estimate: f64,
    },
    /// This number of replicas serves the estimate.
    Replicas {
        /// Number of replicas.
        replicas: u64,
        /// Rate estimated.
        estimate: f64,
    },
    /// One replica fewer would have been enough for several evaluations in a row.
    Spare {
        /// Number of evaluations.
        ticks: u32,
    },
    /// The rate moved in the other direction within the cool-down (G4).
    CoolingDown {
        /// Rate that would be planned for.
        wanted: f64,
        /// Microseconds at which it may move.
        until_us: Micros,
    },
    /// The model has had no request for some time.
    Idle {
        /// Microseconds without a request.
        idle_us: Micros,
        /// Where its weights should be.
        standby: Standby,
    },
    /// A request came for a model that was not on a device.
    Woken,
    /// The model is a variant of a family, whose target is divided among its variants.
    Variant,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steady => f.write_str("the plan is right for what comes"),
            Self::Watching => f.write_str("the load has not been seen for long enough to plan for it"),
            Self::Peak => f.write_str("planned for the highest rate that is known to come"),
            Self::Rising { forecast, attainment } => write!(
                f,
                "{forecast:.1} requests a second are forecast, of which the capacity would keep {:.2} % within the objective",
                100.0 * attainment
            ),
            Self::Falling { forecast } => {
                write!(
                    f,
                    "{forecast:.1} requests a second are forecast, and less has been enough for a while"
                )
            }
            Self::Insured { highest } => write!(
                f,
                "capacity for {highest:.1} requests a second, the highest rate known, costs less than a jump to it would lose"
            ),
            Self::Along { forecast } => {
                write!(f, "others are planned again: {forecast:.1} requests a second are forecast")
            }
            Self::Above { estimate } => {
                write!(f, "the rate rose to {estimate:.1} a second, above the plan's")
            }
            Self::Below { estimate } => {
                write!(f, "the rate fell to {estimate:.1} a second, well below the plan's")
            }
            Self::Replicas { replicas, estimate } => {
                write!(f, "{replicas} replicas serve the {estimate:.1} requests a second expected")
            }
            Self::Spare { ticks } => {
                write!(f, "one replica fewer would have been enough {ticks} times in a row")
            }
            Self::CoolingDown { wanted, until_us } => write!(
                f,
                "{wanted:.1} requests a second are wanted, but the rate moved the other way shortly ago: not before {:.1} s",
                until_us.as_secs_f64()
            ),
            Self::Idle { idle_us, standby } => {
                write!(f, "no request for {:.0} s: {standby}", idle_us.as_secs_f64())
            }
            Self::Variant => f.write_str("its part of the plan of its family"),
            Self::Woken => f.write_str("a request came for a model that was not on a device"),
        }
    }
}
