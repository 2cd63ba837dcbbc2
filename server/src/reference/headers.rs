//! Headers, and parameters of inference requests.

use super::{code, table};

/// Where a header is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Over HTTP only.
    Http,
    /// Over gRPC only, as metadata.
    Grpc,
    /// Over both.
    Both,
}

const REQUEST: &[(&str, On, &str)] = &[
    (
        "x-request-id",
        On::Both,
        "Id of the request, 1 to 128 visible ASCII characters. It is returned, and logged if the request fails.",
    ),
    (
        "inference-header-content-length",
        On::Http,
        "Bytes of the JSON part of the body; binary tensors follow. 0: the body is the only input of the model.",
    ),
    ("authorization", On::Both, "`Bearer` and an API key or a token (JWT)."),
    ("x-api-key", On::Both, "An API key or a token, for clients that cannot set `authorization`."),
    ("content-encoding", On::Http, "`gzip` or `deflate`: the body is compressed."),
    ("accept-encoding", On::Http, "`gzip` or `deflate`: the response may be compressed."),
    ("grpc-timeout", On::Grpc, "Deadline of the call; a request past it is never executed."),
    ("grpc-encoding", On::Grpc, "`gzip` or `deflate`: the message is compressed."),
    (
        "x-tessera-forwarded",
        On::Both,
        "Name of the node that forwarded the request. Such a request is not forwarded again.",
    ),
    (
        "x-tessera-elapsed-us",
        On::Both,
        "On a forwarded request, if this server has `fleet.node`: microseconds since it came in at its first node. Its deadline counts from \
         then.",
    ),
    (
        "x-tessera-batch",
        On::Both,
        "With `fleet.batch_marks`: `ID/ROWS`, the batch that a picker put the request into, as a number, and the rows of the whole batch, \
         1 to 4096. The requests of a batch wait for each other for `fleet.batch_wait`. Ignored for sequences and streams.",
    ),
];

const RESPONSE: &[(&str, On, &str)] = &[
    (
        "x-request-id",
        On::Both,
        "Id of the request: the one that was sent, or a new one. `tessera explain` takes it.",
    ),
    ("x-tessera-reason", On::Both, "Reason of a refusal: a word of the table of errors."),
    ("www-authenticate", On::Http, "`Bearer`: the request needs credentials."),
    ("retry-after", On::Both, "Seconds after which a refused request may succeed."),
    ("x-tessera-queue-us", On::Both, "Microseconds from admission to dispatch."),
    ("x-tessera-batch-wait-us", On::Both, "Microseconds from dispatch to the start of the engine."),
    ("x-tessera-compute-us", On::Both, "Microseconds in the engine."),
    ("x-tessera-batch-rows", On::Both, "Rows of the batch that the request ran in."),
    ("x-tessera-node", On::Both, "Name of the node that answered, if the request was forwarded."),
    ("x-tessera-not-ready", On::Grpc, "Why `ServerReady`, or a health check, answered no."),
    ("grpc-status", On::Grpc, "Status of the call, also if it was refused before its message was read."),
    (
        "inference-header-content-length",
        On::Http,
        "Bytes of the JSON part of the body; binary tensors follow.",
    ),
    ("connection", On::Http, "`close` while the server drains: the next request belongs on another server."),
];

/// Parameters of a request, of an input and of a requested output.
const PARAMETERS: &[(&str, &str, &str)] = &[
    (
        "timeout",
        "request",
        "Time in which the request must be answered, in microseconds from its arrival. 0: none.",
    ),
    ("priority", "request", "Priority class from 1, the most important. 0: the model's default."),
    (
        "class",
        "request",
        "`best_effort`: the request runs only on lanes that no other request wants, and has no objective. Models in Python get other values.",
    ),
    ("binary_data_output", "request", "Outputs are binary unless they say otherwise. HTTP only."),
    ("binary_data_size", "input", "Bytes of this tensor after the JSON part. HTTP only."),
    ("binary_data", "output", "Whether this output is binary. HTTP only."),
    (
        "classification",
        "output",
        "Return this many of the highest values with their labels instead of the tensor.",
    ),
    ("shared_memory_region", "input, output", "Name of the registered region that holds the tensor."),
    ("shared_memory_byte_size", "input, output", "Bytes of the tensor in the region."),
    ("shared_memory_offset", "input, output", "Offset in the region in bytes. Default: 0."),
];

/// The sections about headers and parameters for one transport.
pub fn text(transport: On) -> String {
    let rows = |headers: &'static [(&str, On, &str)]| {
        let own = headers.iter().filter(move |(_, on, _)| *on == On::Both || *on == transport);
        table(["header", "meaning"], own.map(|(name, _, about)| [code(name), (*about).to_owned()]))
    };
    let parameters =
        PARAMETERS.iter().filter(|(_, _, about)| transport == On::Http || !about.contains("HTTP only"));
    let parameters =
        parameters.map(|(name, place, about)| [code(name), (*place).to_owned(), (*about).to_owned()]);
    let noun = if transport == On::Grpc { " (metadata)" } else { "" };
    format!(
        "## Request headers{noun}\n\n{}\n## Response headers{noun}\n\n{}\n## Parameters of inference requests\n\n{}",
        rows(REQUEST),
        rows(RESPONSE),
        table(["parameter", "of", "meaning"], parameters)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Words between `before` and the next quote in the Rust files of a folder.
    fn quoted(folder: &Path, before: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "tests" && name != "reference" {
                    quoted(&path, before, found);
                }
            } else if name != "tests.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                let words = text.split(before).skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(words.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_header_of_the_code_has_an_entry() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut names = Vec::new();
        quoted(&folder, "HeaderName::from_static(\"", &mut names);
        quoted(&folder, ": &str = \"x-", &mut names);
        assert!(names.len() > 6, "{names:?}");
        for name in names {
            let known =
                |(entry, ..): &(&str, On, &str)| *entry == name || entry.strip_prefix("x-") == Some(&name);
            assert!(REQUEST.iter().chain(RESPONSE).any(known), "add the header {name} to this file");
        }
    }

    #[test]
    fn every_parameter_of_the_protocol_has_an_entry() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/oip/src/json");
        let mut names = Vec::new();
        quoted(&folder, "once(&mut found.", &mut names);
        quoted(&folder, "once(&mut self.", &mut names);
        let mut taken = Vec::new();
        quoted(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/service"),
            "unsigned(parameters, \"",
            &mut taken,
        );
        taken.extend(names.iter().filter_map(|text| text.split([',', ' ']).next().map(str::to_owned)));
        assert!(taken.len() > 6, "{taken:?}");
        for name in taken {
            // Fields of the parser leave out the prefix that the parameters share.
            let known =
                PARAMETERS.iter().any(|(entry, ..)| *entry == name || entry.ends_with(&format!("_{name}")));
            assert!(known, "add the parameter {name} to this file");
        }
    }
}
