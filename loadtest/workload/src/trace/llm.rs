//! The Azure LLM inference trace (2023, 2024): `TIMESTAMP,ContextTokens,GeneratedTokens`, a row a request.

use toml::value::{Date, Datetime, Time};

use super::Order;
use super::counts::shortened;
use super::table::{Fault, rows};
use crate::spans::SECOND;

/// Nanoseconds of each request after the first, and of the trace's period.
pub(crate) fn read(text: &str) -> Result<(Vec<u64>, u64), Fault> {
    let (mut times, mut order) = (Vec::new(), Order::default());
    let mut first = None;
    rows(text, &["TIMESTAMP", "ContextTokens", "GeneratedTokens"], |line, row| {
        let stamp = row.get(0).unwrap_or_default();
        let wrong = || {
            let stamp = shortened(stamp);
            (
                Some(line),
                format!("TIMESTAMP: expected a time like 2023-11-16 18:17:03.9799600, got `{stamp}`"),
            )
        };
        let now = stamp.parse::<Datetime>().ok().and_then(|stamp| nanoseconds(&stamp)).ok_or_else(wrong)?;
        let since = now - *first.get_or_insert(now);
        let fallen =
            || (Some(line), "TIMESTAMP: earlier than the first: expected times that do not fall".to_owned());
        let at = u64::try_from(since).map_err(|_| fallen())?;
        order.push(at).map_err(|problem| (Some(line), format!("TIMESTAMP: {problem}")))?;
        times.push(at);
        Ok(())
    })?;
    let period = order.period().map_err(|problem| (None, problem))?;
    Ok((times, period))
}

/// Nanoseconds since the year 0, by the civil calendar; an offset from UTC must be the same everywhere in a trace.
fn nanoseconds(stamp: &Datetime) -> Option<i128> {
    let (Date { year, month, day }, Time { hour, minute, second, nanosecond }) = (stamp.date?, stamp.time?);
    // Years start in March, so that the leap day comes last.
    let (month, day) = (i64::from(month), i64::from(day));
    let year = i64::from(year) - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year;
    let seconds =
        days * 86_400 + i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second.unwrap_or(0));
    Some(i128::from(seconds) * i128::from(SECOND) + i128::from(nanosecond.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_request_over_midnight_and_leap_days() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 23:59:59.9000000,1,1\n2024-02-29 00:00:00.1,1,1\n2024-03-01 00:00:00,2,2\n";
        let (times, period) = read(text).unwrap();
        assert_eq!(times, [0, 200_000_000, 86_400_100_000_000]);
        assert_eq!(period, 86_400_100_000_000 / 2 * 3);
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-12-31 23:59:59.000001+00:00,1,1\n2024-01-01 00:00:00.000001+00:00,1,1";
        assert_eq!(read(text).unwrap().0, [0, SECOND]);
    }

    #[test]
    fn faults_have_a_line() {
        let header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
        for (rows, line, problem) in [
            ("2023-11-16 18:17:03,1,1\nyesterday,1,1\n", Some(3), "got `yesterday`"),
            ("2023-11-16 18:17:03,1,1\nnan,1,1\n", Some(3), "expected a time"),
            ("2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n", Some(3), "earlier than the first"),
            (
                "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:05,1,1\n2023-11-16 18:17:04,1,1\n",
                Some(4),
                "do not fall",
            ),
            ("2023-11-16 18:17:03,1,1\n2023-11-16 18:17:05,1\n", Some(3), "as wide as the header"),
            ("2023-11-16 18:17:03,1,1\n2026-11-16 18:17:05,1,1\n", Some(3), "at most 400 days"),
            ("2023-11-16 18:17:03,1,1\n", None, "at least two"),
        ] {
            let (at, why) = read(&format!("{header}{rows}")).unwrap_err();
            assert!(at == line && why.contains(problem), "{rows:?}: {at:?} {why}");
        }
        assert_eq!(read("a,b,c\n").unwrap_err().0, Some(1));
    }
}
