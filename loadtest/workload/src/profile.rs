//! Profiles: the expected time of a batch of a model.

use std::sync::Arc;

use crate::document::ProfileSection;
use crate::spans::{Span, show};
use units::Fault as WorkloadError;

/// Upper bound on the rows of a batch. A profile keeps a time for each number of rows.
pub(crate) const BATCH_MAX: u32 = 4_096;

/// Times of batches of every size from 1 to the largest. Times are never zero and never fall as batches grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Nanoseconds of a batch of 1, 2, ... rows.
    times: Arc<[u64]>,
}

impl Profile {
    /// Nanoseconds that a batch of `batch` rows takes. Rows beyond [`Profile::max_batch`] run as further
    /// batches, one after the other. A batch of 0 rows takes no time.
    pub fn time(&self, batch: u32) -> u64 {
        let of = |rows: u32| {
            let position = usize::try_from(rows).ok().and_then(|rows| rows.checked_sub(1));
            position.and_then(|position| self.times.get(position)).copied()
        };
        of(batch).unwrap_or_else(|| {
            let max = self.max_batch();
            let (full, rest) = (batch / max, batch % max);
            let full_time = of(max).unwrap_or(0).saturating_mul(u64::from(full));
            full_time.saturating_add(of(rest).unwrap_or(0))
        })
    }

    /// The largest batch, at least 1.
    pub fn max_batch(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Creates a profile of `alpha` nanoseconds per row plus `beta` nanoseconds per batch.
    fn linear(alpha: u64, beta: u64, max_batch: u32) -> Option<Self> {
        let time = |rows: u32| alpha.checked_mul(u64::from(rows))?.checked_add(beta);
        Some(Self { times: (1..=max_batch).map(time).collect::<Option<_>>()? })
    }

    /// Interpolates linearly between points. A batch smaller than the first point takes as long as the first.
    fn table(points: &[(u32, u64)]) -> Self {
        let mut times = Vec::new();
        let mut previous: Option<(u32, u64)> = None;
        for &(rows, time) in points {
            let (from, from_time) = previous.unwrap_or((0, time));
            for step in 1..=rows.saturating_sub(from) {
                let rise = u128::from(time.saturating_sub(from_time)) * u128::from(step);
                let share = u64::try_from(rise / u128::from(rows - from)).unwrap_or(u64::MAX);
                times.push(from_time.saturating_add(share));
            }
            previous = Some((rows, time));
        }
        Self { times: times.into() }
    }

    /// Reads the `profile` of a model.
    pub(crate) fn read(
        section: &ProfileSection,
        field: &str,
        files: &mut dyn FnMut(&str) -> Result<Arc<str>, String>,
    ) -> Result<Self, WorkloadError> {
        let linear = section.alpha.is_some() || section.beta.is_some() || section.max_batch.is_some();
        match (linear, &section.points, &section.file) {
            (true, None, None) => Self::read_linear(section, field),
            (false, Some(points), None) => {
                let points = points.iter().map(|&(rows, Span(time))| (rows, time));
                Self::of_points(points)
                    .map_err(|(place, problem)| WorkloadError::new(format!("{field}.points{place}"), problem))
            }
            (false, None, Some(file)) => {
                let at_file = format!("{field}.file");
                let text = files(file)
                    .map_err(|why| WorkloadError::new(&at_file, format!("cannot read `{file}`: {why}")))?;
                Self::read_csv(&text)
                    .map_err(|(line, why)| WorkloadError::new(at_file, why).inside(file, line))
            }
            _ => Err(WorkloadError::new(
                field,
                "expected one of `alpha`, `beta` and `max_batch`, or `points`, or `file`",
            )),
        }
    }

    fn read_linear(section: &ProfileSection, field: &str) -> Result<Self, WorkloadError> {
        let (Some(Span(alpha)), Some(Span(beta)), Some(max_batch)) =
            (section.alpha, section.beta, section.max_batch)
        else {
            return Err(WorkloadError::new(field, "expected all three of `alpha`, `beta` and `max_batch`"));
        };
        if max_batch == 0 || max_batch > BATCH_MAX {
            let problem = format!("expected 1 to {BATCH_MAX}, got {max_batch}");
            return Err(WorkloadError::new(format!("{field}.max_batch"), problem));
        }
        if alpha == 0 && beta == 0 {
            return Err(WorkloadError::new(
                field,
                "a batch takes no time at all: expected alpha + beta above 0",
            ));
        }
        Self::linear(alpha, beta, max_batch).ok_or_else(|| {
            WorkloadError::new(field, "the time of the largest batch is longer than 584 years")
        })
    }

    /// Creates a profile from measured points: rows of a batch, ascending, and nanoseconds, not falling.
    ///
    /// # Errors
    /// Names the invalid point, and the reason.
    pub fn from_points(points: &[(u32, u64)]) -> Result<Self, WorkloadError> {
        Self::of_points(points.iter().copied())
            .map_err(|(place, problem)| WorkloadError::apart(format!("profile.points{place}"), problem))
    }

    /// An error has the index of the point in brackets; none without points.
    fn of_points(points: impl Iterator<Item = (u32, u64)>) -> Result<Self, (String, String)> {
        let mut sound = Vec::new();
        for (position, (rows, time)) in points.enumerate() {
            push_point(&mut sound, rows, time).map_err(|problem| (format!("[{position}]"), problem))?;
        }
        if sound.is_empty() {
            return Err((String::new(), "expected at least one [batch, time]".to_owned()));
        }
        Ok(Self::table(&sound))
    }

    fn read_csv(text: &str) -> Result<Self, (Option<u32>, String)> {
        let mut points = Vec::new();
        crate::trace::table::rows(text, &["batch", "milliseconds"], |line, row| {
            let at = |problem: String| (Some(line), problem);
            let rows = row.get(0).and_then(|rows| rows.parse().ok());
            let rows = rows.ok_or_else(|| at("batch: expected a whole number".to_owned()))?;
            let time = row.get(1).and_then(|time| Span::parse(&format!("{time}ms")).ok());
            let Span(time) =
                time.ok_or_else(|| at("milliseconds: expected a decimal number like 6.125".to_owned()))?;
            push_point(&mut points, rows, time).map_err(at)
        })?;
        if points.is_empty() {
            Err((None, "expected at least one row".to_owned()))
        } else {
            Ok(Self::table(&points))
        }
    }
}

/// Sizes that a profile is measured at and told by: powers of two below the largest batch, and that.
pub fn sizes(largest: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|log| 1 << log).take_while(move |&rows| rows < largest).chain([largest])
}

fn push_point(points: &mut Vec<(u32, u64)>, rows: u32, time: u64) -> Result<(), String> {
    if rows == 0 || rows > BATCH_MAX {
        return Err(format!("batch {rows}: expected 1 to {BATCH_MAX}"));
    }
    if time == 0 {
        return Err(format!("batch {rows} takes no time: expected more than 0"));
    }
    if let Some(&(before, before_time)) = points.last() {
        if rows <= before {
            return Err(format!("batch {rows} after batch {before}: expected growing batches"));
        }
        if time < before_time {
            let (time, before_time) = (show(time), show(before_time));
            return Err(format!(
                "batch {rows} takes {time}, less than the {before_time} of batch {before}: expected times that do not fall"
            ));
        }
    }
    points.push((rows, time));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_profile_is_alpha_b_plus_beta() {
        let profile = Profile::linear(1_053_000, 5_072_000, 64).unwrap();
        assert_eq!((profile.time(1), profile.time(64)), (6_125_000, 72_464_000));
        assert_eq!(profile.max_batch(), 64);
        assert_eq!(profile.time(0), 0);
        assert_eq!(profile.time(65), 72_464_000 + 6_125_000, "the 65th row runs as a batch of its own");
        assert!(Profile::linear(u64::MAX / 2, 0, 4).is_none());
    }

    #[test]
    fn a_table_is_straight_between_its_points() {
        let profile = Profile::table(&[(2, 600), (4, 700), (8, 1_300)]);
        let times: Vec<u64> = (1..=8).map(|batch| profile.time(batch)).collect();
        assert_eq!(times, [600, 600, 650, 700, 850, 1_000, 1_150, 1_300]);
    }

    #[test]
    fn a_csv_profile_names_the_line_at_fault() {
        let good = "batch,milliseconds\n1,6.1\n8,13.4\n";
        assert_eq!(Profile::read_csv(good).unwrap().time(8), 13_400_000);
        for (text, line, problem) in [
            ("batch,ms\n1,6\n", Some(1), "expected the header"),
            ("batch,milliseconds\n", None, "at least one row"),
            ("batch,milliseconds\n1,6\nx,7\n", Some(3), "whole number"),
            ("batch,milliseconds\n1,nan\n", Some(2), "decimal number"),
            ("batch,milliseconds\n1,0\n", Some(2), "no time"),
            ("batch,milliseconds\n1,6\n2,5\n", Some(3), "do not fall"),
            ("batch,milliseconds\n2,6\n2,7\n", Some(3), "growing batches"),
        ] {
            let (at, why) = Profile::read_csv(text).unwrap_err();
            assert!(at == line && why.contains(problem), "{text:?}: {at:?} {why}");
        }
    }
}
