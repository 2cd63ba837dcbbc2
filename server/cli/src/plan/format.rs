//! Shares, times and growth as people read them.

use charts::number;
use gpulet_core::plan::Gpulet;

/// `1 device`, `2 devices`.
pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{} {what}s", number(count as f64)) }
}

/// A number without zeros at its end.
fn short(value: f64) -> String {
    let text = number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Units as a share of the device.
pub fn share(units: u32, total: u32) -> String {
    format!("{} %", short(100.0 * f64::from(units) / f64::from(total.max(1))))
}

/// A fraction as percent.
pub fn percent(fraction: f64) -> String {
    format!("{} %", short((1e3 * fraction).round() / 10.0))
}

/// Microseconds in milliseconds, without the unit.
pub fn ms(us: f64) -> String {
    number(us / 1e3)
}

/// Microseconds with their unit.
pub fn time(us: f64) -> String {
    format!("{} ms", short(us / 1e3))
}

/// Bytes in the largest binary unit that leaves something before the point.
pub fn bytes(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units.into_iter().find(|(_, factor)| bytes >= *factor);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(unit, factor)| format!("{} {unit}", short(bytes as f64 / factor as f64)),
    )
}

/// A factor on rates as growth: 1.051 is 5.1 %.
pub fn growth(factor: f64) -> String {
    let percent = (factor - 1.0) * 100.0;
    // Below the resolution of the bisection.
    if percent.abs() < 0.05 {
        "0 %".to_owned()
    } else {
        format!("{} %", short((percent * 10.0).round() / 10.0))
    }
}

/// The part of the time in which a gpulet runs.
pub fn time_slices(gpulet: &Gpulet) -> String {
    match (gpulet.duty_us, gpulet.window) {
        (Some(duty), _) => format!("every {}", time(duty)),
        (None, Some(window)) => format!(
            "{} to {} of {}",
            short(window.offset_us / 1e3),
            short((window.offset_us + window.length_us) / 1e3),
            time(window.period_us)
        ),
        (None, None) => "always".to_owned(),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(
            (share(15, 40), share(4, 40), share(1, 3)),
            ("37.5 %".into(), "10 %".into(), "33.3 %".into())
        );
        assert_eq!(
            (time(10_000.0), time(18_830.0), time(250.0)),
            ("10 ms".into(), "18.8 ms".into(), "0.25 ms".into())
        );
        assert_eq!(
            (bytes(1 << 34), bytes(1536), bytes(12)),
            ("16 GiB".into(), "1.5 KiB".into(), "12 B".into())
        );
        assert_eq!(
            (growth(1.0512), growth(1.0), growth(1.00049)),
            ("5.1 %".into(), "0 %".into(), "0 %".into())
        );
        assert_eq!((counted(1, "device"), counted(0, "device")), ("1 device".into(), "0 devices".into()));
        let names = |names: &[&str]| listed(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!((names(&["a"]), names(&["a", "b", "c"])), ("a".into(), "a, b and c".into()));
    }
}
