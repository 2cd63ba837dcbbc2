//! Arbitrary and mutated requests: the decoders never panic, allocate within a bound, name the field that they refuse,
//! and what they accept survives a round trip.

#![expect(clippy::unwrap_used, reason = "a test, with helpers outside its test functions")]

mod support;

use bytes::Bytes;
use oip::proto::ModelInferRequest;
use oip::{Datatype, InferRequest, Limits, ProtocolError, TensorData, binary, grpc, json};
use proptest::prelude::*;
use prost::Message as _;
use support::{Edit, edits, fixed, mutate, peak};

/// Memory for the entries of lists, whose number is limited, and for errors.
const FIXED_BYTES: usize = 1 << 20;
/// Memory for each byte of a JSON body: a number such as `1,` may become 8 bytes, in a vector that doubles.
const JSON_FACTOR: usize = 32;
/// Memory for each byte of a protobuf message: an empty string takes 2 bytes on the wire and 32 in memory, in a vector
/// that doubles.
const PROTO_FACTOR: usize = 96;

const JSON_TOKENS: &[&[u8]] = &[
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b"\"",
    b"\\",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"4611686018427387904",
    b"18446744073709551616",
    b"\"\\ud800\"",
    b"\xff",
    b"\"name\"",
    b"\"inputs\"",
    b"\"outputs\"",
    b"\"data\"",
    b"\"shape\"",
    b"\"datatype\"",
    b"\"parameters\"",
    b"\"id\"",
    b"\"BYTES\"",
    b"\"FP32\"",
    b"\"INT8\"",
    b"\"BOOL\"",
    b"\"FP16\"",
    b"\"UINT64\"",
    b"\"binary_data_size\"",
    b"\"binary_data_output\"",
    b"\"classification\"",
    b"\"shared_memory_region\"",
    b"\"shared_memory_byte_size\"",
    b"\"shared_memory_offset\"",
];

const JSON_SAMPLES: &[&str] = &[
    r#"{"id":"7","parameters":{"priority":1,"note":"x","rate":0.5},"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],"data":[[1,2.5],[-3,4e2]]},{"name":"y","datatype":"BYTES","shape":[2],"data":["a,]\"","é"]}],"outputs":[{"name":"z","parameters":{"classification":3}}]}"#,
    r#"{"inputs":[{"name":"x","datatype":"INT8","shape":[3],"parameters":{"binary_data_size":3}},{"name":"y","datatype":"BYTES","shape":[1,2],"parameters":{"binary_data_size":9,"k":true}}],"parameters":{"binary_data_output":true}}"#,
    r#"{"inputs":[{"name":"x","datatype":"UINT64","shape":[1],"parameters":{"shared_memory_region":"r","shared_memory_byte_size":8,"shared_memory_offset":4}}],"outputs":[{"name":"z","parameters":{"binary_data":false,"shared_memory_region":"s","shared_memory_byte_size":4}}]}"#,
    r#"{"inputs":[{"name":"x","datatype":"BOOL","shape":[2,1],"data":[[true],[false]]},{"name":"h","datatype":"FP16","shape":[],"data":[0.1]}]}"#,
    r#"{"inputs":[{"name":"x","datatype":"INT8","shape":[3],"data":[[1],[2,3]]}]}"#,
    r#"{"inputs":[{"name":"x","datatype":"FP64","shape":[4611686018427387904],"data":[]}]}"#,
    r#"{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}],"parameters":{"timeout":18446744073709551615}}"#,
];

/// What the second sample's binary inputs claim.
const JSON_TAIL: &[u8] = b"\x01\x02\xff\x01\0\0\0a\0\0\0\0";

/// First segments of the paths that errors start with. Members that the protocol does not define can be named too.
const ROOTS: &[&str] = &[
    "request body",
    "inputs",
    "outputs",
    "parameters",
    "id",
    "inference-header-content-length",
    "raw_input_contents",
];

fn check_refusal(error: &ProtocolError, body: &[u8]) {
    let text = error.to_string();
    let root = text.split(['.', '[', ':']).next().unwrap_or_default();
    let named = ROOTS.contains(&root) || String::from_utf8_lossy(body).contains(root);
    assert!(named && text.len() < 1024, "{text}\n{}", String::from_utf8_lossy(body));
}

fn check_accepted(request: &InferRequest) {
    for input in &request.inputs {
        let TensorData::Inline(data) = &input.data else { continue };
        let count = input.shape.element_count().unwrap();
        match input.datatype.size() {
            Some(size) => assert_eq!(data.len() as u64, count * size as u64),
            None => assert_eq!(binary::elements(data).map(Result::unwrap).count() as u64, count),
        }
        assert!(input.datatype != Datatype::Bool || data.iter().all(|byte| *byte < 2));
    }
}

/// JSON, in a body whose first `json_len` bytes are the text.
fn check_json(body: Vec<u8>, json_len: Option<usize>) {
    let body = Bytes::from(body);
    let limits = Limits::default();
    let (decoded, bytes) = peak(|| json::decode_infer("m", None, &body, json_len, &limits));
    assert!(bytes <= FIXED_BYTES + JSON_FACTOR * body.len(), "{bytes} bytes for {}", body.len());
    match decoded {
        Err(error) => check_refusal(&error, &body),
        Ok(request) => {
            check_accepted(&request);
            let encoded = json::encode_request(&request, true).unwrap();
            let again: Vec<u8> = std::iter::once(&encoded.head)
                .chain(&encoded.tail)
                .flat_map(|part| part.iter().copied())
                .collect();
            let again = json::decode_infer("m", None, &again.into(), encoded.json_len, &limits).unwrap();
            assert_eq!(again, InferRequest { binary_output: true, ..request });
        }
    }
}

fn check_message(message: Vec<u8>) {
    let message = Bytes::from(message);
    let limits = Limits::default();
    let (decoded, bytes) = peak(|| {
        let decoded = grpc::decode_message(message.clone(), &limits)?;
        grpc::decode_infer(decoded, &limits)
    });
    assert!(bytes <= FIXED_BYTES + PROTO_FACTOR * message.len(), "{bytes} bytes for {}", message.len());
    match decoded {
        Err(error) => check_refusal(&error, &message),
        Ok(request) => {
            check_accepted(&request);
            let again = grpc::encode_request(&request).encode_to_vec();
            let again =
                grpc::decode_infer(grpc::decode_message(again.into(), &limits).unwrap(), &limits).unwrap();
            assert_eq!(again, request);
        }
    }
}

/// The samples as messages, and one with typed contents.
fn messages() -> Vec<Vec<u8>> {
    use oip::proto::{InferTensorContents, model_infer_request::InferInputTensor};
    let decode = |(index, sample): (usize, &&str)| {
        let tail = if index == 1 { JSON_TAIL } else { b"" };
        let body = Bytes::from([sample.as_bytes(), tail].concat());
        json::decode_infer("m", Some("1"), &body, Some(sample.len()), &Limits::default())
    };
    let requests = JSON_SAMPLES.iter().enumerate().filter_map(|sample| decode(sample).ok());
    let mut messages: Vec<_> =
        requests.map(|request| grpc::encode_request(&request).encode_to_vec()).collect();
    assert_eq!(messages.len(), 4, "the valid samples");
    let input = |datatype: &str, contents| InferInputTensor {
        name: datatype.to_owned(),
        datatype: datatype.to_owned(),
        shape: vec![2],
        contents: Some(contents),
        ..InferInputTensor::default()
    };
    let none = InferTensorContents::default;
    let typed = ModelInferRequest {
        model_name: "m".to_owned(),
        inputs: vec![
            input("BOOL", InferTensorContents { bool_contents: vec![true, false], ..none() }),
            input("INT8", InferTensorContents { int_contents: vec![1, -128], ..none() }),
            input("UINT64", InferTensorContents { uint64_contents: vec![1, u64::MAX], ..none() }),
            input("FP32", InferTensorContents { fp32_contents: vec![1.0, -2.5], ..none() }),
            input(
                "BYTES",
                InferTensorContents { bytes_contents: vec![Bytes::from("a"), Bytes::new()], ..none() },
            ),
        ],
        ..ModelInferRequest::default()
    };
    messages.push(typed.encode_to_vec());
    messages
}

/// Keys with their wire types, and numbers that lengths and counts may be replaced by.
const PROTO_TOKENS: &[&[u8]] = &[
    b"\x0a",
    b"\x12",
    b"\x18",
    b"\x1a",
    b"\x22",
    b"\x2a",
    b"\x32",
    b"\x3a",
    b"\x42",
    b"\x0b",
    b"\x0d",
    b"\x09",
    b"\0",
    b"\x01",
    b"\x7f",
    b"\xff\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x2a\0",
    b"\x3a\0",
    b"FP32",
    b"BYTES",
    b"BOOL",
    b"\x80",
];

proptest! {
    #![proptest_config(fixed(2048, 1))]

    #[test]
    fn arbitrary_bytes(body in prop::collection::vec(any::<u8>(), 0..300), json_len in prop::option::of(0_usize..320)) {
        check_json(body.clone(), json_len);
        check_message(body);
    }

    #[test]
    fn mutated_json(sample in 0..JSON_SAMPLES.len(), edits in edits(), tail in edits(), shift in -2_isize..3) {
        let text = mutate(JSON_SAMPLES[sample].as_bytes(), &edits, JSON_TOKENS);
        if sample != 1 {
            check_json(text, None);
            return Ok(());
        }
        // Most cases leave the binary part as it is.
        let tail: Vec<Edit> = tail.into_iter().skip(2).collect();
        let body = [&text[..], &mutate(JSON_TAIL, &tail, PROTO_TOKENS)].concat();
        let shift = if edits.is_empty() { shift } else { 0 };
        check_json(body, Some(text.len().saturating_add_signed(shift)));
    }

    #[test]
    fn mutated_messages(sample in 0_usize..5, edits in edits()) {
        check_message(mutate(&messages()[sample], &edits, PROTO_TOKENS));
    }

    #[test]
    fn raw_bodies(
        body in prop::collection::vec(any::<u8>(), 0..64),
        datatype in prop::sample::select(&Datatype::ALL[..]),
        dims in prop::collection::vec(prop_oneof![-1_i64..5, Just(i64::MAX), Just(1 << 62)], 0..4),
    ) {
        let input = binary::RawInput { name: "x", datatype, dims: &dims };
        let bytes = Bytes::from(body);
        match binary::decode_raw("m", None, input, &bytes, &Limits::default()) {
            Ok(request) => check_accepted(&request),
            Err(error) => check_refusal(&error, &bytes),
        }
    }
}

#[test]
fn the_largest_lists_stay_within_the_bound() {
    for body in [
        format!(r#"{{"inputs":[{}{{}}]}}"#, "{},".repeat(100_000)),
        format!(
            r#"{{"inputs":[{{"name":"x","datatype":"FP64","shape":[100000],"data":[{}0]}}]}}"#,
            "0,".repeat(99_999)
        ),
        format!(
            r#"{{"inputs":[{{"name":"x","datatype":"BYTES","shape":[99999],"data":[{}""]}}]}}"#,
            "\"\",".repeat(99_998)
        ),
        format!(
            r#"{{"parameters":{{{}"z":1}}}}"#,
            (0..20_000).map(|i| format!("\"{i}\":0,")).collect::<String>()
        ),
        format!(r#"{{"a":{}1{}}}"#, "[".repeat(60), "]".repeat(60)),
        "[".repeat(1 << 20),
    ] {
        check_json(body.into_bytes(), None);
    }
    for field in [5_u8, 6, 7] {
        check_message([field << 3 | 2, 0].repeat(100_000));
    }
    // Typed contents: 100,000 empty strings.
    let contents = [8 << 3 | 2, 0].repeat(100_000);
    let length = |bytes: &[u8]| {
        let mut length = Vec::new();
        prost::encoding::encode_varint(bytes.len() as u64, &mut length);
        length
    };
    let contents = [&[5 << 3 | 2][..], &length(&contents), &contents].concat();
    check_message([&[5 << 3 | 2][..], &length(&contents), &contents].concat());
}
