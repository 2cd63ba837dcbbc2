//! A run by seconds, for spreadsheets and plotting programs.

use std::io::{self, Write};

use crate::report::Report;

const HEADER: [&str; 14] = [
    "second",
    "counted",
    "offered_requests",
    "answered_requests",
    "good_requests",
    "refused_requests",
    "failed_requests",
    "mean_ms",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "p99_of_slo",
    "send_error_p99_ms",
    "client_kept_up",
];

/// Writes a row for each second of the run, from its start on; `counted` is 0 during the warm-up. Requests count in
/// the second in which they were due. Cells without a value are empty.
///
/// # Errors
/// `to` cannot be written.
pub fn write(report: &Report, to: impl Write) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(to);
    rows.write_record(HEADER)?;
    for second in &report.seconds {
        let counts = [second.offered, second.answered, second.good, second.refused, second.failed];
        let figures = [
            second.mean_ms,
            second.p50_ms,
            second.p90_ms,
            second.p99_ms,
            second.p99_of_slo,
            second.send_error_p99_ms,
        ];
        let counted = second.t as f64 >= report.warmup_s;
        let cells = [second.t, u64::from(counted)].into_iter().chain(counts).map(|count| count.to_string());
        let cells = cells
            .chain(figures.map(|figure| figure.map_or_else(String::new, |figure| figure.to_string())))
            .chain([u64::from(second.kept_up).to_string()]);
        rows.write_record(cells)?;
    }
    rows.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::report::Second;

    #[test]
    fn a_row_a_second_and_nothing_where_nothing_is() {
        let mut report = fixture::report();
        report.seconds[1] = Second { offered: 3, failed: 3, t: 1, ..Second::default() };
        let mut bytes = Vec::new();
        write(&report, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 1 + report.seconds.len());
        assert_eq!(lines[0], HEADER.join(","));
        assert_eq!(lines[2], "1,0,3,0,0,0,3,,,,,,,0");
        assert!(lines[5].starts_with("4,1,") && lines[5].ends_with(",1"), "{}", lines[5]);
        assert!(lines.iter().all(|line| line.split(',').count() == HEADER.len()));
    }

    #[test]
    fn an_unwritable_place_is_an_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(write(&fixture::plain(), Full).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
