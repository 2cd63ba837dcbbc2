//! Bodies that must be refused, with the exact error.

use bytes::Bytes;

use super::{decode, with_binary};
use crate::json::{decode_infer, encode_infer};
use crate::{Datatype, ErrorKind, InferResponse, Limits, OutputParameters, Shape, Tensor};

fn input(members: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"a","datatype":"INT8","shape":[1],"data":[1]}},{{{members}}}]}}"#)
}

#[test]
fn broken_bodies() {
    let table = [
        ("", "request body: EOF while parsing a value at line 1 column 0"),
        ("nonsense", "request body: expected ident at line 1 column 2"),
        ("[]", "request body: invalid type: sequence, expected an object at line 1 column 0"),
        ("null", "request body: invalid type: null, expected an object at line 1 column 4"),
        ("{", "request body: EOF while parsing an object at line 1 column 1"),
        ("{}", "inputs: missing: expected an array of tensors"),
        (r#"{"inputs":null}"#, "inputs: missing: expected an array of tensors"),
        (r#"{"inputs":[]}{}"#, "request body: trailing characters at line 1 column 14"),
        (r#"{"inputs":[],"inputs":[]}"#, "request body: duplicate field `inputs` at line 1 column 21"),
        (r#"{"inputs":{}}"#, "inputs: invalid type: map, expected an array at line 1 column 10"),
        (r#"{"inputs":[[]]}"#, "inputs[0]: invalid type: sequence, expected an object at line 1 column 11"),
        (
            r#"{"inputs":["a"]}"#,
            "inputs[0]: invalid type: string \"a\", expected an object at line 1 column 14",
        ),
        (r#"{"id":7,"inputs":[]}"#, "id: invalid type: integer `7`, expected a string at line 1 column 7"),
        (r#"{"inputs":[],"outputs":[{}]}"#, "outputs[0].name: missing: expected a string"),
        (
            r#"{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}"#,
            "outputs[1].name: `y` was given before: expected every name once",
        ),
        (
            r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]}"#,
            "outputs[0].parameters.binary_data: invalid type: integer `1`, expected a boolean at line 1 \
             column 65",
        ),
        (
            r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":-1}}]}"#,
            "outputs[0].parameters.classification: invalid value: integer `-1`, expected u32 at line 1 \
             column 69",
        ),
        (
            r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"shared_memory_region":"r"}}]}"#,
            "outputs[0].parameters.shared_memory_byte_size: missing: expected a number of bytes",
        ),
        (
            r#"{"inputs":[],"parameters":{"timeout":[1]}}"#,
            "parameters.timeout: an array, an object or null: expected a boolean, a number or a string",
        ),
        (
            r#"{"inputs":[],"parameters":{"timeout":18446744073709551615}}"#,
            "parameters.timeout: integer 18446744073709551615: expected at most 9223372036854775807 at \
             line 1 column 57",
        ),
        (
            r#"{"inputs":[],"parameters":{"timeout":NaN}}"#,
            "parameters.timeout: expected value at line 1 column 38",
        ),
        (
            r#"{"inputs":[],"parameters":{"timeout":1e999}}"#,
            "parameters.timeout: number out of range at line 1 column 42",
        ),
        (
            r#"{"inputs":[],"parameters":{"a":1,"a":2}}"#,
            "parameters: duplicate field `a` at line 1 column 36",
        ),
        (
            r#"{"inputs":[],"parameters":{"binary_data_output":"yes"}}"#,
            "parameters.binary_data_output: invalid type: string \"yes\", expected a boolean at line 1 \
             column 53",
        ),
    ];
    for (body, message) in table {
        assert_eq!(decode(body, None), Err(message.to_owned()), "{body}");
    }
}

#[test]
fn broken_inputs() {
    let table = [
        ("", "inputs[1].name: missing: expected a string"),
        (r#""name":null"#, "inputs[1].name: missing: expected a string"),
        (
            r#""name":"a","datatype":"INT8","shape":[1],"data":[1]"#,
            "inputs[1].name: `a` was given before: expected every name once",
        ),
        (r#""name":"b""#, "inputs[1].datatype: missing: expected a string"),
        (
            r#""name":"b","datatype":"fp32","shape":[1],"data":[1]"#,
            "inputs[1].datatype: unknown datatype `fp32`: expected BOOL, UINT8, UINT16, UINT32, UINT64, \
             INT8, INT16, INT32, INT64, FP16, FP32, FP64, BF16 or BYTES",
        ),
        (r#""name":"b","datatype":"FP32""#, "inputs[1].shape: missing: expected an array of integers"),
        (
            r#""name":"b","datatype":"FP32","shape":[1,-1],"data":[1]"#,
            "inputs[1].shape: dimension 1 is -1: expected 0 or more",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[1.5],"data":[1]"#,
            "inputs[1].shape[0]: invalid type: floating point `1.5`, expected i64 at line 1 column 107",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[9223372036854775807,3,0],"data":[]"#,
            "inputs[1].shape: the number of elements overflows 64 bits",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[4611686018427387904],"data":[]"#,
            "inputs[1].shape: [4611686018427387904] of FP32: the number of bytes overflows 63 bits",
        ),
        (
            r#""name":"b","datatype":"INT8","shape":[4611686018427387904],"data":[1]"#,
            "inputs[1].data: 1 elements: expected 4611686018427387904 for shape [4611686018427387904]",
        ),
        (
            r#""name":"b","datatype":"BYTES","shape":[4611686018427387904],"parameters":{"binary_data_size":0}"#,
            "inputs[1].shape: [4611686018427387904] of BYTES: the number of bytes overflows 63 bits",
        ),
        (
            r#""name":"b","datatype":"INT8","shape":[3],"data":[[1],[2,3]]"#,
            "inputs[1].data[1]: an array of 2: expected an array of 1, like those before it",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[2],"data":[1]"#,
            "inputs[1].data: 1 elements: expected 2 for shape [2]",
        ),
        (r#""name":"b","datatype":"FP32","shape":[1],"data":1"#, "inputs[1].data: 1: expected an array"),
        (
            r#""name":"b","datatype":"FP32","shape":[1]"#,
            "inputs[1]: no data: expected exactly one of `data`, `parameters.binary_data_size` and \
             `parameters.shared_memory_region`",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[1],"data":[1],"parameters":{"binary_data_size":4}"#,
            "inputs[1]: `data` and `parameters.binary_data_size`: expected exactly one of `data`, \
             `parameters.binary_data_size` and `parameters.shared_memory_region`",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}"#,
            "inputs[1].parameters.binary_data_size: 4 bytes: expected at most the 0 bytes that follow the JSON \
             header, whose length is in `Inference-Header-Content-Length`",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":-4}"#,
            "inputs[1].parameters.binary_data_size: invalid value: integer `-4`, expected u64 at line 1 \
             column 142",
        ),
        (
            r#""name":"b","datatype":"FP32","shape":[1],"parameters":{"shared_memory_offset":4}"#,
            "inputs[1].parameters.shared_memory_region: missing: expected the name of a registered region",
        ),
    ];
    for (members, message) in table {
        assert_eq!(decode(input(members), None), Err(message.to_owned()), "{members}");
    }
}

#[test]
fn binary_data_of_the_wrong_size() {
    let json = |datatype: &str, size: usize| {
        format!(
            r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[2],"parameters":{{"binary_data_size":{size}}}}}]}}"#
        )
    };
    let field = "inputs[0].parameters.binary_data_size";
    let table: [(&str, &[u8], String); 5] = [
        ("FP32", &[0; 7], format!("{field}: 7 bytes: expected 8 for FP32 of shape [2]")),
        ("BOOL", &[1, 2], format!("{field}: element 1 is byte 2: expected 0 or 1 for BOOL")),
        ("BYTES", b"\x01\0\0\0a", format!("{field}: 1 elements: expected 2 for shape [2]")),
        (
            "BYTES",
            b"\x01\0\0\0a\xff\xff\xff\xffb",
            format!(
                "{field}: element 1 is cut off after 5 bytes: expected a 4-byte little-endian length and \
                 that many bytes"
            ),
        ),
        ("BYTES", b"\0\0\0\0\0\0\0\0\0\0\0\0", format!("{field}: 3 elements: expected 2 for shape [2]")),
    ];
    for (datatype, data, message) in table {
        let (body, json_len) = with_binary(&json(datatype, data.len()), data);
        assert_eq!(decode(body, json_len), Err(message));
    }
    let (body, json_len) = with_binary(&json("INT8", 2), &[0; 3]);
    assert_eq!(
        decode(body.clone(), json_len),
        Err("request body: 1 bytes after the last input: expected none".to_owned())
    );
    let beyond = format!(
        "inference-header-content-length: 1000: expected at most the {} bytes of the body",
        body.len()
    );
    assert_eq!(decode(body, Some(1000)), Err(beyond));
}

#[test]
fn nesting_is_bounded_everywhere() {
    let deep = format!("{}1{}", "[".repeat(62), "]".repeat(62));
    let data = format!(
        r#"{{"inputs":[{{"name":"x","datatype":"INT8","shape":[1],"data":{}}}]}}"#,
        &deep[1..deep.len() - 1]
    );
    assert!(decode(data, None).is_ok());
    let message = Err("request body: nested deeper than 64 levels".to_owned());
    for nested in [
        format!(r#"{{"inputs":[{{"name":"x","datatype":"INT8","shape":[1],"data":{deep}}}]}}"#),
        format!(r#"{{"inputs":[],"ignored":{}"#, "[".repeat(1 << 20)),
        "{\"a\":".repeat(65),
    ] {
        assert_eq!(decode(nested, None), message);
    }
}

#[test]
fn limits_are_named() {
    let limits = Limits {
        body_bytes: 500,
        tensor_bytes: 16,
        tensors: 2,
        parameters: 1,
        name_bytes: 4,
        ..Limits::default()
    };
    let refused = |body: &str| {
        let error =
            decode_infer("m", None, &Bytes::copy_from_slice(body.as_bytes()), None, &limits).unwrap_err();
        (error.to_string(), error.kind())
    };
    let of = |message: &str, kind| (message.to_owned(), kind);
    assert_eq!(
        refused(&" ".repeat(501)),
        of("request body: 501 bytes: expected at most 500", ErrorKind::TooLarge)
    );
    assert_eq!(
        refused(r#"{"inputs":[{"name":"x","datatype":"FP64","shape":[3],"data":[1,2,3]}]}"#),
        of("inputs[0]: 24 bytes with those before it: expected at most 16", ErrorKind::TooLarge)
    );
    assert_eq!(
        refused(r#"{"inputs":[{"name":"x","datatype":"BYTES","shape":[3],"data":["abc","abc","abc"]}]}"#),
        of("inputs[0]: 21 bytes with those before it: expected at most 16", ErrorKind::TooLarge)
    );
    assert_eq!(
        refused(r#"{"inputs":[{},{},{}]}"#),
        of("inputs: 3 entries: expected at most 2", ErrorKind::Malformed)
    );
    assert_eq!(
        refused(r#"{"inputs":[],"outputs":[{},{},{}]}"#),
        of("outputs: 3 entries: expected at most 2", ErrorKind::Malformed)
    );
    assert_eq!(
        refused(r#"{"inputs":[],"parameters":{"a":1,"b":2}}"#),
        of("parameters: 2 entries: expected at most 1", ErrorKind::Malformed)
    );
    assert_eq!(
        refused(r#"{"id":"12345","inputs":[]}"#),
        of("id: 5 bytes: expected at most 4", ErrorKind::Malformed)
    );
    assert_eq!(
        refused(r#"{"inputs":[{"name":"12345"}]}"#),
        of("inputs[0].name: 5 bytes: expected at most 4", ErrorKind::Malformed)
    );
}

#[test]
fn long_lists_are_counted_but_not_kept() {
    let body = format!(r#"{{"inputs":[{}{{}}]}}"#, "{},".repeat(99_999));
    assert_eq!(decode(body, None), Err("inputs: 100000 entries: expected at most 256".to_owned()));
    let parameters: Vec<String> = (0..10_000).map(|i| format!("\"{i}\":0")).collect();
    let body = format!(r#"{{"inputs":[],"parameters":{{{}}}}}"#, parameters.join(","));
    assert_eq!(decode(body, None), Err("parameters: 10000 entries: expected at most 64".to_owned()));
    let body = input(&format!(r#""name":"b","datatype":"FP32","shape":[{}1]"#, "1,".repeat(10_000)));
    assert_eq!(decode(body, None), Err("inputs[1].shape: 10001 dimensions: expected at most 64".to_owned()));
}

#[test]
fn errors_do_not_echo_the_request() {
    let long = "x".repeat(1 << 20);
    for body in [
        format!(r#"{{"inputs":["{long}"]}}"#),
        format!(r#"{{"inputs":[],"parameters":{{"{long}":[]}}}}"#),
        format!(r#"{{"inputs":[],"parameters":{{"{long}":nope}}}}"#),
        input(&format!(r#""name":"b","datatype":"{long}","shape":[1],"data":[1]"#)),
        input(&format!(r#""name":"b","datatype":"FP32","shape":[1],"data":["{long}"]"#)),
        input(&format!(r#""name":"b","datatype":"FP32","shape":[1],"data":"{long}""#)),
    ] {
        let message = decode(body, None).unwrap_err();
        assert!(message.len() < 600, "{} bytes", message.len());
    }
}

#[test]
fn not_utf8() {
    let message = "request body: not UTF-8 at byte 11: expected JSON";
    assert_eq!(decode(&b"{\"inputs\":[\xff"[..], None), Err(message.to_owned()));
}

#[test]
fn answers_that_json_cannot_carry() {
    let refused = |datatype, data: &'static [u8], count| {
        let tensor =
            Tensor { name: "y".into(), datatype, shape: Shape::from_extents(&[count]), data: data.into() };
        let response = InferResponse {
            model_name: "m".into(),
            model_version: "1".into(),
            id: String::new(),
            parameters: vec![],
            outputs: vec![(tensor, OutputParameters::default())],
        };
        let error = encode_infer(&response, false).unwrap_err();
        (error.to_string(), error.kind())
    };
    let hint = "which JSON cannot carry: ask for binary data (`\"binary_data\": true`)";
    let of = |message: String| (message, ErrorKind::Unsupported);
    assert_eq!(
        refused(Datatype::Fp32, b"\0\0\0\0\0\0\xc0\x7f", 2),
        of(format!("output `y`: element 1 is NaN, {hint}"))
    );
    assert_eq!(refused(Datatype::Fp16, b"\0\xfc", 1), of(format!("output `y`: element 0 is -inf, {hint}")));
    assert_eq!(
        refused(Datatype::Bytes, b"\x01\0\0\0\xff", 1),
        of(format!("output `y`: element 0 is not UTF-8, {hint}"))
    );
    assert_eq!(
        refused(Datatype::Fp32, b"\0\0\0", 1),
        ("output `y`: data: 3 bytes: expected 4 for FP32 of shape [1]".to_owned(), ErrorKind::BadOutput)
    );
}
