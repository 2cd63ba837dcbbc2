//! The text format of Prometheus, in which the server renders its metrics.

use std::borrow::Cow;

/// How the samples of a family are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyType {
    Counter,
    Gauge,
    Histogram,
    Summary,
    /// Without a type, or of another one.
    Unknown,
}

impl FamilyType {
    fn parse(text: &str) -> Self {
        match text {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" => Self::Histogram,
            "summary" => Self::Summary,
            _ => Self::Unknown,
        }
    }

    fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Counter => &["_total"],
            Self::Histogram => &["_bucket", "_sum", "_count"],
            Self::Summary => &["_sum", "_count"],
            Self::Gauge | Self::Unknown => &[],
        }
    }
}

/// Names and values, in the order of the text.
pub(super) type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// The samples of one metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family<'a> {
    pub(super) name: &'a str,
    pub(super) help: Cow<'a, str>,
    pub(super) family_type: FamilyType,
    pub(super) samples: Vec<Sample<'a>>,
}

impl<'a> Family<'a> {
    fn new(name: &'a str) -> Self {
        Self { name, help: Cow::default(), family_type: FamilyType::Unknown, samples: Vec::new() }
    }

    fn has(&self, sample: &str) -> bool {
        let Some(suffix) = sample.strip_prefix(self.name) else { return false };
        suffix.is_empty() || self.family_type.suffixes().contains(&suffix)
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    pub(super) labels: Labels<'a>,
    pub(super) value: f64,
}

/// All families of a text. Lines that are not in the format are left out.
pub(super) fn parse(text: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.trim_start().splitn(3, ' ');
            let (Some(word @ ("HELP" | "TYPE")), Some(name)) = (words.next(), words.next()) else { continue };
            let rest = words.next().unwrap_or_default();
            let mut family = take(&mut families, name, |family| family.name == name);
            match word {
                "HELP" => family.help = unescaped(rest),
                _ => family.family_type = FamilyType::parse(rest.trim()),
            }
            families.push(family);
        } else if let Some(sample) = sample(line) {
            let mut family = take(&mut families, sample.name, |family| family.has(sample.name));
            family.samples.push(sample);
            families.push(family);
        }
    }
    families.retain(|family| !family.samples.is_empty());
    families
}

/// Removes the last family if it matches, or makes a new one. Families do not mix in the format.
fn take<'a>(
    families: &mut Vec<Family<'a>>,
    name: &'a str,
    matches: impl Fn(&Family<'a>) -> bool,
) -> Family<'a> {
    families.pop_if(|last| matches(last)).unwrap_or_else(|| Family::new(name))
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let name_end = line.find(|next: char| next == '{' || next.is_whitespace())?;
    let (name, rest) = line.split_at_checked(name_end)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // A time may follow the value. The server renders none.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    (!name.is_empty()).then_some(Sample { name, labels, value })
}

/// Labels up to the closing brace, and the text after it.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let end = closing_quote(after)?;
        let (value, after) = after.split_at_checked(end)?;
        labels.push((name.trim(), unescaped(value)));
        rest = after.strip_prefix('"')?;
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return Some(at),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(next) = characters.next() {
        match next {
            '\\' => match characters.next() {
                Some('n') => plain.push('\n'),
                Some(escaped) => plain.push(escaped),
                None => plain.push('\\'),
            },
            _ => plain.push(next),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn families_have_types_help_and_samples() {
        let text = "# HELP a_total Requests\\nof all models.\n# TYPE a_total counter\n\
                    a_total{model=\"m\",reason=\"x\\\"y\\\\\"} 3\na_total 4 1700000000000\n\n\
                    # TYPE h histogram\nh_bucket{le=\"+Inf\"} 2\nh_sum 1.5e1\nh_count 2\nloose{} NaN\n# EOF\n";
        let families = parse(text);
        let summary: Vec<_> =
            families.iter().map(|family| (family.name, family.family_type, family.samples.len())).collect();
        let expected = [
            ("a_total", FamilyType::Counter, 2),
            ("h", FamilyType::Histogram, 3),
            ("loose", FamilyType::Unknown, 1),
        ];
        assert_eq!(summary, expected);
        assert_eq!(families[0].help, "Requests\nof all models.");
        let labels = &families[0].samples[0].labels;
        assert_eq!(labels, &[("model", Cow::from("m")), ("reason", Cow::from("x\"y\\"))]);
        assert_eq!(families[1].samples[1].value, 15.0);
        assert!(families[2].samples[0].value.is_nan());
    }

    #[test]
    fn lines_that_are_wrong_are_left_out() {
        for text in
            ["a", "a{", "a{b} 1", "a{b=\"c} 1", "a{b=\"c\" 1", "{} 1", "a x", "# TYPE", "# TYPE a gauge"]
        {
            assert_eq!(parse(text), [], "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([a-z{}=\"\\\\#\n ,0-9]|\\PC){0,120}") {
            let _ = parse(&text);
        }
    }
}
