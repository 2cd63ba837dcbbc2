//! The report: one JSON line per fact.

use std::io::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the report. All fields are always present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Name of the fact, with dots: `facts.units`.
    pub fact: String,
    /// The value; null without one.
    pub value: Value,
    /// Unit of the value; null without one.
    pub unit: Option<String>,
    /// Section of `docs/gpu.md` that asks for it: `gpu.md 4.2.6`.
    pub section: String,
    /// Whether the value is as required; null if nothing is required, or there is no value.
    pub ok: Option<bool>,
    /// More values; text is an explanation.
    pub detail: Value,
}

impl Fact {
    /// A fact without a value.
    pub fn new(fact: impl Into<String>, section: &str) -> Self {
        let (value, detail) = (Value::Null, Value::Null);
        Self { fact: fact.into(), value, unit: None, section: format!("gpu.md {section}"), ok: None, detail }
    }

    /// Sets the value. Floats are rounded to five digits, because more are noise.
    #[must_use]
    pub fn value(mut self, value: impl Into<Value>) -> Self {
        self.value = rounded(value.into());
        self
    }

    /// Sets the unit of the value.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        self.unit = Some(unit.to_owned());
        self
    }

    /// Sets whether the value is as required.
    #[must_use]
    pub fn ok(mut self, ok: bool) -> Self {
        self.ok = Some(ok);
        self
    }

    /// Sets the details.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Value>) -> Self {
        self.detail = rounded(detail.into());
        self
    }
}

fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let digits = number.as_f64().map(|number| format!("{number:.4e}"));
            digits.and_then(|digits| digits.parse::<f64>().ok()).map_or(Value::Null, Value::from)
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, rounded(value))).collect(),
        value => value,
    }
}

/// Writes facts and counts them.
pub struct Report<'a> {
    lines: &'a mut (dyn Write + Send),
    failed: usize,
    skipped: usize,
    count: usize,
}

impl<'a> Report<'a> {
    /// Writes to `lines`, each fact immediately.
    pub fn new(lines: &'a mut (dyn Write + Send)) -> Self {
        Self { lines, failed: 0, skipped: 0, count: 0 }
    }

    /// Writes a fact. A closed output is ignored: there is no other place to report it.
    pub fn add(&mut self, fact: &Fact) {
        self.count += 1;
        self.failed += usize::from(fact.ok == Some(false));
        self.skipped += usize::from(fact.ok.is_none() && fact.value.is_null());
        if let Ok(line) = serde_json::to_string(fact) {
            let _ = writeln!(self.lines, "{line}").and_then(|()| self.lines.flush());
        }
    }

    /// Reports that something was not checked, and why.
    pub fn skip(&mut self, fact: impl Into<String>, section: &str, why: impl Into<String>) {
        self.add(&Fact::new(fact, section).detail(why.into()));
    }

    /// Number of facts.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of facts that are not as required.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// Number of facts that were not checked.
    pub fn skipped(&self) -> usize {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_fields_are_always_present() {
        let mut lines = Vec::new();
        let mut report = Report::new(&mut lines);
        report.add(&Fact::new("a.b", "1").value(1.234_567_89).unit("us").ok(false).detail(json!({"n": 3})));
        report.skip("a.c", "2", "not today");
        assert_eq!((report.count(), report.failed(), report.skipped()), (2, 1, 1));
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "{\"fact\":\"a.b\",\"value\":1.2346,\"unit\":\"us\",\"section\":\"gpu.md 1\",\"ok\":false,\"detail\":{\"n\":3}}\n\
             {\"fact\":\"a.c\",\"value\":null,\"unit\":null,\"section\":\"gpu.md 2\",\"ok\":null,\"detail\":\"not today\"}\n"
        );
    }
}
