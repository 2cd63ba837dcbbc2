//! Recorded requests: a file of JSON lines, each the body of an inference request.
//!
//! ```text
//! {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}]}
//! {"inputs": [...], "expect": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}]}
//! ```
//!
//! `expect` lists outputs with the values that a right answer has.

use std::sync::Arc;

use bytes::Bytes;
use oip::{InferRequest, Limits, Tensor};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Payload;
use crate::error::LoadError;

/// Requests that are read of a file at most.
const SAMPLES_MAX: usize = 100_000;

/// Recorded requests of one file.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Where they come from.
    name: String,
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    rows: u64,
    request: InferRequest,
    expected: Option<Arc<Vec<Tensor>>>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    expect: Option<&'a RawValue>,
}

impl Samples {
    /// Reads the text of a file called `name`.
    ///
    /// # Errors
    /// With the file and the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, LoadError> {
        let mut samples = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |problem: String| LoadError::option(format!("{name}:{}", number + 1), problem);
            if samples.len() == SAMPLES_MAX {
                return Err(wrong(format!("expected at most {SAMPLES_MAX} requests")));
            }
            samples.push(sample(line).map_err(wrong)?);
        }
        if samples.is_empty() {
            return Err(LoadError::option(name, "expected a request a line, found none"));
        }
        Ok(Self { name: name.to_owned(), samples })
    }

    /// The samples with `rows` rows.
    pub(super) fn of(&self, model: &str, rows: u32) -> Result<Vec<Payload>, LoadError> {
        let fitting = self.samples.iter().filter(|sample| sample.rows == u64::from(rows));
        let payloads = fitting.map(|sample| Payload {
            request: InferRequest { model_name: model.to_owned(), ..sample.request.clone() },
            expected: sample.expected.clone(),
        });
        let payloads: Vec<Payload> = payloads.collect();
        if payloads.is_empty() {
            let problem =
                format!("{} has no request of {rows} row(s), which the workload asks for", self.name);
            return Err(LoadError::model(model, problem));
        }
        Ok(payloads)
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let limits = Limits::default();
    let body = Bytes::copy_from_slice(line.as_bytes());
    let request =
        oip::json::decode_infer("", None, &body, None, &limits).map_err(|error| error.to_string())?;
    let parts: Line<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let expected = match parts.expect {
        None => None,
        Some(outputs) => {
            let body = format!("{{\"model_name\":\"\",\"outputs\":{}}}", outputs.get());
            let answer = oip::json::decode_response(&body.into(), None, &limits);
            let answer = answer.map_err(|error| format!("expect: {error}"))?;
            Some(Arc::new(answer.outputs.into_iter().map(|(tensor, _)| tensor).collect()))
        }
    };
    let rows = request.inputs.first().and_then(|input| input.shape.extents().first()).copied().unwrap_or(1);
    Ok(Sample { rows, request, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}], "expect": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}]}"#;
    const TWO: &str =
        r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [0.5, 1.5, 1, 1]}]}"#;

    #[test]
    fn requests_are_chosen_by_rows_and_keep_what_is_expected() {
        let samples = Samples::parse("s.jsonl", &format!("{ONE}\n\n{TWO}\n")).unwrap();
        let of_one = samples.of("m", 1).unwrap();
        assert_eq!((of_one.len(), of_one[0].request.model_name.as_str()), (1, "m"));
        assert_eq!(of_one[0].expected.as_ref().unwrap()[0].name, "y");
        assert!(samples.of("m", 2).unwrap()[0].expected.is_none());
        let none = samples.of("m", 3).unwrap_err().to_string();
        assert_eq!(none, "model `m`: s.jsonl has no request of 3 row(s), which the workload asks for");
    }

    #[test]
    fn faults_name_the_file_and_the_line() {
        let said = |text: &str| Samples::parse("s.jsonl", text).unwrap_err().to_string();
        assert_eq!(said("\n"), "s.jsonl: expected a request a line, found none");
        assert!(said(&format!("{ONE}\nnot json")).starts_with("s.jsonl:2: "));
        let short = said(&TWO.replace("[2, 2]", "[2, 3]"));
        assert!(short.starts_with("s.jsonl:1: ") && short.contains('6'), "{short}");
        let wrong = said(&ONE.replace("\"shape\": [1], \"data\": [2.0]", "\"shape\": [2], \"data\": [2.0]"));
        assert!(wrong.contains("expect: "), "{wrong}");
    }
}
