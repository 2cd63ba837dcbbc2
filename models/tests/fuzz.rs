//! Arbitrary and mutated `config.pbtxt` files: the parser never panics, allocates within a bound, names the file and the
//! field that it refuses, and what it accepts survives printing and parsing.

#![expect(clippy::unwrap_used, reason = "a test, with helpers outside its test functions")]

#[path = "../oip/tests/support/mod.rs"]
mod support;

use models::ModelName;
use models::repository::Pbtxt;
use proptest::prelude::*;
use prost_reflect::{DescriptorPool, ReflectMessage as _};
use support::{edits, fixed, mutate, peak};

/// Memory for the schema, which the first call decodes, and for errors.
const FIXED_BYTES: usize = 8 << 20;
/// Memory for each byte of a file: `input{}` becomes a message with its fields.
const FACTOR: usize = 1024;

const SAMPLES: &[&str] = &[
    r#"name: "m" platform: "onnxruntime_onnx" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] reshape { shape: [ 1, 3, -1 ] } } ]
output [ { name: "y" data_type: TYPE_STRING dims: [ 2 ] label_filename: "labels.txt" } ]
version_policy: { specific { versions: [1, 3] } }
instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_AUTO } ]"#,
    r#"# a comment with max_batch_size
dynamic_batching { preferred_batch_size: [ 8, 4 ] max_queue_delay_microseconds: 500 priority_levels: 3
  default_priority_level: 2 default_queue_policy { max_queue_size: 100 default_timeout_microseconds: 20000 } }
parameters { key: "note" value { string_value: "kept \"\303\244\"" } }"#,
    r#"model_warmup [ { name: "w" batch_size: 2 count: 3
  inputs { key: "x" value { data_type: TYPE_FP32 dims: [3, 5] random_data: true } } } ]"#,
    r#"version_policy: { latest { num_versions: 2 } } backend: "tract" default_model_filename: "m.onnx""#,
    r#"input { name: "x" data_type: TYPE_FP32 dims: [4] reshape { shape: [0] } }"#,
    r#"sequence_batching { } instance_group { kind: KIND_GPU gpus: [0] } optimization { cuda { graphs: true } }"#,
];

const TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"'",
    b"#",
    b"\\",
    b"\n",
    b" ",
    b"-1",
    b"0",
    b"9223372036854775808",
    b"1e400",
    b"inf",
    b"TYPE_FP32",
    b"TYPE_INVALID",
    b"KIND_CPU",
    b"name",
    b"input",
    b"output",
    b"dims",
    b"reshape",
    b"shape",
    b"max_batch_size: ",
    b"version_policy",
    b"latest",
    b"dynamic_batching",
    b"instance_group",
    b"parameters",
    b"key",
    b"value",
    b"model_warmup",
    b"true",
    b"\xc3\xa4",
    b"\0",
    b"\\377",
];

fn parse(text: &str) -> Result<Pbtxt, models::ConfigError> {
    Pbtxt::parse(&ModelName::new("m").unwrap(), text, true)
}

fn check(text: &str) {
    let (parsed, bytes) = peak(|| parse(text));
    assert!(bytes <= FIXED_BYTES + FACTOR * text.len(), "{bytes} bytes for {}", text.len());
    match parsed {
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("model `m`: ") && !error.problems.is_empty(), "{said}");
            for problem in &error.problems {
                assert!(!problem.reason.is_empty() && problem.field.starts_with("config.pbtxt"), "{said}");
            }
        }
        Ok(file) => {
            let pool = DescriptorPool::decode(oip::proto::FILE_DESCRIPTOR_SET).unwrap();
            let descriptor = pool.get_message_by_name("inference.ModelConfig").unwrap();
            let mut message = prost_reflect::DynamicMessage::new(descriptor);
            message.transcode_from(&*file.source).unwrap();
            assert_eq!(message.descriptor().name(), "ModelConfig");
            // A batch size of 0 is not printed, but differs from none.
            let batch = if file.max_batch == Some(0) { "max_batch_size: 0\n" } else { "" };
            let again = parse(&format!("{batch}{}", message.to_text_format())).unwrap();
            // Positions differ.
            let reasons = |file: &Pbtxt| {
                let mut reasons: Vec<_> = file.ignored.iter().map(|field| field.reason).collect();
                reasons.sort_unstable();
                reasons
            };
            assert_eq!(reasons(&again), reasons(&file));
            assert_eq!(Pbtxt { ignored: Vec::new(), ..again }, Pbtxt { ignored: Vec::new(), ..file });
        }
    }
}

proptest! {
    #![proptest_config(fixed(1024, 1))]

    #[test]
    fn arbitrary_text(text in "\\PC{0,200}", plain in "[a-z_:{}\\[\\]\"'#,0-9\\-. \\n]{0,200}") {
        check(&text);
        check(&plain);
    }

    #[test]
    fn mutated_files(sample in 0..SAMPLES.len(), edits in edits()) {
        let bytes = mutate(SAMPLES[sample].as_bytes(), &edits, TOKENS);
        check(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn deep_and_long_files_stay_within_the_bound() {
    for text in [
        "input {".repeat(10_000),
        "a {".repeat(10_000),
        "input { name: \"x\" data_type: TYPE_FP32 }".repeat(5_000),
        format!("input {{ name: \"x\" data_type: TYPE_FP32 dims: [{}1] }}", "1,".repeat(50_000)),
        format!("name: \"{}\"", "x".repeat(200_000)),
    ] {
        check(&text);
    }
}
