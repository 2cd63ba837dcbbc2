//! Checks of single keys of problem files.

use models::TimeSpan;
use workload::WorkloadError;

/// Longest name of a device or workload, letters.
const NAME_MAX: usize = 128;
/// The loosest objective: an hour, in microseconds.
const SLO_MAX_US: f64 = 3.6e9;

/// An error in the problem file itself; the caller adds the line.
pub fn fault<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, WorkloadError> {
    Err(WorkloadError { file: String::new(), line: None, field: field.into(), problem: problem.into() })
}

/// Checks the name of a section.
pub fn check_name(field: &str, name: &str) -> Result<(), WorkloadError> {
    let letters = name.chars().count();
    if letters == 0 || letters > NAME_MAX || name.chars().any(char::is_control) {
        return fault(
            field,
            format!("expected a name of 1 to {NAME_MAX} letters without control characters"),
        );
    }
    Ok(())
}

/// An objective in microseconds.
pub fn slo_us(field: &str, slo: TimeSpan) -> Result<f64, WorkloadError> {
    let slo_us = slo.0.as_nanos() as f64 / 1e3;
    if slo_us > 0.0 && slo_us <= SLO_MAX_US {
        return Ok(slo_us);
    }
    fault(field, format!("expected more than 0 and at most 1h, got {slo}"))
}
