//! The checks: names, descriptions and times. `checks` runs them.

use std::fmt::Write as _;
use std::time::Duration;

use clap::ValueEnum;

/// Time that a child process has in addition to its check's before it is killed.
pub const GRACE: Duration = Duration::from_secs(5);

/// Declares the checks in the order in which `--all` runs them, with their times in seconds.
macro_rules! checks {
    ($($check:ident, $name:literal, $seconds:literal, $about:literal;)+) => {
        /// A check.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum Check {
            $(#[doc = $about] #[value(help = $about)] $check),+
        }

        impl Check {
            /// All checks, in the order of `--all`: cheap and informative ones first.
            pub const ALL: [Self; [$(stringify!($check)),+].len()] = [$(Self::$check),+];

            /// The name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$check => $name),+
                }
            }

            /// A description of one line.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$check => $about),+
                }
            }

            /// Time for the check. What is not measured by then is left out.
            pub fn time(self) -> Duration {
                match self {
                    $(Self::$check => Duration::from_secs($seconds)),+
                }
            }
        }
    };
}

checks! {
    Facts, "facts", 15, "driver, units, cost and number of contexts, events";
    Libraries, "libraries", 45, "models on a gpulet: correct results, and no SM outside the gpulet used";
    Isolation, "isolation", 25, "SMs of gpulets are disjoint; times next to a busy gpulet";
    Resize, "resize", 40, "1,000 plan changes under load: nothing lost, how long capacity is reduced";
    Sharing, "sharing", 25, "memory of the second session of a model";
    Interference, "interference", 30, "co-located computing and copying kernels, at 50 and 100 % load";
    Profile, "profile", 120, "times of batches by model, rows and units, as a profile file; co-located models, with a fit";
    Faults, "faults", 25, "what a fault ends, and how long a restart takes";
    Mix, "mix", 105, "capacity of all models together: time sharing, streams, our plan, equal parts";
}

impl Check {
    /// Whether a part of the check needs models.
    pub(crate) fn needs_models(self) -> bool {
        match self {
            Self::Libraries | Self::Sharing | Self::Profile | Self::Mix | Self::Faults => true,
            Self::Facts | Self::Isolation | Self::Resize | Self::Interference => false,
        }
    }
}

/// The checks for `--help`.
pub(crate) fn table() -> String {
    let mut table = String::from("Checks, and the seconds that each may take:\n");
    for check in Check::ALL {
        let (name, seconds) = (check.name(), check.time().as_secs());
        let _ = writeln!(table, "  {name:<13}{seconds:>4}  {}", check.about());
    }
    table.push_str(
        "\nExit codes: 0 all checks ran (facts without a value say why), 1 a fact is not as required, 2 the command line is \
         wrong, 3 there is no GPU.",
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_checks_take_less_than_eight_minutes() {
        let total: Duration = Check::ALL.iter().map(|check| check.time() + GRACE).sum();
        assert!(total < Duration::from_secs(8 * 60), "{total:?}");
    }

    #[test]
    fn a_check_is_chosen_by_its_name() {
        for check in Check::ALL {
            assert_eq!(Check::from_str(check.name(), false), Ok(check));
            assert!(table().contains(check.about()));
        }
    }
}
