//! The client's side: the server decodes what the client encodes, and the client decodes responses of this and other
//! servers.

use bytes::Bytes;
use proptest::prelude::*;

use crate::json::{Encoded, decode_infer, decode_response, encode_infer, encode_request};
use crate::sample::{request, response};
use crate::{
    Datatype, InferRequest, InferResponse, InputTensor, Limits, OutputParameters, Parameter, ProtocolError,
    Shape, TensorData,
};

fn body(encoded: &Encoded) -> Bytes {
    let parts = encoded.tail.iter().fold(encoded.head.to_vec(), |body, part| [&body[..], part].concat());
    assert_eq!(parts.len(), encoded.body_len());
    parts.into()
}

fn answered(body: impl Into<Bytes>, json_len: Option<usize>) -> Result<InferResponse, String> {
    decode_response(&body.into(), json_len, &Limits::default()).map_err(|error| error.to_string())
}

fn output(members: &str) -> String {
    format!(r#"{{"model_name":"m","outputs":[{{"name":"y",{members}}}]}}"#)
}

fn asked(datatype: Datatype, data: &'static [u8]) -> InferRequest {
    let input = InputTensor {
        name: "x".into(),
        datatype,
        shape: Shape::from_extents(&[1]),
        data: TensorData::Inline(Bytes::from_static(data)),
        parameters: vec![],
    };
    InferRequest {
        model_name: "m".into(),
        model_version: None,
        id: String::new(),
        parameters: vec![],
        inputs: vec![input],
        outputs: None,
        binary_output: false,
    }
}

#[test]
fn a_request_says_no_more_than_it_must() {
    let encoded = encode_request(&asked(Datatype::Int8, &[7]), false).unwrap();
    assert_eq!(encoded.head, r#"{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[7]}]}"#);
    assert_eq!((encoded.json_len, encoded.tail.len()), (None, 0));
    let request = asked(Datatype::Int8, &[7]);
    let TensorData::Inline(data) = &request.inputs[0].data else { panic!("not inline") };
    let encoded = encode_request(&request, true).unwrap();
    assert_eq!(
        encoded.head,
        r#"{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}}]}"#
    );
    assert_eq!((encoded.json_len, encoded.tail[0].as_ptr()), (Some(encoded.head.len()), data.as_ptr()));
}

#[test]
fn unsound_requests_are_not_sent() {
    let refused = |request: &InferRequest, binary| encode_request(request, binary).unwrap_err().to_string();
    let short = asked(Datatype::Fp32, &[0]);
    for binary in [false, true] {
        assert_eq!(refused(&short, binary), "inputs[0].data: 1 bytes: expected 4 for FP32 of shape [1]");
    }
    let nan = asked(Datatype::Fp32, &[0, 0, 0xc0, 0x7f]);
    assert_eq!(
        refused(&nan, false),
        "inputs[0].data: element 0 is NaN, which JSON cannot carry: send binary data"
    );
    assert!(encode_request(&nan, true).is_ok());
    let text = asked(Datatype::Bytes, b"\x01\0\0\0\xff");
    assert_eq!(
        refused(&text, false),
        "inputs[0].data: element 0 is not UTF-8, which JSON cannot carry: send binary data"
    );
}

#[test]
fn answers_of_other_servers_are_read() {
    let mlserver = r#"{"model_name":"sum","model_version":null,"id":"5b1f","parameters":{"content_type":"np",
        "headers":{"a":["b"]},"nothing":null,"big":18446744073709551615},"outputs":[
        {"name":"total","shape":[2,1],"datatype":"FP64","parameters":{"content_type":"np","tags":[{}],"n":null},"data":[6.0,1]},
        {"name":"label","shape":[1],"datatype":"BYTES","parameters":null,"data":["caf\u00e9"]}]}"#;
    let answer = answered(mlserver, None).unwrap();
    assert_eq!((answer.model_name.as_str(), answer.model_version.as_str()), ("sum", ""));
    assert_eq!(answer.parameters, [("content_type".to_owned(), Parameter::String("np".into()))]);
    let json = OutputParameters { binary: Some(false), ..OutputParameters::default() };
    let [(total, parameters), (label, _)] = &answer.outputs[..] else { panic!("{answer:?}") };
    assert_eq!((total.shape.extents(), parameters), (&[2, 1][..], &json));
    assert_eq!(total.data, [6.0_f64.to_le_bytes(), 1.0_f64.to_le_bytes()].concat());
    assert_eq!(label.data, b"\x05\0\0\0caf\xc3\xa9"[..]);

    let kserve = r#"{"model_name":"m","model_version":null,"id":null,"parameters":null,"time":[1],"outputs":[
        {"name":"y","shape":[2],"datatype":"BOOL","data":[true,false],"extra":{"a":1}}]}"#;
    let answer = answered(kserve, None).unwrap();
    assert_eq!((answer.id.as_str(), &answer.outputs[0].0.data[..]), ("", &[1, 0][..]));
}

#[test]
fn binary_outputs_are_slices_of_the_body() {
    let json = r#"{"model_name":"m","model_version":"1","outputs":[
        {"name":"y","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}},
        {"name":"z","datatype":"UINT8","shape":[1],"data":[9]}]}"#;
    let (body, json_len) = super::with_binary(json, &[1, 2, 3, 4]);
    let answer = answered(body.clone(), json_len).unwrap();
    assert_eq!(answer.outputs[0].0.data.as_ptr(), body[json.len()..].as_ptr());
    assert_eq!(answer.outputs[0].1.binary, Some(true));
    assert_eq!(answered(body.clone(), Some(999)), {
        let body = body.len();
        Err(format!("inference-header-content-length: 999: expected at most the {body} bytes of the body"))
    });
}

#[test]
fn unsound_answers_are_refused() {
    let sizes = r#""datatype":"INT8","shape":[2],"parameters":{"binary_data_size":2}"#;
    let table = [
        ("", "response body: EOF while parsing a value at line 1 column 0"),
        ("<html>", "response body: expected value at line 1 column 1"),
        ("[]", "response body: invalid type: sequence, expected an object at line 1 column 0"),
        (r#"{"error":"no"}"#, "outputs: missing: expected an array of tensors"),
        (
            r#"{"outputs":[1]}"#,
            "outputs[0]: invalid type: integer `1`, expected an object at line 1 column 13",
        ),
        (
            r#"{"outputs":[{"datatype":"INT8","shape":[1],"data":[1]}]}"#,
            "outputs[0].name: missing: expected a string",
        ),
        (&output(r#""shape":[1],"data":[1]"#), "outputs[0].datatype: missing: expected a string"),
        (
            &output(r#""datatype":"INT8","data":[1]"#),
            "outputs[0].shape: missing: expected an array of integers",
        ),
        (
            &output(r#""datatype":"INT8","shape":[-1],"data":[1]"#),
            "outputs[0].shape: dimension 0 is -1: expected 0 or more",
        ),
        (
            &output(r#""datatype":"INT8","shape":[2],"data":[1]"#),
            "outputs[0].data: 1 elements: expected 2 for shape [2]",
        ),
        (
            &output(r#""datatype":"FP32","shape":[1],"data":[null]"#),
            "outputs[0].data: element 0 is null: expected a number in the range of FP32 for FP32",
        ),
        (
            &output(r#""datatype":"INT8","shape":[1],"parameters":null"#),
            "outputs[0]: no data: expected exactly one of `data`, `parameters.binary_data_size` and \
             `parameters.shared_memory_region`",
        ),
        (
            &output(sizes),
            "outputs[0].parameters.binary_data_size: 2 bytes: expected at most the 0 bytes that follow the \
             JSON header, whose length is in `Inference-Header-Content-Length`",
        ),
        (
            r#"{"outputs":[{"name":"y","datatype":"INT8","shape":[0],"data":[]},{"name":"y","datatype":"INT8","shape":[0],"data":[]}]}"#,
            "outputs[1].name: `y` was given before: expected every name once",
        ),
    ];
    for (text, error) in table {
        assert_eq!(answered(text.to_owned(), None), Err(error.to_owned()), "{text}");
    }
    let (body, json_len) = super::with_binary(&output(sizes), &[1, 2, 3]);
    let error = "response body: 1 bytes after the last output: expected none";
    assert_eq!(answered(body, json_len), Err(error.to_owned()));
}

#[test]
fn limits_hold_for_answers() {
    let refused = |limits: &Limits, text: &str| {
        decode_response(&Bytes::from(text.to_owned()), None, limits).unwrap_err()
    };
    let sound = output(r#""datatype":"INT8","shape":[2],"data":[1,2]"#);
    let small = Limits { body_bytes: 9, ..Limits::default() };
    let message = format!("response body: {} bytes: expected at most 9 (`body_bytes`)", sound.len());
    assert_eq!(refused(&small, &sound).to_string(), message);
    let small = Limits { tensor_bytes: 1, ..Limits::default() };
    assert!(matches!(refused(&small, &sound), ProtocolError::TensorTooLarge { bytes: 2, limit: 1, .. }));
    let small = Limits { tensors: 0, ..Limits::default() };
    assert_eq!(refused(&small, &sound).to_string(), "outputs: 1 entries: expected at most 0");
    let deep = format!(r#"{{"outputs":[],"x":{}{}}}"#, "[".repeat(70), "]".repeat(70));
    assert_eq!(
        refused(&Limits::default(), &deep).to_string(),
        "response body: deeply nested: expected at most 64 levels (`json_depth`)"
    );
}

proptest! {
    #[test]
    fn requests_arrive_as_they_were_sent(request in request(), binary in any::<bool>()) {
        let encoded = encode_request(&request, binary).unwrap();
        let version = request.model_version.as_deref();
        let decoded = decode_infer("m", version, &body(&encoded), encoded.json_len, &Limits::default()).unwrap();
        let binary_output = binary || request.binary_output;
        prop_assert_eq!(decoded, InferRequest { binary_output, ..request });
    }

    #[test]
    fn answers_arrive_as_they_were_sent(mut response in response(), binary_default in any::<bool>()) {
        // Of an output in shared memory, the answer has neither data nor place: the client knows both.
        response.outputs.retain(|(_, parameters)| parameters.shared_memory.is_none());
        let encoded = encode_infer(&response, binary_default).unwrap();
        let decoded = decode_response(&body(&encoded), encoded.json_len, &Limits::default()).unwrap();
        prop_assert_eq!(decoded, response);
    }

    #[test]
    fn random_bytes_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..256),
        json_len in prop::option::of(0_usize..300),
    ) {
        let _ = decode_response(&body.into(), json_len, &Limits::default());
    }

    #[test]
    fn mutated_answers_never_panic(
        response in response(),
        shift in -3_isize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let encoded = encode_infer(&response, true).unwrap();
        let mut bytes = body(&encoded).to_vec();
        let syntax = b"[]{}\",:-0e.\\n";
        for (at, byte, structural) in edits {
            let at = at.index(bytes.len());
            bytes[at] = if structural { syntax[usize::from(byte) % syntax.len()] } else { byte };
        }
        let json_len = encoded.json_len.map(|length| length.saturating_add_signed(shift));
        if let Ok(answer) = decode_response(&bytes.into(), json_len, &Limits::default()) {
            for (tensor, parameters) in answer.outputs {
                if parameters.shared_memory.is_none() {
                    let field = crate::error::Field::Top("x");
                    crate::binary::check(&tensor.data, tensor.datatype, &tensor.shape, field).unwrap();
                }
            }
        }
    }
}
