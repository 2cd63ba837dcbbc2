//! Answers: one JSON line each.

use std::io::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the output. Every field is always there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What was asked, in words with dots: `facts.units`.
    pub fact: String,
    /// What came of it; null where nothing did.
    pub value: Value,
    /// Unit of the value; null where it has none.
    pub unit: Option<String>,
    /// The question of `docs/gpu.md` that it answers: `gpu.md 4.2.6`.
    pub question: String,
    /// Whether it is as it must be; null where nothing says how it must be, or where it could not be asked.
    pub ok: Option<bool>,
    /// What belongs to it; for people where it is text.
    pub detail: Value,
}

impl Fact {
    /// A fact without a value.
    pub fn new(fact: impl Into<String>, question: &str) -> Self {
        let (value, detail) = (Value::Null, Value::Null);
        Self {
            fact: fact.into(),
            value,
            unit: None,
            question: format!("gpu.md {question}"),
            ok: None,
            detail,
        }
    }

    /// With a value. Floats are rounded to five digits: more of them are noise.
    #[must_use]
    pub fn value(mut self, value: impl Into<Value>) -> Self {
        self.value = rounded(value.into());
        self
    }

    /// With a unit of the value.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        self.unit = Some(unit.to_owned());
        self
    }

    /// Whether it is as it must be.
    #[must_use]
    pub fn ok(mut self, ok: bool) -> Self {
        self.ok = Some(ok);
        self
    }

    /// With what belongs to it.
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

/// Where facts go.
pub struct Answers<'a> {
    lines: &'a mut (dyn Write + Send),
    failed: usize,
    unasked: usize,
    count: usize,
}

impl<'a> Answers<'a> {
    /// Writes them here, each at once.
    pub fn new(lines: &'a mut (dyn Write + Send)) -> Self {
        Self { lines, failed: 0, unasked: 0, count: 0 }
    }

    /// Writes a fact. Nobody may be listening any more: then there is nobody to tell it either.
    pub fn say(&mut self, fact: &Fact) {
        self.count += 1;
        self.failed += usize::from(fact.ok == Some(false));
        self.unasked += usize::from(fact.ok.is_none() && fact.value.is_null());
        if let Ok(line) = serde_json::to_string(fact) {
            let _ = writeln!(self.lines, "{line}").and_then(|()| self.lines.flush());
        }
    }

    /// Says that something was not asked, and why.
    pub fn skip(&mut self, fact: impl Into<String>, question: &str, why: impl Into<String>) {
        self.say(&Fact::new(fact, question).detail(why.into()));
    }

    /// How many were said.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many of them are not as they must be.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// How many say that they were not asked.
    pub fn unasked(&self) -> usize {
        self.unasked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_field_is_always_there() {
        let mut lines = Vec::new();
        let mut answers = Answers::new(&mut lines);
        answers.say(&Fact::new("a.b", "1").value(1.234_567_89).unit("us").ok(false).detail(json!({"n": 3})));
        answers.skip("a.c", "2", "not today");
        assert_eq!((answers.count(), answers.failed(), answers.unasked()), (2, 1, 1));
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "{\"fact\":\"a.b\",\"value\":1.2346,\"unit\":\"us\",\"question\":\"gpu.md 1\",\"ok\":false,\"detail\":{\"n\":3}}\n\
             {\"fact\":\"a.c\",\"value\":null,\"unit\":null,\"question\":\"gpu.md 2\",\"ok\":null,\"detail\":\"not today\"}\n"
        );
    }
}
