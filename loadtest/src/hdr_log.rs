//! Latencies as an interval log of HdrHistogram, which its viewers and libraries in many languages read.
//!
//! It has one interval per second if the run kept the histograms of its seconds. One interval per model follows, over the
//! time that the report's figures cover, tagged with the model's name. Values are microseconds from the time a request
//! was due to the end of its correct answer.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::histogram::decode;
use crate::report::Report;

/// Microseconds per millisecond: the log shows each interval's longest time in milliseconds.
const DIVISOR: f64 = 1e3;
/// Characters that would end a tag or a line. They are escaped as in a URL, so that the tags of models stay different.
const ESCAPED: &AsciiSet = &CONTROLS.add(b',').add(b'%').add(b' ');

/// Writes the log.
///
/// # Errors
/// `to` cannot be written, or a histogram of the report is damaged.
pub fn write(report: &Report, mut to: impl Write) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(&format!("[{} at {}]", report.workload, report.target.url))
        .add_comment(
            "[latency in microseconds, from when a request was due to the end of its correct answer]",
        )
        .with_max_value_divisor(DIVISOR);
    if let Ok(start) = report.started.parse::<Timestamp>() {
        let start = SystemTime::from(start);
        builder.with_start_time(start).with_base_time(start);
    }
    let mut log = builder.begin_log_with(&mut to, &mut serializer)?;
    for second in &report.seconds {
        if let Some(text) = &second.histogram {
            let histogram = decode(text).map_err(damaged)?;
            let (start, length) = (Duration::from_secs(second.t), Duration::from_secs(1));
            log.write_histogram(&histogram, start, length, None).map_err(unwritten)?;
        }
    }
    let length = |seconds: f64| Duration::try_from_secs_f64(seconds).map_err(io::Error::other);
    let (start, length) = (length(report.warmup_s)?, length(report.measured_s)?);
    for model in &report.models {
        if let Some(latency) = &model.figures.latency {
            let histogram = decode(&latency.histogram).map_err(damaged)?;
            let tag = utf8_percent_encode(&model.name, ESCAPED).to_string();
            log.write_histogram(&histogram, start, length, Tag::new(&tag)).map_err(unwritten)?;
        }
    }
    drop(log);
    to.flush()
}

fn damaged(error: crate::histogram::BadHistogram) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn unwritten<E: std::error::Error + Send + Sync + 'static>(error: IntervalLogWriterError<E>) -> io::Error {
    match error {
        IntervalLogWriterError::IoError(error) => error,
        IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::fixture;

    fn log(report: &Report) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(report, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_log_is_read_back() {
        let mut report = fixture::report();
        report.models[1].name = "bert, base 50%\n".to_owned();
        let bytes = log(&report);
        let entries: Vec<_> = IntervalLogIterator::new(&bytes).map(Result::unwrap).collect();
        let start = entries.iter().find_map(|entry| match entry {
            LogEntry::BaseTime(time) => Some(time.as_secs()),
            _ => None,
        });
        assert_eq!(start, Some(1_795_266_100), "13:01:40 UTC on 2026-11-21");
        let intervals: Vec<_> = entries
            .iter()
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(intervals.len(), report.seconds.len() + report.models.len());
        for (interval, second) in intervals.iter().zip(&report.seconds) {
            let histogram = decode(interval.encoded_histogram()).unwrap();
            assert_eq!((interval.start_timestamp().as_secs(), histogram.len()), (second.t, second.answered));
            assert_eq!(interval.tag(), None);
        }
        let tags: Vec<_> = intervals[report.seconds.len()..]
            .iter()
            .zip(&report.models)
            .map(|(interval, model)| {
                let histogram = decode(interval.encoded_histogram()).unwrap();
                assert_eq!(histogram.len(), model.figures.answered);
                assert_eq!((interval.start_timestamp().as_secs(), interval.duration().as_secs()), (4, 56));
                interval.tag().unwrap().as_str()
            })
            .collect();
        assert_eq!(tags, ["resnet", "bert%2C%20base%2050%25%0A", "tiny"]);
    }

    #[test]
    fn a_run_without_its_seconds_has_its_models_alone() {
        let mut report = fixture::plain();
        report.seconds.iter_mut().for_each(|second| second.histogram = None);
        assert_eq!(IntervalLogIterator::new(&log(&report)).count(), 2 + 1, "two times and a model");
        assert_eq!(IntervalLogIterator::new(&log(&fixture::idle())).count(), 2);
    }

    #[test]
    fn a_damaged_histogram_is_an_error() {
        let mut report = fixture::plain();
        report.seconds[3].histogram = Some("AAAA".to_owned());
        assert_eq!(write(&report, Vec::new()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
