//! Counts states that the code considers impossible.
//!
//! A decision core must not panic in production, and must not ignore an impossible state either. [`violated!`]
//! marks the place: it panics where debug assertions are on and counts everywhere. The caller then leaves the
//! function. The shell reads [`violations`] for the metric `tessera_invariant_violations_total{id}` and the log.
//!
//! The counters are process-wide and are only written by the cores, so decisions stay a function of their
//! inputs. A place costs nothing until it is reached.

#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most places that are listed. More than this many distinct violations are counted by their site but not listed.
const SITES_MAX: usize = 1_024;

static SITES: [OnceLock<&'static Site>; SITES_MAX] = [const { OnceLock::new() }; SITES_MAX];

/// One place in the code that must not be reached.
#[derive(Debug)]
pub struct Site {
    id: &'static str,
    file: &'static str,
    line: u32,
    count: AtomicU64,
}

/// How often a place that must not be reached was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was found, for example `router.queue_without_model`: the label of the metric.
    pub id: &'static str,
    /// Source file of the place.
    pub file: &'static str,
    /// Line in that file.
    pub line: u32,
    /// Times since the process started, at least 1.
    pub count: u64,
}

impl Site {
    /// A place that was not reached yet. Use [`violated!`] instead.
    #[must_use]
    pub const fn new(id: &'static str, file: &'static str, line: u32) -> Self {
        Self { id, file, line, count: AtomicU64::new(0) }
    }

    /// Counts one violation. Use [`violated!`] instead.
    #[cold]
    pub fn count(&'static self) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            // The first free entry takes this place; `set` fails where another thread was faster.
            let _listed = SITES.iter().any(|entry| entry.set(self).is_ok());
        }
        debug_assert!(false, "invariant violated: {} at {}:{}", self.id, self.file, self.line);
    }
}

/// Every place that was reached since the process started, in the order of first arrival.
#[must_use]
pub fn violations() -> Vec<Violation> {
    SITES
        .iter()
        .map_while(OnceLock::get)
        .map(|site| Violation {
            id: site.id,
            file: site.file,
            line: site.line,
            count: site.count.load(Ordering::Relaxed),
        })
        .collect()
}

/// Marks a state that cannot happen: panics where debug assertions are on, counts one violation everywhere.
///
/// The value is `()`, so `let Some(x) = y else { return violated!("core.id") };` leaves a function that returns
/// nothing. The id is a literal: `<core>.<what was found>` in snake case.
///
/// ```
/// fn first_even(numbers: &[u32]) -> Option<u32> {
///     let Some(even) = numbers.iter().find(|number| *number % 2 == 0) else {
///         invariant::violated!("example.no_even_number");
///         return None;
///     };
///     Some(*even)
/// }
/// assert_eq!(first_even(&[3, 4]), Some(4));
/// assert!(invariant::violations().is_empty());
/// ```
#[macro_export]
macro_rules! violated {
    ($id:literal) => {{
        static SITE: $crate::Site = $crate::Site::new($id, file!(), line!());
        SITE.count();
    }};
}

/// Passes an `Option` through and counts a violation if it is `None`.
///
/// ```
/// fn first_even(numbers: &[u32]) -> u32 {
///     let first = numbers.iter().find(|number| *number % 2 == 0);
///     let Some(even) = invariant::expected!(first, "example.no_even_number") else { return 0 };
///     *even
/// }
/// assert_eq!(first_even(&[3, 4]), 4);
/// ```
#[macro_export]
macro_rules! expected {
    ($option:expr, $id:literal) => {{
        let option = $option;
        if option.is_none() {
            $crate::violated!($id);
        }
        option
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "invariant violated: test.reached"))]
    fn a_place_that_is_reached_is_listed_with_its_count() {
        for _ in 0..3 {
            violated!("test.reached");
        }
        let found: Vec<_> = violations().into_iter().filter(|found| found.id == "test.reached").collect();
        assert_eq!(found.len(), 1, "one place, one entry");
        assert_eq!(found[0].count, 3);
        assert!(found[0].file.ends_with("lib.rs"));
    }

    #[test]
    fn a_place_that_is_not_reached_is_not_listed() {
        if std::hint::black_box(false) {
            violated!("test.not_reached");
        }
        assert!(violations().iter().all(|found| found.id != "test.not_reached"));
    }
}
