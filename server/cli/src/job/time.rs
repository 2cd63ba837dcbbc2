//! Times as people write them.

use jiff::civil::Time;
use jiff::{Span, Timestamp, ToSpan as _, Zoned};
use units::TimeSpan;

/// A time of day (the next one after now), a date and time with an offset, or a time from now.
///
/// # Errors
/// What was expected.
pub fn parse(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let expected = || {
        format!(
            "`{text}`: expected a time of day such as 06:00, a date and time such as 2026-12-01T06:00:00Z, or a time from now such as 8h"
        )
    };
    if let Ok(span) = text.parse::<TimeSpan>() {
        let span = i64::try_from(span.0.as_millis()).map_err(|_| expected())?;
        return now.timestamp().checked_add(Span::new().milliseconds(span)).map_err(|_| expected());
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let time = Time::strptime("%H:%M", text)
        .or_else(|_| Time::strptime("%H:%M:%S", text))
        .map_err(|_| expected())?;
    let today = now.with().time(time).build().map_err(|_| expected())?;
    let next = if today > *now { today } else { today.checked_add(1.day()).map_err(|_| expected())? };
    Ok(next.timestamp())
}

/// A time in the zone of this machine: the time of day, and the date if it is another one.
pub fn text(millis: u64, now: &Zoned) -> String {
    let at = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let Some(at) = at else { return "never".to_owned() };
    let at = at.to_zoned(now.time_zone().clone());
    let format = if at.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: Zoned = "2026-11-26T22:30:00+01:00[+01:00]".parse().unwrap();
        let at = |text: &str| parse(text, &now).map(|at| at.to_string());
        assert_eq!(at("06:00").unwrap(), "2026-11-27T05:00:00Z", "tomorrow, in the zone of the machine");
        assert_eq!(at("23:00").unwrap(), "2026-11-26T22:00:00Z");
        assert_eq!(at("8h").unwrap(), "2026-11-27T05:30:00Z");
        assert_eq!(at("2026-12-01T06:00:00Z").unwrap(), "2026-12-01T06:00:00Z");
        assert_eq!(at("2026-12-01T06:00:00+02:00").unwrap(), "2026-12-01T04:00:00Z");
        for wrong in ["", "6", "tomorrow", "25:00", "2026-12-01"] {
            assert!(at(wrong).unwrap_err().contains("expected a time of day"), "{wrong}");
        }
        let millis = |text: &str| u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap();
        assert_eq!(text(millis("2026-11-26T22:00:01Z"), &now), "23:00:01");
        assert_eq!(text(millis("2026-11-27T05:00:00Z"), &now), "2026-11-27 06:00:00");
    }
}
