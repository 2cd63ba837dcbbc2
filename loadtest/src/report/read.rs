//! Reports from JSON, with faults told by field.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Latency, Report};
use crate::histogram::decode;

/// The layout that this program writes and reads.
pub const FORMAT: u32 = 1;

/// Most requests, or batches, of a count: as many as a million a second for twelve days. Sums of such counts are
/// certain not to overflow.
const COUNT_MAX: u64 = 1 << 40;

/// Why a text is not a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// It is another document of ours, or none of ours.
    #[error("expected a report that `tessera load --json` wrote, got {found}")]
    Other {
        /// What it is.
        found: &'static str,
    },
    /// Another version of the program wrote it.
    #[error("format: this program reads {FORMAT}, the file has {found}")]
    Format {
        /// Its layout.
        found: u32,
    },
    /// A field is missing or wrong.
    #[error("{field}: {problem}")]
    Field {
        /// Where it is.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// The keys that tell our documents apart.
#[derive(Deserialize)]
struct Kind {
    format: Option<IgnoredAny>,
    target: Option<IgnoredAny>,
    policies: Option<IgnoredAny>,
    rows: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Layout {
    format: u32,
}

impl Report {
    /// A report from what `tessera load --json` wrote.
    ///
    /// # Errors
    /// If it is something else, another layout, or damaged; the error names the field.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let kind = match serde_json::from_str::<Kind>(text) {
            Ok(kind) => kind,
            Err(error) if error.is_data() => {
                return Err(ReadError::Other { found: "a value that is not an object" });
            }
            Err(error) => return Err(ReadError::Json(error.to_string())),
        };
        match kind {
            Kind { policies: Some(_), .. } => {
                return Err(ReadError::Other { found: "the output of `tessera simulate --json`" });
            }
            Kind { rows: Some(_), target: None, .. } => {
                return Err(ReadError::Other { found: "the output of `tessera load compare --json`" });
            }
            Kind { format: None, .. } => {
                return Err(ReadError::Other { found: "an object without `format`" });
            }
            _ => {}
        }
        let format = located::<Layout>(text)?.format;
        if format != FORMAT {
            return Err(ReadError::Format { found: format });
        }
        let report: Self = located(text)?;
        report.check()?;
        Ok(report)
    }

    fn check(&self) -> Result<(), ReadError> {
        let models = self.models.iter().map(|model| &model.figures).enumerate();
        let models = models.map(|(place, figures)| (format!("models[{place}].figures"), figures));
        let stages = self.stages.iter().map(|stage| &stage.figures).enumerate();
        let stages = stages.map(|(place, figures)| (format!("stages[{place}].figures"), figures));
        for (field, figures) in models.chain(stages).chain([("total".to_owned(), &self.total)]) {
            let counts = [figures.offered, figures.answered, figures.good].into_iter();
            let reasons = figures.refused.values().chain(figures.failed.values()).copied();
            check_count(|| field.clone(), counts.chain(reasons))?;
            check_histogram(&format!("{field}.latency"), figures.latency.as_ref())?;
            check_histogram(&format!("{field}.service"), figures.service.as_ref())?;
            check_histogram(&format!("{field}.refusal"), figures.refusal.as_ref())?;
        }
        check_histogram("client.send_error", self.client.send_error.as_ref())?;
        for (place, model) in self.models.iter().enumerate() {
            for (size, batches) in model.batches.iter().enumerate() {
                let field = || format!("models[{place}].batches[{size}]");
                check_count(field, [batches.rows, batches.batches])?;
            }
        }
        for (place, second) in self.seconds.iter().enumerate() {
            let counts =
                [second.t, second.offered, second.answered, second.good, second.refused, second.failed];
            check_count(|| format!("seconds[{place}]"), counts)?;
        }
        Ok(())
    }
}

fn check_histogram(field: &str, latency: Option<&Latency>) -> Result<(), ReadError> {
    let Some(Err(error)) = latency.map(|latency| decode(&latency.histogram)) else {
        return Ok(());
    };
    Err(ReadError::Field { field: format!("{field}.histogram"), problem: error.to_string() })
}

fn check_count(field: impl Fn() -> String, counts: impl IntoIterator<Item = u64>) -> Result<(), ReadError> {
    match counts.into_iter().find(|count| *count > COUNT_MAX) {
        None => Ok(()),
        Some(count) => Err(ReadError::Field {
            field: field(),
            problem: format!("has a count of {count}, expected at most {COUNT_MAX}"),
        }),
    }
}

fn located<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ReadError> {
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| ReadError::Field {
        field: error.path().to_string(),
        problem: error.inner().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn value() -> serde_json::Value {
        serde_json::to_value(fixture::report()).unwrap()
    }

    #[test]
    fn a_report_is_read_back_as_it_was() {
        let report = fixture::report();
        let back = Report::read(&serde_json::to_string(&report).unwrap()).unwrap();
        let of = |report: &Report| {
            let figures = report.models.iter().map(|model| &model.figures).chain([&report.total]);
            let all = figures.map(|figures| {
                let histogram = figures.latency.as_ref().unwrap().histogram.clone();
                (figures.offered, figures.good, figures.refused.clone(), histogram)
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(of(&back), of(&report));
        assert_eq!((back.seconds.len(), &back.target, &back.driven), (60, &report.target, &report.driven));
        assert!((back.total.goodput / report.total.goodput - 1.0).abs() < 1e-12);
    }

    #[test]
    fn other_files_are_refused_by_what_they_are() {
        for (text, said) in [
            ("hello", "not JSON: expected value at line 1 column 1"),
            ("[1]", "expected a report that `tessera load --json` wrote, got a value that is not an object"),
            ("{}", "got an object without `format`"),
            (r#"{"workload":"a","policies":[]}"#, "got the output of `tessera simulate --json`"),
            (r#"{"format":1,"rows":[]}"#, "got the output of `tessera load compare --json`"),
            (r#"{"format":2}"#, "format: this program reads 1, the file has 2"),
            (r#"{"format":"1"}"#, "format: invalid type: string \"1\", expected u32"),
            (r#"{"format":1}"#, "missing field `version`"),
        ] {
            let error = Report::read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_damaged_field_is_named() {
        let mut broken = value();
        broken["models"][1]["figures"]["offered"] = "many".into();
        let error = Report::read(&broken.to_string()).unwrap_err().to_string();
        assert!(error.starts_with("models[1].figures.offered: invalid type: string"), "{error}");
        let mut broken = value();
        broken["total"]["latency"]["histogram"] = "AAAA".into();
        let error = Report::read(&broken.to_string()).unwrap_err().to_string();
        assert!(error.starts_with("total.latency.histogram: not an HDR histogram"), "{error}");
        let mut broken = value();
        broken["seconds"][3]["good"] = u64::MAX.into();
        let error = Report::read(&broken.to_string()).unwrap_err().to_string();
        assert_eq!(error, "seconds[3]: has a count of 18446744073709551615, expected at most 1099511627776");
    }
}
