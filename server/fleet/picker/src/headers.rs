//! What the headers of a request say about it. Bodies are never looked at.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::proto::ext_proc::HeaderMap;

/// Where the gateway sends the request: to the first of these addresses, or the next one if that fails.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// The batch that the request is part of, as `ID/ROWS`.
pub const BATCH: &str = "x-tessera-batch";
/// Name of the model of a gRPC request.
const MODEL: &str = "x-tessera-model";
/// Rows along the batch dimension.
const ROWS: &str = "x-tessera-rows";
/// Microseconds until the answer must be back.
const TIMEOUT_US: &str = "x-tessera-timeout-us";
const GRPC: &str = "application/grpc";
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Longest timeout. Longer ones are shortened.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A request, as far as its headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Whether it goes to the gRPC interface.
    pub grpc: bool,
    /// Its model. `None`: it is not known, or the request is about no model.
    pub model: Option<String>,
    /// Whether it runs the model.
    pub runs: bool,
    /// Rows along the batch dimension.
    pub rows: u32,
    /// Time in which the answer must be back.
    pub timeout: Option<Duration>,
}

/// Reads the headers.
///
/// # Errors
/// One of the picker's own headers is wrong: its name, and what would be right.
pub fn read(headers: &HeaderMap) -> Result<Asked, String> {
    let mut asked = Asked { grpc: is_grpc(headers), rows: 1, ..Asked::default() };
    let (mut path, mut named) = ("", None);
    for header in &headers.headers {
        let value = match header.raw_value.is_empty() {
            true => header.value.as_str(),
            false => std::str::from_utf8(&header.raw_value).unwrap_or_default(),
        };
        let wrong = |expected: &str| format!("{}: expected {expected}, got `{value}`", header.key);
        match header.key.as_str() {
            ":path" => path = value,
            MODEL => named = Some(value),
            ROWS => {
                let rows = value.parse().ok().filter(|rows| *rows > 0);
                asked.rows = rows.ok_or_else(|| wrong("a whole number from 1"))?;
            }
            TIMEOUT_US => {
                let us = value.parse().ok().filter(|us| *us > 0);
                let us = us.ok_or_else(|| wrong("microseconds, as a whole number from 1"))?;
                asked.timeout = shorter(asked.timeout, Some(Duration::from_micros(us)));
            }
            // The server says what is wrong with one that cannot be read.
            GRPC_TIMEOUT => asked.timeout = shorter(asked.timeout, grpc_timeout(value)),
            _ => {}
        }
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let about = match asked.grpc {
        true => method(path).zip(named.filter(|name| !name.is_empty()).map(str::to_owned)),
        false => model_of(path),
    };
    (asked.runs, asked.model) = about.map_or((false, None), |(runs, model)| (runs, Some(model)));
    Ok(asked)
}

/// Whether a request is one of gRPC.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.headers.iter().find(|header| header.key == "content-type");
    content_type
        .is_some_and(|header| header.raw_value.starts_with(GRPC.as_bytes()) || header.value.starts_with(GRPC))
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min().map(|timeout| timeout.min(TIMEOUT_MAX))
}

/// Whether a method of gRPC runs the model that the caller names. `None`: it is about no model.
fn method(path: &str) -> Option<bool> {
    let method = path.rsplit('/').next().unwrap_or_default();
    method.starts_with("Model").then(|| method.ends_with("Infer"))
}

/// The model of a path, and whether the path runs it: `/v2/models/NAME[/versions/VERSION]`, and then `/infer`, `/generate` or
/// `/generate_stream`.
fn model_of(path: &str) -> Option<(bool, String)> {
    let mut parts = path.strip_prefix("/v2/models/")?.split('/');
    let name = parts.next().filter(|name| !name.is_empty())?;
    let mut verb = parts.next();
    if verb == Some("versions") {
        parts.next();
        verb = parts.next();
    }
    let runs = matches!(verb, Some("infer" | "generate" | "generate_stream")) && parts.next().is_none();
    let name = percent_decode_str(name).decode_utf8().ok()?;
    Some((runs, name.into_owned()))
}

/// At most eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (unit_at, unit) = text.char_indices().last()?;
    let digits = text.get(..unit_at)?;
    let amount: u64 = digits.parse().ok().filter(|_| digits.len() <= 8 && !digits.starts_with('+'))?;
    Some(match unit {
        'H' => Duration::from_secs(amount.saturating_mul(3_600)),
        'M' => Duration::from_secs(amount.saturating_mul(60)),
        'S' => Duration::from_secs(amount),
        'm' => Duration::from_millis(amount),
        'u' => Duration::from_micros(amount),
        'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proto::ext_proc::HeaderValue;

    /// Headers as Envoy sends them.
    pub(crate) fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let one = |&(key, value): &(&str, &str)| HeaderValue {
            key: key.to_owned(),
            raw_value: value.to_owned().into(),
            ..HeaderValue::default()
        };
        HeaderMap { headers: headers.iter().map(one).collect() }
    }

    fn model(path: &str) -> Option<(bool, String)> {
        let asked = read(&map(&[(":path", path)])).unwrap();
        asked.model.map(|model| (asked.runs, model))
    }

    #[test]
    fn the_path_names_the_model_and_whether_it_runs() {
        for (path, runs, name) in [
            ("/v2/models/digits/infer", true, "digits"),
            ("/v2/models/digits/versions/3/infer", true, "digits"),
            ("/v2/models/digits/generate", true, "digits"),
            ("/v2/models/digits/versions/3/generate_stream?x=1", true, "digits"),
            ("/v2/models/a%20b/infer", true, "a b"),
            ("/v2/models/digits", false, "digits"),
            ("/v2/models/digits/ready", false, "digits"),
            ("/v2/models/digits/versions/3", false, "digits"),
            ("/v2/models/digits/infer/more", false, "digits"),
            ("/v2/models/digits/versions/infer", false, "digits"),
        ] {
            assert_eq!(model(path), Some((runs, name.to_owned())), "{path}");
        }
        for path in ["/v2/models//infer", "/v2/models/%ff/infer", "/v2/health/ready", ""] {
            assert_eq!(model(path), None, "{path}");
        }
    }

    #[test]
    fn a_grpc_request_names_its_model_in_a_header() {
        let infer = (":path", "/inference.GRPCInferenceService/ModelInfer");
        let grpc = ("content-type", "application/grpc+proto");
        let asked = read(&map(&[infer, grpc, ("x-tessera-model", "m"), ("grpc-timeout", "20m")])).unwrap();
        let timeout = Some(Duration::from_millis(20));
        assert_eq!(asked, Asked { grpc: true, model: Some("m".to_owned()), runs: true, rows: 1, timeout });
        assert_eq!(read(&map(&[infer, grpc])).unwrap().model, None);
        let metadata = (":path", "/inference.GRPCInferenceService/ModelMetadata");
        let asked = read(&map(&[metadata, grpc, ("x-tessera-model", "m")])).unwrap();
        assert_eq!((asked.runs, asked.model.as_deref()), (false, Some("m")));
        let ready = (":path", "/inference.GRPCInferenceService/ServerReady");
        assert_eq!(read(&map(&[ready, grpc, ("x-tessera-model", "m")])).unwrap().model, None);
    }

    #[test]
    fn the_shortest_timeout_counts_and_mistakes_are_named() {
        let timeout = |headers: &[(&str, &str)]| read(&map(headers)).map(|asked| asked.timeout);
        let ms = |ms| Ok(Some(Duration::from_millis(ms)));
        assert_eq!(timeout(&[("x-tessera-timeout-us", "5000"), ("grpc-timeout", "7m")]), ms(5));
        assert_eq!(timeout(&[("x-tessera-timeout-us", "9000"), ("grpc-timeout", "7m")]), ms(7));
        assert_eq!(timeout(&[("grpc-timeout", "99999999H")]), Ok(Some(TIMEOUT_MAX)));
        assert_eq!(timeout(&[("grpc-timeout", "soon")]), Ok(None));
        for value in ["", "-1", "0", "1.5", "9999999999999999999999"] {
            let error = timeout(&[("x-tessera-timeout-us", value)]).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "x-tessera-timeout-us: expected microseconds, as a whole number from 1, got `{value}`"
                )
            );
        }
        let error = read(&map(&[("x-tessera-rows", "two")])).unwrap_err();
        assert_eq!(error, "x-tessera-rows: expected a whole number from 1, got `two`");
    }
}
