//! The questions: one file and one word each.

use std::fmt::Write as _;
use std::time::Duration;

use clap::ValueEnum;

use crate::bench::{Bench, Stop};

/// Declares the questions' modules and lists them in the order in which `--all` asks them. Each module has a function
/// `ask` that says what it finds.
macro_rules! questions {
    ($($module:ident::$question:ident, $seconds:literal, $about:literal;)+) => {
        $(mod $module;)+

        /// A question.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum Question {
            $(#[doc = $about] #[value(help = $about)] $question),+
        }

        impl Question {
            /// All of them, in the order of `--all`: the cheap and telling ones first.
            pub const ALL: [Self; [$(stringify!($question)),+].len()] = [$(Self::$question),+];

            /// The word that asks it.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$question => stringify!($module)),+
                }
            }

            /// For people, one line.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$question => $about),+
                }
            }

            /// Time for it; what is not asked by then is left out.
            pub fn time(self) -> Duration {
                match self {
                    $(Self::$question => Duration::from_secs($seconds)),+
                }
            }

            /// Asks, and says what it finds.
            ///
            /// # Errors
            /// Why it was given up; what was said until then holds.
            pub fn ask(self, bench: &mut Bench<'_>) -> Result<(), Stop> {
                match self {
                    $(Self::$question => $module::ask(bench)),+
                }
            }
        }
    };
}

questions! {
    facts::Facts, 15, "driver, units, what contexts cost and how many there may be, events, priorities";
    libraries::Libraries, 45, "models on a gpulet: right answers, and no SM beyond the gpulet's used";
    isolation::Isolation, 25, "SMs of gpulets are disjoint; times beside a busy neighbour";
    resize::Resize, 40, "1,000 plan changes under load: nothing lost, how long capacity is reduced";
    sharing::Sharing, 25, "memory that the second session of a model takes";
    interference::Interference, 30, "computing and copying kernels beside each other, at 50 and 100 %";
    profile::Profile, 120, "time of a batch by model, rows and units, as a profile file; beside each other, with a fit";
    faults::Faults, 25, "what a fault takes with it, and how long a restart takes";
    mix::Mix, 105, "capacity of the models together: by turns, by streams, by our plan, by equal parts";
}

impl Question {
    /// Whether some of it is about models.
    pub(crate) fn needs_models(self) -> bool {
        match self {
            Self::Libraries | Self::Sharing | Self::Profile | Self::Mix | Self::Faults => true,
            Self::Facts | Self::Isolation | Self::Resize | Self::Interference => false,
        }
    }
}

pub(crate) use faults::{look_beyond, recover, suffer};
pub(crate) use libraries::{MPS_SHARE, ask_with_share};

/// Time that a child has beyond its question's before it is ended.
pub const GRACE: Duration = Duration::from_secs(5);

/// The questions for `--help`.
pub(crate) fn table() -> String {
    let mut table = String::from("Questions, and the seconds that each may take:\n");
    for question in Question::ALL {
        let (word, seconds) = (question.word(), question.time().as_secs());
        let _ = writeln!(table, "  {word:<13}{seconds:>4}  {}", question.about());
    }
    table.push_str(
        "\nExit codes: 0 all asked (what could not be asked says why), 1 a check failed, 2 the command line makes no \
         sense, 3 there is no GPU.",
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_questions_take_less_than_eight_minutes() {
        let total: Duration = Question::ALL.iter().map(|question| question.time() + GRACE).sum();
        assert!(total < Duration::from_secs(8 * 60), "{total:?}");
    }

    #[test]
    fn a_question_is_asked_by_its_word() {
        for question in Question::ALL {
            assert_eq!(Question::from_str(question.word(), false), Ok(question));
            assert!(table().contains(question.about()));
        }
    }
}
