//! The examples of the protocol and of its extensions.

use bytes::Bytes;

use super::{decode, with_binary};
use crate::json::encode_infer;
use crate::{
    Datatype, InferResponse, OutputParameters, Parameter, RequestedOutput, Shape, SharedMemoryRef, Tensor,
    TensorData,
};

fn le<const N: usize, T: Copy>(values: &[T], encode: fn(T) -> [u8; N]) -> Bytes {
    values.iter().flat_map(|&value| encode(value)).collect::<Vec<u8>>().into()
}

fn named(name: &str, parameters: OutputParameters) -> RequestedOutput {
    RequestedOutput { name: name.to_owned(), parameters }
}

fn tensor(name: &str, datatype: Datatype, extents: &[u64], data: Bytes) -> Tensor {
    Tensor { name: name.to_owned(), datatype, shape: Shape::from_extents(extents), data }
}

#[test]
fn the_inference_request_example() {
    let body = r#"{
        "id" : "42",
        "inputs" : [
            { "name" : "input0", "shape" : [ 2, 2 ], "datatype" : "UINT32", "data" : [ 1, 2, 3, 4 ] },
            { "name" : "input1", "shape" : [ 3 ], "datatype" : "BOOL", "data" : [ true ,false, true ] }
        ],
        "outputs" : [ { "name" : "output0" } ]
    }"#;
    let request = decode(body, None).unwrap();
    assert_eq!((request.model_name.as_str(), request.id.as_str()), ("m", "42"));
    assert_eq!(request.inputs[0].name, "input0");
    assert_eq!(request.inputs[0].datatype, Datatype::Uint32);
    assert_eq!(request.inputs[0].shape, Shape::from_extents(&[2, 2]));
    assert_eq!(request.inputs[0].data, TensorData::Inline(le(&[1, 2, 3, 4], u32::to_le_bytes)));
    assert_eq!(request.inputs[1].data, TensorData::Inline(Bytes::from_static(&[1, 0, 1])));
    assert_eq!(request.outputs, Some(vec![named("output0", OutputParameters::default())]));
    assert!(!request.binary_output);
}

#[test]
fn the_inference_response_example() {
    let response = InferResponse {
        model_name: "mymodel".into(),
        model_version: "1".into(),
        id: "42".into(),
        parameters: vec![],
        outputs: vec![(
            tensor("output0", Datatype::Fp32, &[3, 2], le(&[1.0, 1.1, 2.0, 2.1, 3.0, 3.1], f32::to_le_bytes)),
            OutputParameters::default(),
        )],
    };
    let encoded = encode_infer(&response, false).unwrap();
    assert_eq!(
        encoded.head,
        r#"{"id":"42","model_name":"mymodel","model_version":"1","outputs":[{"name":"output0","datatype":"FP32","shape":[3,2],"data":[1.0,1.1,2.0,2.1,3.0,3.1]}]}"#
    );
    assert_eq!((encoded.json_len, encoded.tail.len()), (None, 0));
}

#[test]
fn the_tensor_data_examples() {
    for data in ["[ [ 1, 2 ], [ 4, 5 ] ]", "[ 1, 2, 4, 5 ]"] {
        let body = format!(r#"{{"inputs":[{{"name":"x","shape":[2,2],"datatype":"INT16","data":{data}}}]}}"#);
        let request = decode(body, None).unwrap();
        assert_eq!(request.inputs[0].data, TensorData::Inline(le(&[1, 2, 4, 5], i16::to_le_bytes)), "{data}");
    }
}

#[test]
fn the_binary_request_example_is_not_copied() {
    let json = r#"{
      "model_name" : "mymodel",
      "inputs" : [
        { "name" : "input0", "shape" : [ 2, 2 ], "datatype" : "UINT32", "parameters" : { "binary_data_size" : 16 } },
        { "name" : "input1", "shape" : [ 3 ], "datatype" : "BOOL", "parameters" : { "binary_data_size" : 3 } }
      ],
      "outputs" : [ { "name" : "output0", "parameters" : { "binary_data" : true } } ]
    }"#;
    let (body, json_len) = with_binary(json, &[&[7; 16][..], &[1, 0, 1]].concat());
    let request = decode(body.clone(), json_len).unwrap();
    let TensorData::Inline(first) = &request.inputs[0].data else { panic!("not inline") };
    assert_eq!(first.as_ptr(), body[json.len()..].as_ptr());
    assert_eq!(request.inputs[1].data, TensorData::Inline(Bytes::from_static(&[1, 0, 1])));
    let binary = OutputParameters { binary: Some(true), ..OutputParameters::default() };
    assert_eq!(request.outputs, Some(vec![named("output0", binary)]));
}

#[test]
fn the_binary_response_example_shares_its_data() {
    let data = le(&[1.0, 1.1, 2.0, 2.1, 3.0, 3.1], f32::to_le_bytes);
    let binary = OutputParameters { binary: Some(true), ..OutputParameters::default() };
    let json = OutputParameters { binary: Some(false), ..OutputParameters::default() };
    let response = InferResponse {
        model_name: "mymodel".into(),
        model_version: "1".into(),
        id: String::new(),
        parameters: vec![("sequence_id".into(), Parameter::Int(3)), ("final".into(), Parameter::Bool(true))],
        outputs: vec![
            (tensor("output0", Datatype::Fp32, &[3, 2], data.clone()), binary),
            (tensor("output1", Datatype::Int8, &[1], Bytes::from_static(&[255])), json),
            (tensor("output2", Datatype::Uint8, &[1], Bytes::from_static(&[9])), OutputParameters::default()),
        ],
    };
    let encoded = encode_infer(&response, true).unwrap();
    assert_eq!(
        encoded.head,
        r#"{"model_name":"mymodel","model_version":"1","parameters":{"sequence_id":3,"final":true},"outputs":[{"name":"output0","datatype":"FP32","shape":[3,2],"parameters":{"binary_data_size":24}},{"name":"output1","datatype":"INT8","shape":[1],"data":[-1]},{"name":"output2","datatype":"UINT8","shape":[1],"parameters":{"binary_data_size":1}}]}"#
    );
    assert_eq!(encoded.json_len, Some(encoded.head.len()));
    assert_eq!(encoded.tail[0].as_ptr(), data.as_ptr());
    assert_eq!(encoded.body_len(), encoded.head.len() + 25);
}

#[test]
fn shared_memory_and_classification() {
    let body = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","parameters":
        {"shared_memory_region":"in","shared_memory_offset":64,"shared_memory_byte_size":8,"note":"kept"}}],
        "outputs":[{"name":"y","parameters":{"shared_memory_region":"out","shared_memory_byte_size":4}},
                   {"name":"z","parameters":{"classification":2,"unknown":[1,{}]}},
                   {"name":"w","parameters":{"classification":0}}]}"#;
    let request = decode(body, None).unwrap();
    let region = SharedMemoryRef { region: "in".into(), offset: 64, byte_size: 8 };
    assert_eq!(request.inputs[0].data, TensorData::Shared(region));
    assert_eq!(request.inputs[0].parameters, [("note".to_owned(), Parameter::String("kept".into()))]);
    let outputs = request.outputs.unwrap();
    let region = SharedMemoryRef { region: "out".into(), offset: 0, byte_size: 4 };
    assert_eq!(outputs[0].parameters.shared_memory, Some(region));
    assert_eq!(outputs[1].parameters.classification, Some(2));
    assert_eq!(outputs[2].parameters.classification, None);
}

#[test]
fn an_output_in_shared_memory_is_answered_without_data() {
    let target = SharedMemoryRef { region: "out".into(), offset: 8, byte_size: 4 };
    let parameters = OutputParameters { shared_memory: Some(target), ..OutputParameters::default() };
    let response = InferResponse {
        model_name: "m".into(),
        model_version: "1".into(),
        id: String::new(),
        parameters: vec![],
        outputs: vec![(tensor("y", Datatype::Fp32, &[1], Bytes::new()), parameters)],
    };
    let encoded = encode_infer(&response, true).unwrap();
    assert!(encoded.head.ends_with(br#""datatype":"FP32","shape":[1]}]}"#));
    assert_eq!(encoded.json_len, None);
}

#[test]
fn parameters_keep_type_and_order() {
    let body = r#"{"inputs":[],"parameters":{"timeout":500,"priority":-1,"binary_data_output":true,"s":"\u00e9","d":1e3,"b":false}}"#;
    let request = decode(body, None).unwrap();
    assert!(request.binary_output);
    let expected = [
        ("timeout", Parameter::Int(500)),
        ("priority", Parameter::Int(-1)),
        ("s", Parameter::String("é".into())),
        ("d", Parameter::Double(1000.0)),
        ("b", Parameter::Bool(false)),
    ];
    assert_eq!(request.parameters, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn members_that_triton_ignores_are_ignored() {
    let body = r#"{"id":null,"extra":{"a":[1,2]},"outputs":[],"parameters":null,
        "inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1],"layout":"NCHW","parameters":{"o":{"a":1},"n":null}}]}"#;
    let request = decode(body, None).unwrap();
    assert_eq!((request.outputs, request.id.as_str()), (None, ""));
    assert_eq!(request.inputs[0].parameters, []);
}
