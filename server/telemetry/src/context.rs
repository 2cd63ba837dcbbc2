//! The trace that a request belongs to, as W3C Trace Context writes it.

use std::fmt;

use crate::ids::{IdSource, SpanId, TraceId};
use crate::state::TraceState;

/// A span, and the trace it is part of: what `traceparent` and `tracestate` say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span within it.
    pub span_id: SpanId,
    /// True if the sender keeps this trace.
    pub sampled: bool,
    /// Data of tracing systems, passed on unchanged.
    pub state: TraceState,
}

/// The span of the client that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The span that sent the request.
    pub span_id: SpanId,
    /// True if its sender keeps the trace.
    pub sampled: bool,
}

/// What is wrong with a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTraceParent {
    /// The fields are not where they belong.
    #[error("`traceparent`: expected `VERSION-TRACE_ID-SPAN_ID-FLAGS` with 2, 32, 16 and 2 digits")]
    Form,
    /// A character is not a digit, or is an upper-case one.
    #[error("`traceparent`: expected lower-case hexadecimal digits")]
    Digits,
    /// The version is `ff`.
    #[error("`traceparent`: expected a version below `ff`")]
    Version,
    /// An id consists of zeros.
    #[error("`traceparent`: expected ids that are not all zeros")]
    Zero,
}

/// Bit of the flags that says that the sender keeps the trace.
const SAMPLED: u64 = 1;
/// Length of `traceparent` in version 00.
const LENGTH: usize = 55;

impl TraceContext {
    /// Reads the headers `traceparent` and `tracestate`. A `tracestate` that is not valid is left out, as the standard asks.
    ///
    /// # Errors
    /// Says what is wrong with `traceparent`.
    pub fn parse(parent: &str, state: Option<&str>) -> Result<Self, InvalidTraceParent> {
        let (version, rest) = field(parent, 2)?;
        let (trace_id, rest) = field(after_dash(rest)?, 32)?;
        let (span_id, rest) = field(after_dash(rest)?, 16)?;
        let (flags, rest) = field(after_dash(rest)?, 2)?;
        let version = digits(version)?;
        if version == 0xff {
            return Err(InvalidTraceParent::Version);
        }
        // Later versions may append fields, after another dash.
        if !(rest.is_empty() || version > 0 && rest.starts_with('-')) {
            return Err(InvalidTraceParent::Form);
        }
        let trace_id = TraceId::new(digits(trace_id)?).ok_or(InvalidTraceParent::Zero)?;
        let span_id = u64::try_from(digits(span_id)?).map_err(|_| InvalidTraceParent::Digits)?;
        let span_id = SpanId::new(span_id).ok_or(InvalidTraceParent::Zero)?;
        let sampled = digits(flags)? & u128::from(SAMPLED) != 0;
        let state = state.and_then(TraceState::parse).unwrap_or_default();
        Ok(Self { trace_id, span_id, sampled, state })
    }

    /// A new trace.
    pub fn new(ids: &IdSource) -> Self {
        Self {
            trace_id: ids.trace_id(),
            span_id: ids.span_id(),
            sampled: false,
            state: TraceState::default(),
        }
    }

    /// The context of a request with these headers: a new span in the trace of the client, or in a new trace if the client names
    /// none or its `traceparent` is not valid. A request with several `traceparent` headers names none; several `tracestate` headers
    /// are one, joined by commas.
    pub fn of_request(parent: Option<&str>, state: Option<&str>, ids: &IdSource) -> (Self, Option<Parent>) {
        match parent.map(|parent| Self::parse(parent, state)) {
            Some(Ok(context)) => {
                let parent = Parent { span_id: context.span_id, sampled: context.sampled };
                (Self { span_id: ids.span_id(), ..context }, Some(parent))
            }
            Some(Err(_)) | None => (Self::new(ids), None),
        }
    }

    /// The value of `traceparent`, in version 00.
    pub fn trace_parent(&self) -> String {
        let mut text = String::with_capacity(LENGTH);
        // Writing to a string does not fail.
        let _ = fmt::write(
            &mut text,
            format_args!("00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled)),
        );
        text
    }
}

fn field(text: &str, length: usize) -> Result<(&str, &str), InvalidTraceParent> {
    text.split_at_checked(length).ok_or(InvalidTraceParent::Form)
}

fn after_dash(text: &str) -> Result<&str, InvalidTraceParent> {
    text.strip_prefix('-').ok_or(InvalidTraceParent::Form)
}

fn digits(text: &str) -> Result<u128, InvalidTraceParent> {
    let mut value = 0;
    for byte in text.bytes() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return Err(InvalidTraceParent::Digits),
        };
        value = value << 4 | u128::from(digit);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_standard() {
        let context = TraceContext::parse(EXAMPLE, Some("congo=t61rcWkgMzE")).unwrap();
        assert_eq!(context.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id.to_string(), "00f067aa0ba902b7");
        assert!(context.sampled);
        assert_eq!(context.state.as_str(), "congo=t61rcWkgMzE");
        assert_eq!(context.trace_parent(), EXAMPLE);
    }

    #[test]
    fn invalid_headers_are_refused_with_the_reason() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        let cases = [
            (String::new(), InvalidTraceParent::Form),
            (format!("00-{trace}-{span}"), InvalidTraceParent::Form),
            (format!("00-{trace}-{span}-01-more"), InvalidTraceParent::Form),
            (format!("00-{trace}-{span}-01 "), InvalidTraceParent::Form),
            (format!("01-{trace}-{span}-01more"), InvalidTraceParent::Form),
            (format!("ff-{trace}-{span}-01"), InvalidTraceParent::Version),
            (format!("0F-{trace}-{span}-01"), InvalidTraceParent::Digits),
            (format!("00-{}-{span}-01", trace.to_uppercase()), InvalidTraceParent::Digits),
            (format!("00-{trace}-{span}-0x"), InvalidTraceParent::Digits),
            (format!("00-{}-{span}-01", "0".repeat(32)), InvalidTraceParent::Zero),
            (format!("00-{trace}-{}-01", "0".repeat(16)), InvalidTraceParent::Zero),
            ("00-ä".to_owned(), InvalidTraceParent::Form),
        ];
        for (text, expected) in cases {
            assert_eq!(TraceContext::parse(&text, None), Err(expected), "{text}");
        }
    }

    #[test]
    fn later_versions_may_have_more_fields_and_flags() {
        let text = format!("cc{}f-what-the-future-brings", &EXAMPLE[2..EXAMPLE.len() - 1]);
        assert!(TraceContext::parse(&text, None).unwrap().sampled);
        let text = format!("cc{}", &EXAMPLE[2..]);
        assert_eq!(TraceContext::parse(&text, None).unwrap().trace_parent(), EXAMPLE);
    }

    #[test]
    fn a_request_without_a_valid_parent_starts_a_trace() {
        let ids = IdSource::new([1, 2]);
        let (context, parent) = TraceContext::of_request(Some(EXAMPLE), None, &ids);
        let parent = parent.unwrap();
        assert_eq!(context.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span_id.to_string(), "00f067aa0ba902b7");
        assert!(parent.sampled && context.span_id != parent.span_id);
        for text in [None, Some("00-1")] {
            let (context, parent) = TraceContext::of_request(text, Some("a=1"), &ids);
            assert_eq!((parent, context.state.as_str()), (None, ""));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(parent in ".{0,80}", state in ".{0,80}") {
            let _ = TraceContext::parse(&parent, Some(&state));
        }

        #[test]
        fn what_is_nearly_right_is_read_or_refused(at in 0..55usize, with in "\\PC") {
            let mut text: Vec<char> = EXAMPLE.chars().collect();
            text[at] = with.chars().next().unwrap_or('0');
            let text: String = text.into_iter().collect();
            if let Ok(context) = TraceContext::parse(&text, None) {
                prop_assert_eq!(context.trace_parent().len(), LENGTH);
            }
        }

        #[test]
        fn what_is_written_is_read_again(trace in 1..u128::MAX, span in 1..u64::MAX, sampled: bool) {
            let (trace_id, span_id) = (TraceId::new(trace).unwrap(), SpanId::new(span).unwrap());
            let context = TraceContext { trace_id, span_id, sampled, state: TraceState::default() };
            prop_assert_eq!(TraceContext::parse(&context.trace_parent(), None), Ok(context));
        }
    }
}
